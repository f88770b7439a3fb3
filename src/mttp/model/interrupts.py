"""
Exceptions that a signal handler of the program raises, such as a time limit by SIGALRM.

They may interrupt any line, also one of mttp that ignores exceptions; they must reach the program.
"""

from __future__ import annotations

import inspect
import threading
from itertools import pairwise
from traceback import walk_tb
from types import FrameType, TracebackType

__all__ = ["is_interrupt", "raise_interrupt", "suppress_errors"]


def is_interrupt(error: BaseException | None) -> bool:
    """
    Return whether a signal handler raised the exception.

    The traceback then has a frame whose arguments are a signal's number and the frame that called it.
    """
    if error is None or threading.current_thread() is not threading.main_thread():
        return False
    return any(_is_handler(frame) for frame, _ in walk_tb(error.__traceback__))


def raise_interrupt(error: BaseException) -> None:
    """Raise the exception again if a signal handler raised it; call this where exceptions are ignored."""
    if is_interrupt(error):
        raise error


class suppress_errors:  # noqa: N801 - named as `contextlib.suppress`
    """A context manager that suppresses every `Exception` that no signal handler raised."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return isinstance(error, Exception) and not is_interrupt(error)


def _is_handler(frame: FrameType) -> bool:
    interrupted = frame.f_back
    if interrupted is None:
        return False
    info = inspect.getargvalues(frame)
    values = [info.locals.get(name) for name in info.args]
    if info.varargs:
        rest = info.locals.get(info.varargs)
        values += rest if isinstance(rest, tuple) else ()
    return any(
        caller is interrupted and issubclass(type(number), int)  # without asking a foreign object
        for number, caller in pairwise(values)
    )

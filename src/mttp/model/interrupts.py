"""
Exceptions that a signal handler of the program raises, such as a time limit by SIGALRM.

They may interrupt any line, also one of mttp that ignores exceptions; they must reach the program.
"""

from __future__ import annotations

import functools
import inspect
import signal
import sys
import threading
from itertools import pairwise
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any, TypeGuard, cast

__all__ = ["is_exception", "is_interrupt", "raise_interrupt", "suppress_errors"]


def is_interrupt(error: BaseException | None) -> bool:
    """
    Return whether a signal handler raised the exception.

    The traceback then has a frame whose arguments are a signal's number and the frame that called it.
    """
    if error is None or threading.current_thread() is not threading.main_thread():
        return False
    return any(_signal_of(frame) is not None for frame, _ in walk_tb(error.__traceback__))


def raise_interrupt(error: BaseException, *, installed: bool = False) -> None:
    """
    Raise the exception again if a signal handler raised it; call this where exceptions are ignored.

    If code within the call has wrapped a handler's exception in another one, the handler's is raised.
    With `installed`, for a call of code that may set handlers of its own, only the exception itself counts,
    and only if its handler is still installed.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if installed:
        if any(_is_installed(frame) for frame, _ in walk_tb(error.__traceback__)):
            raise error
    elif is_interrupt(error):
        raise error
    elif (interrupt := _wrapped(error, sys._getframe(1))) is not None:
        raise interrupt


class suppress_errors:  # noqa: N801 - named as `contextlib.suppress`
    """A context manager that suppresses every `Exception` that no signal handler raised."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or is_interrupt(error):
            return False
        interrupt = _wrapped(error, sys._getframe(1))
        if interrupt is not None:
            raise interrupt
        return True


def _signal_of(frame: FrameType) -> int | None:
    """Return the number of the signal that the frame handles; None if it is no handler's."""
    interrupted = frame.f_back
    if interrupted is None:
        return None
    info = inspect.getargvalues(frame)
    values = [info.locals.get(name) for name in info.args]
    if info.varargs:
        rest = info.locals.get(info.varargs)
        values += rest if isinstance(rest, tuple) else ()
    for number, caller in pairwise(values):
        if caller is interrupted and issubclass(type(number), int):  # without asking a foreign object
            return cast(int, number)
    return None


def _is_installed(frame: FrameType) -> bool:
    """Return whether the frame is that of a signal handler that is installed now."""
    number = _signal_of(frame)
    if number is None:
        return False
    handler: Any = signal.getsignal(number)
    while isinstance(handler, functools.partial):
        handler = handler.func
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return code is frame.f_code


def _wrapped(error: BaseException, caller: FrameType) -> BaseException | None:
    """Return a handler's exception that led to `error`, if the handler ran within a call from `caller`."""
    visited, waiting = {id(error)}, [error]
    while waiting:
        outer = waiting.pop()
        for inner in (outer.__cause__, outer.__context__, *getattr(outer, "exceptions", ())):
            if not isinstance(inner, BaseException) or id(inner) in visited:
                continue
            for frame, _ in walk_tb(inner.__traceback__):
                if _signal_of(frame) is not None and _is_within(frame, caller):
                    return inner
            visited.add(id(inner))
            waiting.append(inner)
    return None


def _is_within(frame: FrameType | None, caller: FrameType) -> bool:
    while frame is not None and frame is not caller:
        frame = frame.f_back
    return frame is caller


def is_exception(value: object) -> TypeGuard[BaseException]:
    """Return whether a value is an exception, without asking it: a foreign object may answer by raising."""
    return issubclass(type(value), BaseException)

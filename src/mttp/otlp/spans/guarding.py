"""The guard around what a training loop calls: what goes wrong within is counted, and nothing is raised."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from typing_extensions import ParamSpec

__all__ = ["FaultSink", "MisuseError", "failed", "guarded", "is_misuse", "quiet", "quiet_but"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class MisuseError(TypeError):
    """A call has arguments that the function does not have: a bug of the program, raised at once."""


class FaultSink(Protocol):
    """What counts faults: a span, or a session."""

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault, and log the first of its kind."""


def failed(sink: FaultSink | None, what: str, error: Exception) -> None:
    """Count that a call failed; raises nothing, even where there is no memory for that either."""
    if sink is None:
        return
    try:
        sink.fault("internal_error", f"{what}: {error!r}")
    except Exception:
        with suppress(Exception):
            sink.fault("internal_error", what)


def guarded(
    otherwise: Callable[..., Any], tell: Callable[..., None]
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """
    A decorator: where the call raises, `tell(name, error, *args)` counts that, and `otherwise` answers.

    `otherwise` is given the arguments of the call.
    A TypeError for arguments that the call does not have is raised.
    """

    def decorated(call: Callable[_P, _T]) -> Callable[_P, _T]:
        name = call.__qualname__

        @functools.wraps(call)
        def guard(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                return call(*args, **kwargs)
            except Exception as error:
                if is_misuse(error):
                    raise
                with suppress(Exception):  # there may be no stack left for that either
                    tell(name, error, *args)
            return cast(_T, otherwise(*args, **kwargs))

        return guard

    return decorated


def is_misuse(error: Exception) -> bool:
    """Whether an error that was just caught says that the call has no such arguments."""
    if not isinstance(error, TypeError):
        return False
    trace = error.__traceback__
    return isinstance(error, MisuseError) or (trace is not None and trace.tb_next is None)


def quiet(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """A method that has its owner's `_failed` count what it raises; it answers None then."""
    return guarded(_nothing, _tell)(method)


def quiet_but(otherwise: Callable[..., Any]) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """As `quiet`, of a method that answers something: `otherwise` does where it raises."""
    return guarded(otherwise, _tell)


def _tell(name: str, error: Exception, owner: Any, *_: object) -> None:
    owner._failed(name, error)


def _nothing(*_: object, **__: object) -> None:
    """What most methods answer."""

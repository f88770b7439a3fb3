"""Decorators for calls from a training loop, which count exceptions instead of raising them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from typing_extensions import ParamSpec

from mttp.model.interrupts import raise_interrupt, suppress_errors

__all__ = ["FaultSink", "MisuseError", "failed", "guarded", "is_misuse", "quiet", "quiet_but"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class MisuseError(TypeError):
    """A call has arguments that the function does not have; raised at once, as a bug of the program."""


class FaultSink(Protocol):
    """Counts faults: a span or a session."""

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault, and log the first of its kind."""


def failed(sink: FaultSink | None, what: str, error: Exception) -> None:
    """Count a failed call; never raises, even without memory."""
    if sink is None:
        return
    try:
        sink.fault("internal_error", f"{what}: {error!r}")
    except Exception as failure:
        raise_interrupt(failure)
        with suppress_errors():
            sink.fault("internal_error", what)


def guarded(
    otherwise: Callable[..., Any], report: Callable[..., None]
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """
    Return a decorator; if the call raises, call `report(name, error, *args)`, and return `otherwise(*args)`.

    A TypeError for arguments that the call does not have is raised.
    """

    def decorated(call: Callable[_P, _T]) -> Callable[_P, _T]:
        name = call.__qualname__

        @functools.wraps(call)
        def guard(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                return call(*args, **kwargs)
            except Exception as error:
                raise_interrupt(error)
                if is_misuse(error):
                    raise
                with suppress_errors():  # the stack may be exhausted
                    report(name, error, *args)
            return cast(_T, otherwise(*args, **kwargs))

        return guard

    return decorated


def is_misuse(error: Exception) -> bool:
    """Whether a caught error is a TypeError of the call itself, for wrong arguments."""
    if not isinstance(error, TypeError):
        return False
    trace = error.__traceback__
    return isinstance(error, MisuseError) or (trace is not None and trace.tb_next is None)


def quiet(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a method: exceptions are passed to its owner's `_failed`, and it returns None."""
    return guarded(_nothing, _report)(method)


def quiet_but(otherwise: Callable[..., Any]) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate a method like `quiet`, but return `otherwise(*args)` if it raises."""
    return guarded(otherwise, _report)


def _report(name: str, error: Exception, owner: Any, *_: object) -> None:
    owner._failed(name, error)


def _nothing(*_: object, **__: object) -> None:
    """Return None."""

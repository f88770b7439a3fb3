"""Faults of integrations: an error in a hook is counted and logged once, and the training continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mttp.codec.plain import scalar_text
from mttp.model.interrupts import raise_interrupt, suppress_errors
from mttp.otlp.spans import qualified_name
from mttp.recording import configuration

__all__ = ["INTEGRATION_ERROR", "attribute", "fault", "guard", "hook_failed"]

INTEGRATION_ERROR = "integration_error"
"""The kind of fault for an exception in one of mttp's hooks."""

_T = TypeVar("_T")


def fault(kind: str, detail: str) -> None:
    """Count a fault in the current session, if there is one."""
    session = configuration.current_session()
    if session is not None:
        session._fault(kind, detail)


def hook_failed(library: str, hook: str, error: BaseException) -> None:
    """Count an exception in one of mttp's hooks; raises only what a signal handler raised meanwhile."""
    with suppress_errors():
        session = configuration.current_session()
        if session is not None:
            session._fault(INTEGRATION_ERROR, f"{library}: {hook}: {scalar_text(error)}")
            session.stats.failed(library, qualified_name(error))


def guard(library: str, hook: Callable[..., _T], *args: Any, **kwargs: Any) -> _T | None:
    """
    Call a hook and return its result; an exception is counted, and None is returned.

    An exception that a signal handler of the program raised meanwhile is raised.
    """
    try:
        return hook(*args, **kwargs)
    except Exception as error:
        raise_interrupt(error)
        hook_failed(library, getattr(hook, "__name__", "hook"), error)
        return None


def attribute(owner: Any, name: str) -> Any:
    """Return an attribute of a library's object; None if there is none, or, with a fault, if it raises."""
    try:
        return getattr(owner, name, None)
    except Exception as error:
        raise_interrupt(error)
        hook_failed(type(owner).__name__, name, error)
        return None

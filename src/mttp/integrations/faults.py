"""Faults of an integration: the training goes on, and what failed is counted and logged once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from mttp.codec.plain import scalar_text
from mttp.otlp.spans import qualified_name
from mttp.recording import configuration

__all__ = ["INTEGRATION_ERROR", "failed", "fault", "guard"]

INTEGRATION_ERROR = "integration_error"
"""The kind of fault that it is when a hook of ours raised."""

_T = TypeVar("_T")


def fault(kind: str, detail: str) -> None:
    """Count a fault in the session that records, if one does."""
    session = configuration.current_session()
    if session is not None:
        session._fault(kind, detail)


def failed(library: str, what: str, error: BaseException) -> None:
    """Count that a hook of ours raised; whatever its error is, saying so raises nothing."""
    with contextlib.suppress(Exception):
        session = configuration.current_session()
        if session is not None:
            session._fault(INTEGRATION_ERROR, f"{library}: {what}: {scalar_text(error)}")
            session.stats.failed(library, qualified_name(error))


def guard(library: str, tell: Callable[..., _T], *args: Any, **kwargs: Any) -> _T | None:
    """Tell a hook of ours something; where it raises, that is counted, and the answer is None."""
    try:
        return tell(*args, **kwargs)
    except Exception as error:
        failed(library, getattr(tell, "__name__", "hook"), error)
        return None

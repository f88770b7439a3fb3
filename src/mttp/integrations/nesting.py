"""Nested recorders: the outermost one records a call, the recorders inside it do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from opentelemetry import context as otel_context
from opentelemetry.context import Context, attach, detach

from mttp.recording.handle import current

__all__ = [
    "ACTIVE_RECORDERS_KEY",
    "EVERYTHING",
    "ActiveRecorder",
    "active_recorders",
    "is_inside_recorder",
    "is_suppressed",
    "recording_everything",
]

EVERYTHING: Any = object()
"""The key of a recorder that records every environment called inside it."""
ACTIVE_RECORDERS_KEY = otel_context.create_key("mttp-active-recorders")
"""The OpenTelemetry context's key for the active recorders."""
_SUPPRESSED_KEY = otel_context._SUPPRESS_INSTRUMENTATION_KEY
_OLD_SUPPRESSED_KEY = "suppress_instrumentation"
"""The key that older OpenTelemetry instrumentations check."""


class ActiveRecorder(Protocol):
    """A recorder around the current call."""

    @property
    def key(self) -> Any:
        """The recorded environment, or EVERYTHING."""


def active_recorders() -> tuple[ActiveRecorder, ...]:
    """Return the recorders around the current call, outermost first."""
    recorders: tuple[ActiveRecorder, ...] = current().get(ACTIVE_RECORDERS_KEY, ())  # type: ignore[assignment]
    return recorders


def is_suppressed() -> bool:
    """Return whether OpenTelemetry instrumentation is suppressed in the current context."""
    context = current()
    return bool(context.get(_SUPPRESSED_KEY) or context.get(_OLD_SUPPRESSED_KEY))


class _OuterRecorder:
    """A recorder of finished records, inside which no other recorder records an episode."""

    key = EVERYTHING


_OUTER = _OuterRecorder()


def is_inside_recorder() -> bool:
    """Return whether a recorder around the current call records everything inside it, or none may record."""
    return is_suppressed() or any(other.key is EVERYTHING for other in active_recorders())


@contextmanager
def recording_everything() -> Iterator[None]:
    """Let no other recorder record an episode inside the block, in this thread or task."""
    token = attach(Context({**current(), ACTIVE_RECORDERS_KEY: (*active_recorders(), _OUTER)}))
    try:
        yield
    finally:
        detach(token)

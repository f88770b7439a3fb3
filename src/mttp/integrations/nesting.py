"""Who records what is being called: of several that could, the outermost does, and the others are silent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from opentelemetry import context as otel_context

from mttp.recording.handle import current, detach

__all__ = ["EVERYTHING", "WITHIN_KEY", "ActiveRecorder", "covering", "is_suppressed", "within"]

EVERYTHING: Any = object()
"""The key of who records every environment that is called within it."""
WITHIN_KEY = otel_context.create_key("mttp-within")
"""Where the OpenTelemetry context holds those who record what is being called."""
_SUPPRESSED_KEY = otel_context._SUPPRESS_INSTRUMENTATION_KEY
_SUPPRESSED_KEY_OF_OLD = "suppress_instrumentation"
"""What OpenTelemetry's instrumentations look at."""


class ActiveRecorder(Protocol):
    """Who records what is being called."""

    @property
    def key(self) -> Any:
        """The environment that is recorded, or EVERYTHING."""


class _Everything:
    key = EVERYTHING


_EVERYTHING = _Everything()


def within() -> tuple[ActiveRecorder, ...]:
    """Those who record what is being called, outermost first."""
    found: tuple[ActiveRecorder, ...] = current().get(WITHIN_KEY, ())  # type: ignore[assignment]  # ours
    return found


def is_suppressed() -> bool:
    """Whether OpenTelemetry instrumentation is suppressed in the current context."""
    around = current()
    return bool(around.get(_SUPPRESSED_KEY) or around.get(_SUPPRESSED_KEY_OF_OLD))


@contextlib.contextmanager
def covering() -> Iterator[None]:
    """Record whatever environments are called in the block: they stay silent."""
    token = otel_context.attach(otel_context.set_value(WITHIN_KEY, (*within(), _EVERYTHING)))
    try:
        yield
    finally:
        detach(token)

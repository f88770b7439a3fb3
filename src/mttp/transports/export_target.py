"""A transport as one session uses it: what it is given, how much may wait for it, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from mttp.codec.withholding import Withholding

__all__ = ["BUFFER_BYTES", "CLOSE_TIMEOUT", "MAX_BLOCK_SECONDS", "SEGMENT_BYTES", "ExportTarget", "Transport"]

BUFFER_BYTES = 256 * 1024 * 1024
"""What a transport that does not keep up may hold in memory."""
MAX_BLOCK_SECONDS = 1.0
"""Seconds that a full buffer may hold up the caller, per episode."""
SEGMENT_BYTES = 2 * 1024 * 1024
"""What a transport is given at once."""
CLOSE_TIMEOUT = 30.0
"""Seconds that the last spans may take."""


class Transport(Protocol):
    """
    Where segments go. The SDK's exporters have this shape too.

    It may say more of itself by attributes that are named as those of `ExportTarget`.
    """

    def export(self, spans: Sequence[ReadableSpan], /) -> SpanExportResult:
        """Take a segment, or say that it was not taken; may raise `Refused` to say more."""

    def shutdown(self) -> None:
        """Release what is held; nothing is exported afterwards."""


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """A transport, and its part in a session."""

    transport: Transport
    """Where the spans go."""
    address: str
    """What it is called in `session.stats` and in the log."""
    name: str = "exporter"
    """What sort of transport it is: memory, file, otlp, …"""
    withholding: Withholding = field(default_factory=Withholding)
    """What it is not given."""
    sampled: bool = False
    """Whether it gets only what sampling chose."""
    buffer_bytes: int = BUFFER_BYTES
    """How much may wait for it."""
    max_block_seconds: float = MAX_BLOCK_SECONDS
    """Seconds that a full buffer may hold up the caller, per episode."""
    segment_bytes: int = SEGMENT_BYTES
    """What it is given at once."""
    close_timeout: float = CLOSE_TIMEOUT
    """Seconds that the last spans may take."""
    takes_columns: bool = False
    """Whether it is given steps that have no handles in columns, unless their episode says otherwise."""
    owned: bool = True
    """Whether it is released with the session."""

    @classmethod
    def of(
        cls,
        transport: Transport,
        *,
        content: bool | None = None,
        token_ids: bool | None = None,
        redact: Callable[[str, Any], Any] | None = None,
        close_timeout: float | None = None,
    ) -> ExportTarget:
        """The transport as it describes itself, but for what is given here."""
        said = {
            name: getattr(transport, name)
            for name in (
                "name",
                "withholding",
                "sampled",
                "buffer_bytes",
                "max_block_seconds",
                "segment_bytes",
                "close_timeout",
                "takes_columns",
            )
            if hasattr(transport, name)
        }
        target = cls(transport, _address(transport), **said)
        withholding = replace(
            target.withholding,
            content=target.withholding.content if content is None else content,
            token_ids=target.withholding.token_ids if token_ids is None else token_ids,
            redact=redact or target.withholding.redact,
        )
        timeout = target.close_timeout if close_timeout is None else close_timeout
        return replace(target, withholding=withholding, close_timeout=timeout)


def _address(transport: Transport) -> str:
    own = type(transport).__repr__ is not object.__repr__
    return repr(transport) if own else type(transport).__name__

"""A transport with the settings of one session: content, buffer size and time limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from mttp.codec.withholding import Withholding

if TYPE_CHECKING:
    from mttp.transports.spool import Spool

__all__ = [
    "BUFFER_BYTES",
    "CLOSE_TIMEOUT",
    "MAX_BLOCK_SECONDS",
    "SEGMENT_BYTES",
    "ExportTarget",
    "Transport",
    "taking_frames",
]

BUFFER_BYTES = 256 * 1024 * 1024
"""Bytes that the queue of a transport may hold in memory."""
MAX_BLOCK_SECONDS = 1.0
"""Seconds that a full buffer may block the caller, per episode."""
SEGMENT_BYTES = 2 * 1024 * 1024
"""Approximate bytes of one call of `export`."""
CLOSE_TIMEOUT = 30.0
"""Seconds that a closing session waits for the last spans."""


class Transport(Protocol):
    """
    An exporter of spans; the exporters of the OpenTelemetry SDK satisfy it.

    Its attributes named as those of `ExportTarget` are the defaults of a session.
    """

    def export(self, spans: Sequence[ReadableSpan], /) -> SpanExportResult:
        """Export spans; return FAILURE, or raise `PartialExport`, where not all were accepted."""

    def shutdown(self) -> None:
        """Release resources; `export` is not called afterwards."""


_Export = TypeVar("_Export", bound=Callable[..., SpanExportResult])


def taking_frames(export: _Export) -> _Export:
    """
    Mark an `export` that takes spans as frames, too, see `mttp.otlp.frames`.

    A subclass with an `export` of its own gets spans, and so does an object that stands before a transport.
    """
    export.takes_frames = True  # type: ignore[attr-defined]
    return export


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """A transport with the settings of one session."""

    transport: Transport
    """The exporter."""
    address: str
    """Its name in `session.stats` and in the log."""
    name: str = "exporter"
    """The kind of transport: memory, file, otlp, …"""
    withholding: Withholding = field(default_factory=Withholding)
    """The attributes that are withheld from it."""
    sampled: bool = False
    """Whether it receives only sampled episodes."""
    buffer_bytes: int = BUFFER_BYTES
    """Bytes that its queue may hold."""
    max_block_seconds: float = MAX_BLOCK_SECONDS
    """Seconds that a full buffer may block the caller, per episode."""
    segment_bytes: int = SEGMENT_BYTES
    """Approximate bytes of one call of `export`."""
    close_timeout: float = CLOSE_TIMEOUT
    """Seconds that a closing session waits for the last spans."""
    takes_columns: bool = False
    """Whether it takes steps without handles packed in columns."""
    takes_frames: bool = False
    """Whether it takes spans as frames; all others get spans."""
    writes_lines: bool = False
    """Whether it writes frames as JSON, which callers then encode, too."""
    names_outcomes: bool = False
    """Whether names of spans say an episode's outcome and a step's index."""
    spool: Spool | None = None
    """The spool for spans that it does not accept now."""
    owned: bool = True
    """Whether the session shuts it down."""

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
        """Build a target from the attributes of the transport; arguments override them."""
        attributes = {
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
                "writes_lines",
                "names_outcomes",
                "spool",
            )
            if hasattr(transport, name)
        }
        takes_frames = getattr(getattr(type(transport), "export", None), "takes_frames", False)
        target = cls(transport, _address(transport), takes_frames=takes_frames, **attributes)
        withholding = replace(
            target.withholding,
            content=target.withholding.content if content is None else content,
            token_ids=target.withholding.token_ids if token_ids is None else token_ids,
            redact=redact or target.withholding.redact,
        )
        timeout = target.close_timeout if close_timeout is None else close_timeout
        return replace(target, withholding=withholding, close_timeout=timeout)


def _address(transport: Transport) -> str:
    has_repr = type(transport).__repr__ is not object.__repr__
    return repr(transport) if has_repr else type(transport).__name__

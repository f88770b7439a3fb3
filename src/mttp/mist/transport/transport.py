"""Spans as `trace.span` messages, by whichever way they go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.codec.profiles import full
from mttp.codec.withholding import Withholding
from mttp.errors import EnvelopeError, SendError
from mttp.mist import span_messages
from mttp.mist.messages import Message
from mttp.mist.transport.outlets import Outlet
from mttp.model.spans import SpanRecord
from mttp.otlp.spans.span_records import record
from mttp.transports import backoff
from mttp.transports.partial_export import PartialExport, RejectedSpans
from mttp.transports.shrinking import smaller

__all__ = ["NativeTransport", "RemoteTransport"]

_TOO_LARGE = ("too_large", "http_413")


class NativeTransport(SpanExporter):
    """
    Sends each span as messages with a checksum, in order.

    `source` is the program that they name, by default the service of the span's resource.
    """

    name: ClassVar[str] = "mttp"
    """What it is called in counters."""

    def __init__(self, outlet: Outlet, *, source: str = "") -> None:
        self._outlet = outlet
        self._source = source
        self._failures = 0

    @property
    def path(self) -> Path | None:
        """The file or directory that it writes, where it does."""
        return getattr(self._outlet, "path", None)

    @property
    def address(self) -> str | None:
        """Where another process finds the same place; None where it does not."""
        address = self._outlet.address
        if address is None or not self._source:
            return address
        return f"{address}{'&' if '?' in address else '?'}{urlencode({'source': self._source})}"

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans; raises Refused where not all were taken, OSError where the system refuses."""
        lines: list[Message] = []
        send = lines.extend if self._outlet.is_stream else self._outlet.send
        lost: defaultdict[str, list[int]] = defaultdict(list)
        first = trouble = None
        kept: Sequence[ReadableSpan] = ()
        for place, span in enumerate(spans):
            try:
                self._send(span, send)
            except SendError as error:
                first = first or error
                if error.may_pass or error.cause == "closed":
                    trouble, kept = error, spans[place:]
                    break
                lost[error.cause].append(_trace_of(span))
        if lines:
            self._write(lines, spans)
        self._failures = self._failures + 1 if trouble else 0
        if first is None:
            return SpanExportResult.SUCCESS
        raise PartialExport(
            str(first),
            kept=kept,
            rejections=[RejectedSpans(cause, len(ids), len(set(ids))) for cause, ids in lost.items()],
            retry_after=backoff.wait(self._failures, trouble.retry_after) if trouble else None,
        )

    def shutdown(self) -> None:
        """Release what is held; what is being sent over HTTP is broken off."""
        self._outlet.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Nothing waits: every export is sent."""
        return True

    def after_fork(self) -> None:
        """In a forked child: begin anew."""
        self._outlet.after_fork()

    def __repr__(self) -> str:
        return repr(self._outlet)

    def _send(self, span: ReadableSpan, send: Callable[[Sequence[Message]], None]) -> None:
        """Send a span, in the first form that is small enough; raises SendError where none is."""
        too_large: SendError | None = None
        for form in _forms(span):
            try:
                send(self._messages(form))
                return
            except SendError as error:
                if error.cause not in _TOO_LARGE:
                    raise
                too_large = too_large or error
        assert too_large is not None
        raise SendError(f"span {span.name!r}, whatever is left out: {too_large}", cause=too_large.cause)

    def _write(self, lines: Sequence[Message], spans: Sequence[ReadableSpan]) -> None:
        try:
            self._outlet.send(lines)
        except SendError as error:
            raise PartialExport(str(error), kept=spans) from error

    def _messages(self, span: SpanRecord) -> list[Message]:
        try:
            return span_messages.envelop(span, source=self._source)
        except EnvelopeError as error:
            raise SendError(str(error), cause="too_large") from error
        except Exception as error:  # others' spans may hold what no message can
            raise SendError(f"span {span.name!r} can't be a message: {error!r}", cause="invalid") from error


class RemoteTransport(NativeTransport):
    """The transport to another machine: content is withheld by default, and callers never wait."""

    sampled: ClassVar[bool] = True
    """Whether sampling decides what it gets."""
    buffer_bytes: int = 64 * 2**20
    """What may wait for it in memory."""
    max_block_seconds: float = 0.0
    """Seconds that it may hold up the caller."""
    close_timeout: float = 10.0
    """Seconds that the last spans may take."""
    segment_bytes: int = 2**18
    """What it is given at once: after so much of what was sent one by one it is known to be there."""
    withholding = Withholding(content=False, max_elements=4096, max_episode_bytes=2**20)
    """What is kept back of every span."""


def _forms(span: ReadableSpan) -> Iterator[SpanRecord]:
    """The span, and smaller ones."""
    yield _record(span)
    yield from smaller(span, "the span takes more than a message may")


def _record(span: ReadableSpan) -> SpanRecord:
    try:
        return record(span, full)
    except Exception as error:
        raise SendError(f"span {span.name!r} can't be a message: {error!r}", cause="invalid") from error


def _trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return 0 if context is None else context.trace_id

"""Transports that send spans as messages to an outlet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.codec.withholding import Withholding
from mttp.errors import EnvelopeError, SendError
from mttp.mist import span_messages
from mttp.mist.messages import Message
from mttp.mist.transport.outlets import Outlet
from mttp.model.spans import SpanRecord
from mttp.otlp.frames import Frame, record
from mttp.otlp.spans.span_records import framed
from mttp.transports import backoff
from mttp.transports.export_target import taking_frames
from mttp.transports.partial_export import PartialExport, RejectedSpans
from mttp.transports.shrinking import smaller

_TOO_LARGE = ("too_large", "http_413")


class NativeTransport(SpanExporter):
    """
    Sends spans as messages with checksums, in order.

    `source` is the name of the program in the messages; the default is the service of the span's resource.
    """

    name: ClassVar[str] = "mttp"
    """Its name in counters."""

    def __init__(self, outlet: Outlet, *, source: str = "") -> None:
        self._outlet = outlet
        self._source = source
        self._failures = 0

    @property
    def path(self) -> Path | None:
        """Path of the file or directory; None for other outlets."""
        return getattr(self._outlet, "path", None)

    @property
    def address(self) -> str | None:
        """The address for other processes; None if they can't reach it."""
        address = self._outlet.address
        if address is None or not self._source:
            return address
        return f"{address}{'&' if '?' in address else '?'}{urlencode({'source': self._source})}"

    @taking_frames
    def export(self, spans: Sequence[ReadableSpan | Frame]) -> SpanExportResult:
        """Send the spans; raises PartialExport if not all were accepted, and OSError if writing fails."""
        lines: list[Message] = []
        send = lines.extend if self._outlet.is_stream else self._outlet.send
        lost: defaultdict[str, list[int]] = defaultdict(list)
        first = temporary = None
        unsent: Sequence[ReadableSpan | Frame] = ()
        for place, span in enumerate(spans):
            try:
                self._send(_framed(span), send)
            except SendError as error:
                first = first or error
                if error.may_pass or error.cause == "closed":
                    temporary, unsent = error, spans[place:]
                    break
                lost[error.cause].append(_trace_of(span))
        if lines:
            self._write(lines, spans)
        self._failures = self._failures + 1 if temporary else 0
        if first is None:
            return SpanExportResult.SUCCESS
        raise PartialExport(
            str(first),
            kept=unsent,
            rejections=[RejectedSpans(cause, len(ids), len(set(ids))) for cause, ids in lost.items()],
            retry_after=backoff.wait(self._failures, temporary.retry_after) if temporary else None,
        )

    def shutdown(self) -> None:
        """Close the outlet; HTTP requests in progress are aborted."""
        self._outlet.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Return True: `export` sends synchronously."""
        return True

    def after_fork(self) -> None:
        """In a forked child: reopen the outlet."""
        self._outlet.after_fork()

    def __repr__(self) -> str:
        return repr(self._outlet)

    def _send(self, frame: Frame, send: Callable[[Sequence[Message]], None]) -> None:
        """Send a span, reduced until it is small enough; raises SendError if it stays too large."""
        too_large: SendError | None = None
        for form in chain([record(frame)], smaller(frame, "the span is larger than a message may be")):
            try:
                send(self._messages(form))
                return
            except SendError as error:
                if error.cause not in _TOO_LARGE:
                    raise
                too_large = too_large or error
        assert too_large is not None
        raise SendError(
            f"span {form.name!r} is too large even when reduced: {too_large}", cause=too_large.cause
        )

    def _write(self, lines: Sequence[Message], spans: Sequence[ReadableSpan | Frame]) -> None:
        try:
            self._outlet.send(lines)
        except SendError as error:
            raise PartialExport(str(error), kept=spans) from error

    def _messages(self, span: SpanRecord) -> list[Message]:
        try:
            return span_messages.envelop(span, source=self._source)
        except EnvelopeError as error:
            raise SendError(str(error), cause="too_large") from error
        except Exception as error:  # spans of other libraries may have values that messages can't represent
            raise SendError(f"span {span.name!r} can't be a message: {error!r}", cause="invalid") from error


class RemoteTransport(NativeTransport):
    """Sends spans to a receiver over a network: without content by default, and without blocking callers."""

    sampled: ClassVar[bool] = True
    """Whether it receives only sampled episodes."""
    buffer_bytes: int = 64 * 2**20
    """Bytes that its queue may hold."""
    max_block_seconds: float = 0.0
    """Seconds that a full queue may block the caller, per episode."""
    close_timeout: float = 10.0
    """Seconds that a closing session waits for the last spans."""
    segment_bytes: int = 2**18
    """Approximate bytes of one call of `export`; small, since messages are sent one by one."""
    withholding = Withholding(content=False, max_elements=4096, max_episode_bytes=2**20)
    """The attributes that are withheld from every span."""


def _framed(span: ReadableSpan | Frame) -> Frame:
    try:
        return framed(span)
    except Exception as error:
        name = span.name if isinstance(span, ReadableSpan) else ""
        raise SendError(f"span {name!r} can't be a message: {error!r}", cause="invalid") from error


def _trace_of(span: ReadableSpan | Frame) -> int:
    context = span.context if isinstance(span, ReadableSpan) else span
    return 0 if context is None else context.trace_id

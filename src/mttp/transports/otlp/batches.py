"""Splits spans into requests within a size limit, and collects the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan

from mttp.codec.profiles import full
from mttp.model.interrupts import raise_interrupt
from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.encoding import encoder
from mttp.otlp.protobuf import encode_request, encode_span, frame_bytes, span_bytes
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.span_records import Restored, record
from mttp.transports.otlp.answers import ExportResponse
from mttp.transports.partial_export import RejectedSpans
from mttp.transports.shrinking import smaller

__all__ = ["Export"]


class _Frames:
    """Bytes of a request for each scope, without spans."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Scope, int]] = {}

    def bytes(self, scope: Scope) -> int:
        if id(scope) not in self._known:
            self._known[id(scope)] = (scope, frame_bytes(scope))
        return self._known[id(scope)][1]


class _Piece:
    """An encoded span."""

    def __init__(self, span: ReadableSpan, frames: _Frames, message: bytes | None = None) -> None:
        self.span = span
        if message is not None and isinstance(span, (RecordingSpan, Restored)):
            self.scope, self.data = span.scope, message
        else:
            with encoder.here():
                whole = record(span, full)
                self.scope, self.data = whole.scope, encode_span(whole)
        self.size = span_bytes(self.data)
        """Maximum bytes of the span in a request."""
        self._frame = frames.bytes(self.scope)
        self._forms: Iterator[SpanRecord] | None = None

    @property
    def alone(self) -> int:
        """Maximum bytes of a request with only this span."""
        return self._frame + self.size

    def shrink(self) -> bool:
        """Replace the data by the next smaller form; return False if there is none."""
        if self._forms is None:
            reason = f"the span has {len(self.data)} bytes, more than a request may have"
            self._forms = smaller(self.span, reason)
        for form in self._forms:
            data = encode_span(form)
            if len(data) < len(self.data):
                self.data, self.size = data, span_bytes(data)
                return True
        return False


class _Batch:
    """Spans for one request."""

    def __init__(self) -> None:
        self.pieces: list[_Piece] = []
        self._blocks: list[tuple[Scope, list[bytes]]] = []
        self._bytes = 0

    def fits(self, piece: _Piece, max_bytes: int) -> bool:
        """Whether the request with this span stays within the limit."""
        known = self._block(piece) is not None
        return self._bytes + (piece.size if known else piece.alone) <= max_bytes

    def add(self, piece: _Piece) -> None:
        block = self._block(piece)
        self._bytes += piece.alone if block is None else piece.size
        if block is None:
            self._blocks.append((piece.scope, block := []))
        block.append(piece.data)
        self.pieces.append(piece)

    def request(self) -> bytes:
        return encode_request(self._blocks)

    def _block(self, piece: _Piece) -> list[bytes] | None:
        for scope, spans in self._blocks:
            if scope is piece.scope or scope == piece.scope:
                return spans
        return None


@dataclass(slots=True)
class Export:
    """One call of a transport's `export`: its requests and their outcomes."""

    send: Callable[[bytes, int], ExportResponse]
    """Sends a request with a number of spans."""
    max_bytes: int
    """Maximum bytes of a request."""
    kept: list[ReadableSpan] = field(default_factory=list)
    """Spans to export again."""
    lost: dict[str, list[str]] = field(default_factory=dict)
    """The trace id of each rejected span, by cause."""
    retry_after: float | None = None
    """Seconds to wait before the next export."""
    message: str = ""
    """The message of the first answer that has one."""

    def run(self, spans: Sequence[ReadableSpan]) -> None:
        """Send the spans; stop after a temporary failure, and keep the rest."""
        batch, frames = _Batch(), _Frames()
        messages: Sequence[bytes | None] = encoder.messages(spans) or [None] * len(spans)
        for place, (span, written) in enumerate(zip(spans, messages, strict=True)):
            try:
                piece = _Piece(span, frames, written)
            except Exception as error:  # spans of other libraries may be invalid, as with times before 1970
                raise_interrupt(error)
                self._reject("invalid", [_trace_of(span)], f"a span can't be encoded: {error!r}")
                continue
            while piece.alone > self.max_bytes and piece.shrink():
                pass
            if piece.alone > self.max_bytes:
                message = f"a span has {piece.alone} bytes even when reduced"
                self._reject("too_large", [_trace_of(span)], message)
                continue
            if not batch.fits(piece, self.max_bytes):
                self._offer(batch)
                batch = _Batch()
            if self.kept:
                self.kept += spans[place:]
                return
            batch.add(piece)
        self._offer(batch)

    def rejections(self) -> list[RejectedSpans]:
        """Return the rejected spans, by cause."""
        return [RejectedSpans(cause, len(traces), len(set(traces))) for cause, traces in self.lost.items()]

    def _offer(self, batch: _Batch) -> None:
        pieces = batch.pieces
        if not pieces:
            return
        if self.kept:
            self.kept += [piece.span for piece in pieces]
            return
        answer = self.send(batch.request(), len(pieces))
        if answer.verdict == "again":
            self.kept += [piece.span for piece in pieces]
            self.retry_after = answer.retry_after
            self.message = self.message or answer.message
        elif answer.verdict == "smaller":
            self._offer_smaller(pieces, answer)
        elif answer.verdict == "never":
            self._reject(answer.cause, [_trace_of(piece.span) for piece in pieces], answer.message)
        elif answer.rejected:  # which spans is unknown: from as many traces as possible
            traces = [_trace_of(piece.span) for piece in pieces]
            first = list(dict.fromkeys(traces))
            rest = list((Counter(traces) - Counter(first)).elements())
            self._reject("partial_success", [*first, *rest][: answer.rejected], answer.message)
        else:
            self.message = self.message or answer.message

    def _offer_smaller(self, pieces: list[_Piece], answer: ExportResponse) -> None:
        """Send the halves of a request that was too large; reduce a single span."""
        middle = len(pieces) // 2
        if not middle and not pieces[0].shrink():
            self._reject(answer.cause, [_trace_of(pieces[0].span)], answer.message)
            return
        for part in (pieces[:middle], pieces[middle:]):
            batch = _Batch()
            for piece in part:
                batch.add(piece)
            self._offer(batch)

    def _reject(self, cause: str, traces: Sequence[str], message: str) -> None:
        """Count one rejected span for each of these trace ids."""
        self.message = self.message or message
        if traces:
            self.lost.setdefault(cause, []).extend(traces)


def _trace_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return "" if context is None else f"{context.trace_id:032x}"

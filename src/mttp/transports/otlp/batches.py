"""Splits spans into requests within a size limit, and collects the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from opentelemetry.sdk.trace import ReadableSpan

from mttp.model.interrupts import raise_interrupt
from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.encoding import encoder
from mttp.otlp.frames import SCOPES, Frame, messages
from mttp.otlp.protobuf import encode_request, encode_span, frame_bytes, span_bytes
from mttp.otlp.span_fields import by_identity
from mttp.otlp.spans.span_records import framed
from mttp.transports.otlp.answers import ExportResponse
from mttp.transports.partial_export import RejectedSpans
from mttp.transports.shrinking import smaller

__all__ = ["Export"]

_Given: TypeAlias = ReadableSpan | Frame


_head_bytes = by_identity(frame_bytes)
"""Returns the bytes of a request for a scope, without spans."""


class _Piece:
    """An encoded span."""

    def __init__(self, span: _Given, frame: Frame, message: bytes | None) -> None:
        self.span = span
        """The span as it was given."""
        self.trace_id = frame.trace_id
        """Id of its trace."""
        self._frame = frame
        self.scope = SCOPES[frame.scope]
        if message is None:
            with encoder.here():
                (message,) = messages([frame])
        self.data = message
        self.size = span_bytes(self.data)
        """Maximum bytes of the span in a request."""
        self._head = _head_bytes(self.scope)
        self._forms: Iterator[SpanRecord] | None = None

    @property
    def alone(self) -> int:
        """Maximum bytes of a request with only this span."""
        return self._head + self.size

    def shrink(self) -> bool:
        """Replace the data by the next smaller form; return False if there is none."""
        if self._forms is None:
            reason = f"the span has {len(self.data)} bytes, more than a request may have"
            self._forms = smaller(self._frame, reason)
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
    kept: list[_Given] = field(default_factory=list)
    """Spans to export again."""
    lost: dict[str, list[int]] = field(default_factory=dict)
    """The trace id of each rejected span, by cause."""
    retry_after: float | None = None
    """Seconds to wait before the next export."""
    message: str = ""
    """The message of the first answer that has one."""

    def run(self, spans: Sequence[_Given]) -> None:
        """Send the spans; stop after a temporary failure, and keep the rest."""
        batch = _Batch()
        pairs = [(span, frame) for span in spans if (frame := self._framed(span)) is not None]
        written: Sequence[bytes | None] = encoder.messages([frame for _, frame in pairs]) or (
            [None] * len(pairs)
        )
        for place, ((span, frame), message) in enumerate(zip(pairs, written, strict=True)):
            try:
                piece = _Piece(span, frame, message)
            except Exception as error:  # spans of other libraries may be invalid, as with times before 1970
                raise_interrupt(error)
                self._invalid(frame.trace_id, error)
                continue
            while piece.alone > self.max_bytes and piece.shrink():
                pass
            if piece.alone > self.max_bytes:
                reason = f"a span has {piece.alone} bytes even when reduced"
                self._reject("too_large", [frame.trace_id], reason)
                continue
            if not batch.fits(piece, self.max_bytes):
                self._offer(batch)
                batch = _Batch()
            if self.kept:
                self.kept += [span for span, _ in pairs[place:]]
                return
            batch.add(piece)
        self._offer(batch)

    def _framed(self, span: _Given) -> Frame | None:
        try:
            return framed(span)
        except Exception as error:
            raise_interrupt(error)
            context = span.context if isinstance(span, ReadableSpan) else None
            self._invalid(0 if context is None else context.trace_id, error)
            return None

    def _invalid(self, trace_id: int, error: Exception) -> None:
        self._reject("invalid", [trace_id], f"a span can't be encoded: {error!r}")

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
            self._reject(answer.cause, [piece.trace_id for piece in pieces], answer.message)
        elif answer.rejected:  # which spans is unknown: from as many traces as possible
            traces = [piece.trace_id for piece in pieces]
            first = list(dict.fromkeys(traces))
            rest = list((Counter(traces) - Counter(first)).elements())
            self._reject("partial_success", [*first, *rest][: answer.rejected], answer.message)
        else:
            self.message = self.message or answer.message

    def _offer_smaller(self, pieces: list[_Piece], answer: ExportResponse) -> None:
        """Send the halves of a request that was too large; reduce a single span."""
        middle = len(pieces) // 2
        if not middle and not pieces[0].shrink():
            self._reject(answer.cause, [pieces[0].trace_id], answer.message)
            return
        for part in (pieces[:middle], pieces[middle:]):
            batch = _Batch()
            for piece in part:
                batch.add(piece)
            self._offer(batch)

    def _reject(self, cause: str, traces: Sequence[int], message: str) -> None:
        """Count one rejected span for each of these trace ids."""
        self.message = self.message or message
        if traces:
            self.lost.setdefault(cause, []).extend(traces)

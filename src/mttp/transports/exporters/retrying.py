"""The base class of the HTTP and gRPC exporters: one request per batch, retried until the timeout."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.codec.secrets import without_secrets
from mttp.model import clock
from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.otlp.protobuf import encode_spans
from mttp.transports import backoff
from mttp.transports.otlp.answers import ExportResponse, OtlpSender

__all__ = ["RetryingExporter"]

_MAX_REQUEST_SIZE = 64 << 20


class RetryingExporter(SpanExporter):
    """Sends each batch as one request; `timeout` is in seconds and covers all attempts."""

    def __init__(self, sender: OtlpSender, place: str, timeout: float, max_request_size: int | None) -> None:
        self._sender, self._place, self._timeout = sender, without_secrets(place), timeout
        self._max_request_size = _MAX_REQUEST_SIZE if max_request_size is None else max_request_size
        self._closing = threading.Event()
        self._warned = ""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans; return FAILURE and log an error when the receiver does not accept them."""
        try:
            request = encode_spans(spans)
        except Exception as error:  # spans of other libraries may be invalid
            raise_interrupt(error)
            return self._failed(spans, f"they can't be encoded: {error!r}")
        if 0 < self._max_request_size < len(request):
            limit = f"max_request_size is {self._max_request_size:,}"
            return self._failed(spans, f"the request has {len(request):,} bytes, and {limit}")
        if self._closing.is_set():
            return self._failed(spans, "the exporter is shut down")
        answer = self._send(request, len(spans))
        if answer.verdict != "taken":
            return self._failed(spans, answer.message)
        self._warn(answer)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the connection and stop retrying; a second call does nothing."""
        self._closing.set()
        self._sender.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Return True: `export` sends synchronously."""
        return True

    def _send(self, request: bytes, spans: int) -> ExportResponse:
        """Send a request until it is accepted, rejected or out of time; return the last response."""
        until, failures = clock.seconds() + self._timeout, 0
        while True:
            answer = self._sender.send(request, spans, max(until - clock.seconds(), 0.001))
            if answer.verdict != "again":
                return answer
            failures += 1
            wait = backoff.wait(failures, answer.retry_after)
            if clock.seconds() + wait > until or self._closing.wait(wait):
                return answer

    def _failed(self, spans: Sequence[ReadableSpan], reason: str) -> SpanExportResult:
        log.error("mttp: %s: spans not delivered: %d: %s", self._place, len(spans), reason)
        return SpanExportResult.FAILURE

    def _warn(self, answer: ExportResponse) -> None:
        """Log the receiver's message about an accepted request; a repeated message is logged once."""
        rejected = f"spans rejected: {answer.rejected}" if answer.rejected else ""
        message = ": ".join(filter(None, (rejected, answer.message)))
        if message and message != self._warned:
            log.warning("mttp: %s: %s", self._place, message)
        self._warned = message

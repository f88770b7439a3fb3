"""OTLP over gRPC, by the official exporter's channel; what it sends is encoded already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mttp.transports.otlp.answers import Answer, partly
from mttp.transports.otlp.settings import Settings
from mttp.transports.replies import MESSAGE_CHARACTERS

__all__ = ["GrpcSender"]

_AGAIN = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
    }
)
_COMPRESSIONS = {
    "none": grpc.Compression.NoCompression,
    "gzip": grpc.Compression.Gzip,
    "deflate": grpc.Compression.Deflate,
}
_ADVICE = {
    grpc.StatusCode.UNAUTHENTICATED: "give credentials as headers",
    grpc.StatusCode.PERMISSION_DENIED: "give credentials as headers",
}
_SIGNS_OF_HTTP = ("Failed parsing HTTP/2", "http1", "http2 header with status", "Socket closed")
_SIGNS_OF_TLS = ("SSL", "TLS", "handshake", "certificate")


class GrpcSender:
    """Sends requests to one host and port."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._closed = False
        self._exporter: Any = self._connected()

    def _connected(self) -> OTLPSpanExporter:
        settings = self._settings
        return OTLPSpanExporter(
            endpoint=f"{'https' if settings.secure else 'http'}://{settings.endpoint}",
            insecure=not settings.secure,
            credentials=_credentials(settings),
            headers=dict(settings.headers),
            timeout=settings.timeout,
            compression=_COMPRESSIONS[settings.compression],
        )

    def send(self, request: bytes, spans: int) -> Answer:
        """Call the receiver once: the exporter's own `export` would encode, wait and try again."""
        exporter, message = self._exporter, ExportTraceServiceRequest.FromString(request)
        try:
            response = exporter._client.Export(
                request=message, metadata=exporter._headers, timeout=exporter._timeout
            )
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and not self._closed:
                exporter.shutdown()  # a new channel tries at once, where the old one would wait its time
                self._exporter = self._connected()
            return _refusal(error)
        except ValueError as error:  # the channel was closed meanwhile
            return Answer(verdict="again", cause="shutdown", message=str(error))
        found = response.partial_success
        return partly(found.rejected_spans, spans, found.error_message)

    def close(self) -> None:
        """Close the channel, which ends a call that waits."""
        self._closed = True
        self._exporter.shutdown()


def _credentials(settings: Settings) -> Any:
    """What TLS is done with; None leaves it to the exporter, and to the variables that it knows."""
    if not settings.secure or not (settings.certificate or settings.client_certificate):
        return None
    key = settings.client_key or settings.client_certificate
    paths = (settings.certificate, key, settings.client_certificate)
    return grpc.ssl_channel_credentials(*[Path(path).read_bytes() if path else None for path in paths])


def _refusal(error: Any) -> Answer:
    code, details = error.code(), str(error.details() or "")
    message = f"{code.name}: {details[:MESSAGE_CHARACTERS]}{_advice(code, details)}"
    cause = f"grpc_{code.name.lower()}"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return Answer(verdict="smaller", cause=cause, message=message)
    if code in _AGAIN:
        return Answer(verdict="again", cause=cause, message=message, retry_after=_retry_after(error))
    return Answer(verdict="never", cause=cause, message=message)


def _advice(code: Any, details: str) -> str:
    if code in _ADVICE:
        return f" ({_ADVICE[code]})"
    if any(sign in details for sign in _SIGNS_OF_HTTP):
        return " (does an HTTP receiver listen there? then write http://, or https:// with TLS)"
    if any(sign in details for sign in _SIGNS_OF_TLS):
        return " (check certificates, and whether the receiver uses TLS: grpcs:// does, grpc:// does not)"
    return ""


def _retry_after(error: Any) -> float | None:
    """What the receiver says of when to try again: RetryInfo, by itself or in the status."""
    trailing = dict(error.trailing_metadata() or ())
    found = RetryInfo()
    if raw := trailing.get("google.rpc.retryinfo-bin"):
        found.ParseFromString(raw)
    elif raw := trailing.get("grpc-status-details-bin"):
        if not any(detail.Unpack(found) for detail in Status.FromString(raw).details):
            return None
    else:
        return None
    return float(found.retry_delay.seconds + found.retry_delay.nanos / 1e9)

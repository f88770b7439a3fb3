"""OTLP over gRPC, by the official exporter's channel; what it sends is encoded already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mttp import regular_files
from mttp.transports.options import MAX_CERTIFICATE
from mttp.transports.otlp.answers import Answer, partly
from mttp.transports.otlp.settings import Settings
from mttp.wire.replies import LONGEST_WAIT, MESSAGE_CHARACTERS

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
    grpc.StatusCode.RESOURCE_EXHAUSTED: "it is busy, or limits how much it takes: send less, or later",
    grpc.StatusCode.UNIMPLEMENTED: "something else than a receiver of traces is there: check the port",
}
_TLS = "check certificates, and whether the receiver uses TLS: grpcs:// does, grpc:// does not"
_HTTP = "does an HTTP receiver listen there? then write http://, or https:// with TLS"
_NAME = ("the host's name is unknown", "check the address")
_TROUBLES = {
    "Failed parsing HTTP/2": ("what answers there does not speak gRPC", _HTTP),
    "http1": ("what answers there does not speak gRPC", _HTTP),
    "http2 header with status": ("what answers there does not speak gRPC", _HTTP),
    "CERTIFICATE_VERIFY_FAILED": (
        "its certificate can't be trusted",
        f"certificate=FILE names whose certificates are trusted; {_TLS}",
    ),
    "Hostname Verification": ("its certificate is of another host", f"write the host's own name; {_TLS}"),
    "WRONG_VERSION_NUMBER": ("what answers there does not speak TLS", _TLS),
    "Connection refused": (
        "nobody listens there (connection refused)",
        "is a receiver running there, and is this its port? OTLP over gRPC is mostly at 4317",
    ),
    "lookup failed": _NAME,
    "DNS resolution failed": _NAME,
    "Connection reset": ("the connection was closed without an answer", f"{_TLS}; {_HTTP}"),
    "Socket closed": ("the connection was closed without an answer", f"{_TLS}; {_HTTP}"),
}
"""What is wrong and what to try, by what gRPC says among much else."""
_DEADLINE = "Deadline Exceeded"
"""What gRPC says itself of a call that took too long; a receiver may say the same of its own."""
_SIGNS_OF_TLS = ("SSL", "TLS", "Tls", "handshake", "certificate")


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
            return _refusal(error, self._settings.timeout)
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
    found = [regular_files.read(Path(path), MAX_CERTIFICATE) if path else None for path in paths]
    return grpc.ssl_channel_credentials(*found)


def _refusal(error: Any, timeout: float) -> Answer:
    code, details = error.code(), str(error.details() or "")
    message, cause = _message(code, details, timeout), f"grpc_{code.name.lower()}"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return Answer(verdict="smaller", cause=cause, message=message)
    if code in _AGAIN:
        return Answer(verdict="again", cause=cause, message=message, retry_after=_retry_after(error))
    return Answer(verdict="never", cause=cause, message=message)


def _message(code: Any, details: str, timeout: float) -> str:
    """What is wrong, in the receiver's words unless these are gRPC's own, and what to try."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and details == _DEADLINE:
        return f"{code.name}: no answer within {timeout:g} seconds; timeout=N waits longer; {_TLS}; {_HTTP}"
    if code is grpc.StatusCode.UNAVAILABLE:
        for sign, (said, advice) in _TROUBLES.items():
            if sign in details:
                return f"{code.name}: {said}; {advice}"
    advice = _ADVICE.get(code, _TLS if any(sign in details for sign in _SIGNS_OF_TLS) else "")
    return f"{code.name}: {details[:MESSAGE_CHARACTERS]}" + (f" ({advice})" if advice else "")


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
    return min(float(found.retry_delay.seconds + found.retry_delay.nanos / 1e9), LONGEST_WAIT)

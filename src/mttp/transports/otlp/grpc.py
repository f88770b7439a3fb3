"""OTLP over gRPC: one call with bytes that are encoded already, and every answer has one outcome."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from mttp.model.version import __version__
from mttp.otlp import regular_files
from mttp.otlp.replies import LONGEST_WAIT, MESSAGE_CHARACTERS, printable
from mttp.transports.options import MAX_CERTIFICATE
from mttp.transports.otlp.answers import ExportResponse, partly
from mttp.transports.otlp.settings import Settings

__all__ = ["COMPRESSIONS", "GrpcSender"]

_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
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
COMPRESSIONS = {
    "none": grpc.Compression.NoCompression,
    "gzip": grpc.Compression.Gzip,
    "deflate": grpc.Compression.Deflate,
}
"""What gRPC calls each compression."""
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
_DETAILS = 4096
"""Characters of what gRPC says that are looked at."""
_DEADLINE = "Deadline Exceeded"
"""What gRPC says itself of a call that took too long; a receiver may say the same of its own."""
_SIGNS_OF_TLS = ("SSL", "TLS", "Tls", "handshake", "certificate")


_FOREIGN: list[Any] = []
"""Channels of parent processes: to close one would concern threads that aren't here."""


class GrpcSender:
    """Calls one host and port; `credentials` and `channel` are gRPC's own, where a program has some."""

    def __init__(self, settings: Settings, *, credentials: Any = None, channel: Any = ()) -> None:
        self._settings = settings
        self._headers = tuple(settings.headers.items())
        self._credentials = (credentials or _credentials(settings)) if settings.secure else None
        self._options = [*channel, ("grpc.primary_user_agent", f"mttp/{__version__}")]
        self._closed = False
        self._connect()

    def _connect(self) -> None:
        self._process = os.getpid()
        place, options = self._settings.endpoint, self._options
        compression = COMPRESSIONS[self._settings.compression]
        if self._credentials is None:
            self._channel = grpc.insecure_channel(place, options, compression)
        else:
            self._channel = grpc.secure_channel(place, self._credentials, options, compression)
        self._call = self._channel.unary_unary(_METHOD)  # of bytes, as nothing is said to serialize

    def send(self, request: bytes, spans: int, timeout: float | None = None) -> ExportResponse:
        """Call the receiver."""
        timeout = self._settings.timeout if timeout is None else timeout
        if self._process != os.getpid():
            _FOREIGN.append(self._channel)
            self._connect()
        try:
            response = self._call(request, metadata=self._headers, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and not self._closed:
                self._channel.close()  # a new channel tries at once, where the old one would wait its time
                self._connect()
            return _refusal(error, timeout, self._settings.headers)
        except ValueError as error:  # the channel was closed meanwhile
            return ExportResponse(verdict="again", cause="shutdown", message=str(error))
        try:
            found = ExportTraceServiceResponse.FromString(response).partial_success
        except DecodeError:  # the status says that the request was taken
            return ExportResponse(verdict="taken")
        return partly(found.rejected_spans, spans, found.error_message, self._settings.headers)

    def close(self) -> None:
        """Close the channel, which ends a call that waits."""
        self._closed = True
        if self._process == os.getpid():
            self._channel.close()


def _credentials(settings: Settings) -> Any:
    """The files of the settings, and for a certificate without a key one that holds both."""
    key = settings.client_key or settings.client_certificate
    paths = (settings.certificate, key, settings.client_certificate)
    found = [regular_files.read(Path(path), MAX_CERTIFICATE) if path else None for path in paths]
    return grpc.ssl_channel_credentials(*found)


def _refusal(error: Any, timeout: float, sent: Mapping[str, str]) -> ExportResponse:
    code, details = error.code(), printable(str(error.details() or "").encode(), sent, _DETAILS)
    message, cause = _message(code, details, timeout), f"grpc_{code.name.lower()}"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return ExportResponse(verdict="smaller", cause=cause, message=message)
    if code in _AGAIN:
        return ExportResponse(verdict="again", cause=cause, message=message, retry_after=_retry_after(error))
    return ExportResponse(verdict="never", cause=cause, message=message)


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
    try:
        if raw := trailing.get("google.rpc.retryinfo-bin"):
            found.ParseFromString(raw)
        else:
            details = Status.FromString(trailing.get("grpc-status-details-bin", b"")).details
            if not any(detail.Unpack(found) for detail in details):
                return None
    except DecodeError:
        return None
    return min(max(float(found.retry_delay.seconds + found.retry_delay.nanos / 1e9), 0.0), LONGEST_WAIT)

"""Sends encoded OTLP requests over gRPC, and interprets the answers."""

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
"""gRPC's constants by name of the compression."""
_ADVICE = {
    grpc.StatusCode.UNAUTHENTICATED: "give credentials as headers",
    grpc.StatusCode.PERMISSION_DENIED: "give credentials as headers",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "the receiver is busy, or has a rate limit: send less, or later",
    grpc.StatusCode.UNIMPLEMENTED: "the server is not a receiver of traces: check the port",
}
_TLS = "check certificates, and whether the receiver uses TLS: grpcs:// does, grpc:// does not"
_HTTP = "if it is an HTTP receiver, write http://, or https:// with TLS"
_NAME = ("unknown host name", "check the address")
_CONNECTION_ERRORS = {
    "Failed parsing HTTP/2": ("the server does not speak gRPC", _HTTP),
    "http1": ("the server does not speak gRPC", _HTTP),
    "http2 header with status": ("the server does not speak gRPC", _HTTP),
    "CERTIFICATE_VERIFY_FAILED": (
        "its certificate can't be trusted",
        f"certificate=FILE names a file of trusted certificates; {_TLS}",
    ),
    "Hostname Verification": (
        "its certificate is for another host",
        f"use the host name of the certificate; {_TLS}",
    ),
    "WRONG_VERSION_NUMBER": ("the server does not speak TLS", _TLS),
    "Connection refused": (
        "connection refused",
        "is a receiver running there, and is this its port? the usual port of OTLP over gRPC is 4317",
    ),
    "lookup failed": _NAME,
    "DNS resolution failed": _NAME,
    "Connection reset": ("the connection was closed without an answer", f"{_TLS}; {_HTTP}"),
    "Socket closed": ("the connection was closed without an answer", f"{_TLS}; {_HTTP}"),
}
"""Description and suggestion, by a part of gRPC's error details."""
_DETAILS = 4096
"""Maximum characters of gRPC's error details."""
_DEADLINE = "Deadline Exceeded"
"""gRPC's own details of a call that exceeded its timeout."""
_SIGNS_OF_TLS = ("SSL", "TLS", "Tls", "handshake", "certificate")


_FOREIGN: list[Any] = []
"""Channels of parent processes, never closed: their threads do not exist in a child."""


class GrpcSender:
    """Calls one host and port; `credentials` and `channel` are gRPC credentials and options."""

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
        self._call = self._channel.unary_unary(_METHOD)  # takes and returns bytes

    def send(self, request: bytes, spans: int, timeout: float | None = None) -> ExportResponse:
        """Call the receiver and return the outcome."""
        timeout = self._settings.timeout if timeout is None else timeout
        if self._process != os.getpid():
            _FOREIGN.append(self._channel)
            self._connect()
        try:
            response = self._call(request, metadata=self._headers, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and not self._closed:
                self._channel.close()  # a new channel connects at once, the old one would back off
                self._connect()
            return _refusal(error, timeout, self._settings.headers)
        except ValueError as error:  # the channel was closed by another thread
            return ExportResponse(verdict="again", cause="shutdown", message=str(error))
        try:
            partial = ExportTraceServiceResponse.FromString(response).partial_success
        except DecodeError:  # the status is a success
            return ExportResponse(verdict="taken")
        return partly(partial.rejected_spans, spans, partial.error_message, self._settings.headers)

    def close(self) -> None:
        """Close the channel, which cancels a call in progress."""
        self._closed = True
        if self._process == os.getpid():
            self._channel.close()


def _credentials(settings: Settings) -> Any:
    """Return credentials from the files; a certificate without a key file must have its key."""
    key = settings.client_key or settings.client_certificate
    paths = (settings.certificate, key, settings.client_certificate)
    contents = [regular_files.read(Path(path), MAX_CERTIFICATE) if path else None for path in paths]
    return grpc.ssl_channel_credentials(*contents)


def _refusal(error: Any, timeout: float, sent: Mapping[str, str]) -> ExportResponse:
    code, details = error.code(), printable(str(error.details() or "").encode(), sent, _DETAILS)
    message, cause = _message(code, details, timeout), f"grpc_{code.name.lower()}"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return ExportResponse(verdict="smaller", cause=cause, message=message)
    if code in _AGAIN:
        return ExportResponse(verdict="again", cause=cause, message=message, retry_after=_retry_after(error))
    return ExportResponse(verdict="never", cause=cause, message=message)


def _message(code: Any, details: str, timeout: float) -> str:
    """Return the error message with a suggestion."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and details == _DEADLINE:
        return f"{code.name}: no answer within {timeout:g} seconds; timeout=N waits longer; {_TLS}; {_HTTP}"
    if code is grpc.StatusCode.UNAVAILABLE:
        for sign, (description, advice) in _CONNECTION_ERRORS.items():
            if sign in details:
                return f"{code.name}: {description}; {advice}"
    advice = _ADVICE.get(code, _TLS if any(sign in details for sign in _SIGNS_OF_TLS) else "")
    if code is grpc.StatusCode.UNIMPLEMENTED and "compress" in details.lower():
        advice = "the receiver does not know this compression: write compression=gzip or compression=none"
    return f"{code.name}: {details[:MESSAGE_CHARACTERS]}" + (f" ({advice})" if advice else "")


def _retry_after(error: Any) -> float | None:
    """Return the delay of RetryInfo, which is in its own metadata or in the status."""
    trailing = dict(error.trailing_metadata() or ())
    retry = RetryInfo()
    try:
        if raw := trailing.get("google.rpc.retryinfo-bin"):
            retry.ParseFromString(raw)
        else:
            details = Status.FromString(trailing.get("grpc-status-details-bin", b"")).details
            if not any(detail.Unpack(retry) for detail in details):
                return None
    except DecodeError:
        return None
    return min(max(float(retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9), 0.0), LONGEST_WAIT)

"""OTLP over HTTP: a request is posted once, and every answer has one outcome."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping

from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from mttp.otlp.http_client import HttpClient, NoReply, Reply
from mttp.otlp.replies import ADVICE, is_page, redacted, seconds_to_wait
from mttp.otlp.request_errors import Kind, RequestError
from mttp.transports.otlp.answers import ExportResponse, partly
from mttp.transports.otlp.settings import Settings

__all__ = ["HttpSender"]

_AGAIN = frozenset({429, 502, 503, 504})
_TOO_LARGE = 413
_BODY_BYTES = 4 << 20
"""What is read of an answer: a message of any length may follow the number of spans that were rejected."""
_ADVICE = ADVICE | {
    400: "does it take OTLP protobuf there? and where it wants TLS, write https://",
    404: "check the path, which should end in /v1/traces",
    405: "check port and path: something else than a receiver of traces is there",
    413: "it takes no request of this size: raise its limit, or write profile=strict, which sends less",
    415: "does it take OTLP protobuf?",
    422: "does it ask for a header? MLflow wants x-mlflow-experiment-id: write profile=mlflow",
    429: "it is busy, or limits how much it takes: send less, or later",
}
_PAGE = "a page for people: is a proxy or a user interface at that port?"
_REDIRECT = "write the address that it leads to"
_ADVICE_PLAIN: dict[Kind, str] = {
    "name": "check the address",
    "nobody": "is a receiver running there, and is this its port? OTLP over HTTP is mostly at 4318",
    "timeout": "timeout=N waits longer; is it a receiver of OTLP?",
    "closed": "does it use TLS? then write https://; does it speak gRPC? then grpc://",
    "foreign": "does a gRPC receiver listen there? then write grpc://, or grpcs:// with TLS",
}
_TLS = "check certificates, and whether the receiver uses TLS: https:// does, http:// does not"
_ADVICE_SECURE: dict[Kind, str] = _ADVICE_PLAIN | {
    "timeout": f"timeout=N waits longer; or {_TLS}",
    "closed": f"is it a receiver of OTLP? {_TLS}",
    "untrusted": f"certificate=FILE names whose certificates are trusted; {_TLS}",
    "no_tls": _TLS,
    "tls": _TLS,
    "foreign": "does a gRPC receiver listen there? then write grpcs://",
}


class HttpSender:
    """Sends requests to one URL."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._headers = {"content-type": "application/x-protobuf", **settings.headers}
        if settings.compression != "none":
            self._headers["content-encoding"] = settings.compression
        self._client = HttpClient(settings.endpoint, tls=settings.tls() if settings.secure else None)

    def send(self, request: bytes, spans: int, timeout: float | None = None) -> ExportResponse:
        """Post a request."""
        url, body = self._settings.endpoint, self._compressed(request)
        timeout = self._settings.timeout if timeout is None else timeout
        try:
            reply = self._client.request(
                url, body, headers=self._headers, timeout=timeout, max_bytes=_BODY_BYTES
            )
        except NoReply as error:
            return _unanswered(error.trouble, secure=self._settings.secure)
        return self._answer(reply, spans)

    def close(self) -> None:
        """Release the connection; a request that is being answered ends at its timeout."""
        self._client.close()

    def _compressed(self, request: bytes) -> bytes:
        if self._settings.compression == "gzip":
            return gzip.compress(request)
        return zlib.compress(request) if self._settings.compression == "deflate" else request

    def _answer(self, reply: Reply, spans: int) -> ExportResponse:
        status, kind = reply.status, reply.headers.get("content-type", "")
        is_success = 200 <= status < 300
        is_html = "html" in kind or ("protobuf" not in kind and is_page(reply.body))
        if is_success and not is_html:
            return _taken(kind, reply.body, spans, self._headers)
        said = reply.said(self._headers, _words(kind, reply.body))
        advice = _PAGE if is_success else _advice(status, redacted(reply.location, self._headers))
        message, cause = f"{said} ({advice})", f"http_{status}"
        if is_success:
            return ExportResponse(verdict="never", cause="not_otlp", message=message)
        if status in _AGAIN:
            after = seconds_to_wait(reply.headers.get("retry-after", ""))
            return ExportResponse(verdict="again", cause=cause, message=message, retry_after=after)
        return ExportResponse(
            verdict="smaller" if status == _TOO_LARGE else "never", cause=cause, message=message
        )


def _advice(status: int, location: str) -> str:
    """What to try where a request was turned down."""
    if location:
        return f"it leads to {location}: {_REDIRECT}"
    return _ADVICE.get(status, "its own log may say why" if status >= 500 else "is it a receiver of OTLP?")


def _taken(kind: str, body: bytes, spans: int, sent: Mapping[str, str]) -> ExportResponse:
    """
    The request was taken, but for the spans that the body says were rejected.

    A body is taken for protobuf unless it is said to be JSON; one that is neither says nothing.
    """
    try:
        found = _response(kind, body).partial_success
    except (DecodeError, ParseError):
        return ExportResponse(verdict="taken")
    return partly(found.rejected_spans, spans, found.error_message, sent)


def _response(kind: str, body: bytes) -> ExportTraceServiceResponse:
    response = ExportTraceServiceResponse()
    if "json" in kind:
        Parse(body or b"{}", response, ignore_unknown_fields=True)
    else:
        response.ParseFromString(body)
    return response


def _words(kind: str, body: bytes) -> bytes:
    """What the receiver says, of a body in protobuf or text."""
    if "protobuf" not in kind:
        return body
    try:
        return str(Status.FromString(body).message).encode()
    except DecodeError:
        return b""


def _unanswered(found: RequestError, *, secure: bool) -> ExportResponse:
    """Why there is no answer, and what may be wrong."""
    advice = (_ADVICE_SECURE if secure else _ADVICE_PLAIN).get(found.kind, "is a receiver of OTLP there?")
    return ExportResponse(verdict="again", cause=found.cause, message=f"{found.said}; {advice}")

"""Sends OTLP requests over HTTP, and interprets the answers."""

from __future__ import annotations

import gzip
import zlib

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from mttp.otlp.http_client import HttpClient, NoReply, Reply
from mttp.otlp.replies import ADVICE, is_page, redacted, seconds_to_wait
from mttp.otlp.request_errors import Kind, RequestError
from mttp.transports.otlp.answers import ExportResponse, partly
from mttp.transports.otlp.http_answers import otlp_answer
from mttp.transports.otlp.settings import Settings

__all__ = ["HttpSender"]

_AGAIN = frozenset({429, 502, 503, 504})
_TOO_LARGE = 413
_BODY_BYTES = 4 << 20
"""Maximum bytes read of an answer, whose error message may be long."""
_ADVICE = ADVICE | {
    400: "does the server accept OTLP protobuf there? if it needs TLS, write https://",
    404: "check the path, which should end in /v1/traces",
    405: "check port and path: the server is not a receiver of traces",
    413: "the receiver's limit is smaller: raise it, or write profile=strict, which sends less",
    415: "does the server accept OTLP protobuf?",
    422: "is a header missing? MLflow needs x-mlflow-experiment-id: write profile=mlflow",
    429: "the receiver is busy, or has a rate limit: send less, or later",
}
_PAGE = "an HTML page: is a proxy or a user interface at that port?"
_NO_ANSWER = "not an answer of OTLP: is another server at that port or path?"
_ADVICE_PLAIN: dict[Kind, str] = {
    "name": "check the address",
    "refused": "is a receiver running there, and is this its port? the usual port of OTLP over HTTP is 4318",
    "timeout": "timeout=N waits longer; is it an OTLP receiver?",
    "closed": "if the receiver uses TLS, write https://; if it speaks gRPC, write grpc://",
    "foreign": "if it is a gRPC receiver, write grpc://, or grpcs:// with TLS",
}
_TLS = "check certificates, and whether the receiver uses TLS: https:// does, http:// does not"
_ADVICE_SECURE: dict[Kind, str] = _ADVICE_PLAIN | {
    "timeout": f"timeout=N waits longer; or {_TLS}",
    "closed": f"is it an OTLP receiver? {_TLS}",
    "untrusted": f"certificate=FILE names a file of trusted certificates; {_TLS}",
    "no_tls": _TLS,
    "tls": _TLS,
    "foreign": "if it is a gRPC receiver, write grpcs://",
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
        """Post a request and return the outcome."""
        url, body = self._settings.endpoint, self._compressed(request)
        timeout = self._settings.timeout if timeout is None else timeout
        try:
            reply = self._client.request(
                url, body, headers=self._headers, timeout=timeout, max_bytes=_BODY_BYTES
            )
        except NoReply as error:
            return _unanswered(error.error, secure=self._settings.secure)
        return self._answer(reply, spans)

    def close(self) -> None:
        """Close idle connections; a request in progress ends at its timeout."""
        self._client.close()

    def _compressed(self, request: bytes) -> bytes:
        if self._settings.compression == "gzip":
            return gzip.compress(request)
        return zlib.compress(request) if self._settings.compression == "deflate" else request

    def _answer(self, reply: Reply, spans: int) -> ExportResponse:
        status, kind = reply.status, reply.headers.get("content-type", "")
        if 200 <= status < 300:
            return self._success(reply, spans)
        summary = reply.summary(self._headers, _error_message(kind, reply.body))
        advice = _advice(status, redacted(reply.location, self._headers))
        message, cause = f"{summary} ({advice})", f"http_{status}"
        if status in _AGAIN:
            after = seconds_to_wait(reply.headers.get("retry-after", ""))
            return ExportResponse(verdict="again", cause=cause, message=message, retry_after=after)
        return ExportResponse(
            verdict="smaller" if status == _TOO_LARGE else "never", cause=cause, message=message
        )

    def _success(self, reply: Reply, spans: int) -> ExportResponse:
        """Return the outcome of a success, if the body is an OTLP answer or was cut off."""
        answer, page = otlp_answer(reply.body), is_page(reply.body)
        if answer is not None:
            part = answer.partial_success
            return partly(part.rejected_spans, spans, part.error_message, self._headers)
        if reply.cut is not None and len(reply.body) < _BODY_BYTES and not page:
            return ExportResponse(verdict="taken")
        message = f"{reply.summary(self._headers)} ({_PAGE if page else _NO_ANSWER})"
        return ExportResponse(verdict="never", cause="not_otlp", message=message)


def _advice(status: int, location: str) -> str:
    """Return a suggestion for a rejected request."""
    if location:
        return f"redirects to {location}: use that address"
    return _ADVICE.get(status, "see the receiver's log" if status >= 500 else "is it an OTLP receiver?")


def _error_message(kind: str, body: bytes) -> bytes:
    """Return the error message in a body, which is protobuf or text."""
    if "protobuf" not in kind:
        return body
    try:
        return str(Status.FromString(body).message).encode()
    except DecodeError:
        return b""


def _unanswered(failure: RequestError, *, secure: bool) -> ExportResponse:
    """Return the outcome of a request without an answer, with a suggestion."""
    advice = (_ADVICE_SECURE if secure else _ADVICE_PLAIN).get(
        failure.kind, "is an OTLP receiver running there?"
    )
    return ExportResponse(verdict="again", cause=failure.cause, message=f"{failure.message}; {advice}")

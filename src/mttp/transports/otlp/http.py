"""OTLP over HTTP, by the official exporter; what it sends is encoded already, and every answer is seen."""

from __future__ import annotations

import gzip
import logging
import math
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import requests
import urllib3
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression, trace_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan

from mttp.transports.otlp.answers import Answer, partly
from mttp.transports.otlp.settings import Settings
from mttp.wire.deadlines import TimelyResponse
from mttp.wire.replies import MESSAGE_CHARACTERS, is_page, printable, seconds_to_wait
from mttp.wire.troubles import Kind, trouble

__all__ = ["HttpSender"]

_AGAIN = frozenset({429, 502, 503, 504})
_TOO_LARGE = 413
_BODY_BYTES = 4 << 20
"""What is read of an answer: a message of any length may follow the number of spans that were rejected."""
_ADVICE = {
    400: "does it take OTLP protobuf there? and where it wants TLS, write https://",
    401: "give credentials as headers",
    403: "give credentials as headers",
    404: "check the path, which should end in /v1/traces",
    405: "check port and path: something else than a receiver of traces is there",
    413: "it takes no request of this size: raise its limit, or write profile=strict, which sends less",
    415: "does it take OTLP protobuf?",
    422: "does it ask for a header? MLflow wants x-mlflow-experiment-id: write profile=mlflow",
    429: "it is busy, or limits how much it takes: send less, or later",
    502: "a proxy answers: is the receiver behind it running?",
    503: "is it starting, or overloaded? a proxy answers so, too, where the receiver behind it is gone",
    504: "a proxy answers: is the receiver behind it running?",
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
_CAUSES: dict[Kind, str] = {"timeout": "timeout", "untrusted": "tls", "no_tls": "tls", "tls": "tls"}


class HttpSender:
    """Sends requests to one URL."""

    def __init__(self, settings: Settings) -> None:
        self._session = _Session(settings)
        self._exporter: Any = trace_exporter.OTLPSpanExporter(
            endpoint=settings.endpoint,
            certificate_file=settings.certificate,
            client_key_file=settings.client_key,
            client_certificate_file=settings.client_certificate,
            headers=dict(settings.headers),
            timeout=settings.timeout,
            compression=Compression(settings.compression),
            session=self._session,
        )

    def send(self, request: bytes, spans: int) -> Answer:
        """Post a request once."""
        self._session.body, self._session.spans = request, spans
        self._session.answer = Answer(verdict="again", cause="shutdown", message="the transport is closed")
        with _quiet(), suppress(_AnsweredError):
            self._exporter.export(_Elsewhere(spans))
        return self._session.answer

    def close(self) -> None:
        """Release the connection; a request that is being answered ends at its timeout."""
        self._exporter.shutdown()


class _Elsewhere(Sequence[ReadableSpan]):
    """So many spans, which the exporter need not encode: the session has their bytes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        raise IndexError(index)


class _AnsweredError(Exception):
    """The request was not taken; the exporter is not to try it again by itself."""


class _Connection(urllib3.connection.HTTPConnection):
    """A connection whose answer comes whole within the timeout, however slowly a receiver writes it."""

    def getresponse(self) -> Any:
        until = time.monotonic() + (self.timeout or math.inf)
        self.response_class = partial(TimelyResponse, until=until)  # type: ignore[assignment]
        return super().getresponse()


class _SecureConnection(_Connection, urllib3.connection.HTTPSConnection):
    """The same over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _Adapter(requests.adapters.HTTPAdapter):
    """Has the session use these connections, through proxies too."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager


_POOLS = {"http": _Pool, "https": _SecurePool}


class _Session(requests.Session):
    """What the exporter posts with: it puts in the body, and takes down what is answered."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.body, self.spans, self.answer = b"", 0, Answer(verdict="taken")
        self._timeout = settings.timeout
        self._compression = settings.compression
        self._certificate = settings.certificate
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter())

    def request(self, method: str, url: str, **options: Any) -> Any:  # type: ignore[override]  # ours alone
        """Post the body; raises what the exporter does not take for a reason to wait and try again."""
        options |= {"data": self._compressed(), "stream": True, "allow_redirects": False}
        if self._certificate is not None:  # else REQUESTS_CA_BUNDLE would precede what the exporter set
            options["verify"] = self._certificate
        try:
            with self._posted(method, url, options) as response:
                self.answer = _answer(response, self.spans)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self.answer = _unanswered(error, self._timeout, secure=url.startswith("https"))
        if self.answer.verdict != "taken":
            raise _AnsweredError(self.answer.message)
        return response

    def _compressed(self) -> bytes:
        if self._compression == "gzip":
            return gzip.compress(self.body)
        return zlib.compress(self.body) if self._compression == "deflate" else self.body

    def _posted(self, method: str, url: str, options: dict[str, Any]) -> Any:
        """The response; once more at once where the connection broke, as one that was kept open may."""
        deadline = time.monotonic() + self._timeout
        options["timeout"] = urllib3.Timeout(total=self._timeout)
        try:
            return super().request(method, url, **options)
        except (requests.exceptions.SSLError, requests.exceptions.Timeout):
            raise
        except requests.exceptions.ConnectionError:
            options["timeout"] = urllib3.Timeout(total=max(deadline - time.monotonic(), 0.001))
            return super().request(method, url, **options)


def _read(response: Any) -> bytes:
    """The beginning of a body; what can't be read changes nothing about the status."""
    try:
        return bytes(response.raw.read(_BODY_BYTES, decode_content=True))
    except (urllib3.exceptions.HTTPError, OSError, ValueError):
        return b""


def _answer(response: Any, spans: int) -> Answer:
    status, headers, body = response.status_code, response.headers, _read(response)
    kind = headers.get("content-type", "")
    is_success = 200 <= status < 300
    is_html = "html" in kind or ("protobuf" not in kind and is_page(body))
    if is_success and not is_html:
        return _taken(kind, body, spans)
    said = ": ".join(filter(None, (f"{status} {response.reason or ''}".strip(), _words(kind, body))))
    advice = _PAGE if is_success else _advice(status, headers.get("location", ""))
    message, cause = f"{said} ({advice})" if advice else said, f"http_{status}"
    if is_success:
        return Answer(verdict="never", cause="not_otlp", message=message)
    if status in _AGAIN:
        after = seconds_to_wait(headers.get("retry-after", ""))
        return Answer(verdict="again", cause=cause, message=message, retry_after=after)
    return Answer(verdict="smaller" if status == _TOO_LARGE else "never", cause=cause, message=message)


def _advice(status: int, location: str) -> str:
    """What to try where a request was turned down."""
    if 300 <= status < 400 and location:
        return f"it leads to {location[:MESSAGE_CHARACTERS]}: {_REDIRECT}"
    return _ADVICE.get(status, "its own log may say why" if status >= 500 else "is it a receiver of OTLP?")


def _taken(kind: str, body: bytes, spans: int) -> Answer:
    """
    The request was taken, but for the spans that the body says were rejected.

    A body is taken for protobuf unless it is said to be JSON; one that is neither says nothing.
    """
    try:
        found = _response(kind, body).partial_success
    except (DecodeError, ParseError):
        return Answer(verdict="taken")
    return partly(found.rejected_spans, spans, found.error_message)


def _response(kind: str, body: bytes) -> ExportTraceServiceResponse:
    response = ExportTraceServiceResponse()
    if "json" in kind:
        Parse(body or b"{}", response, ignore_unknown_fields=True)
    else:
        response.ParseFromString(body)
    return response


def _words(kind: str, body: bytes) -> str:
    """What the receiver says, of a body in protobuf or text."""
    if "protobuf" in kind:
        try:
            return str(Status.FromString(body).message)[:MESSAGE_CHARACTERS]
        except DecodeError:
            return ""
    return printable(body)


def _unanswered(error: Exception, timeout: float, *, secure: bool) -> Answer:
    """Why there is no answer, and what may be wrong."""
    found = trouble(error, timeout)
    advice = (_ADVICE_SECURE if secure else _ADVICE_PLAIN).get(found.kind, "is a receiver of OTLP there?")
    cause = _CAUSES.get(found.kind, "connection")
    return Answer(verdict="again", cause=cause, message=f"{found.said}; {advice}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's own log of failures back, on this thread: the session tells of them."""
    logger, thread = logging.getLogger(trace_exporter.__name__), threading.get_ident()

    def is_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(is_others)
    try:
        yield
    finally:
        logger.removeFilter(is_others)

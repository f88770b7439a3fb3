"""An OTLP receiver in the test's process, with configurable failures."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mttp.otlp.app_server import BODY_SECONDS, AppServer  # first: it says which extra is missing

# isort: split
from anyio import move_on_after
from google.protobuf.json_format import MessageToJson
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from mttp.errors import ConfigureError, MttpError
from mttp.model.spans import SpanRecord
from mttp.otlp.json_decode import decode_line
from mttp.otlp.protobuf_decode import decode_message

__all__ = ["Behaviour", "OtlpReceiver", "ReceivedRequest"]

_CLOSING_SECONDS = 10.0
_GRPC_FAILURES = tuple(Code.keys()[1:])  # the first is OK
_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The response to a request; by default a success."""

    status: int | str = 200
    """
    The HTTP status, or the name of a gRPC status, e.g. `"UNAVAILABLE"`; spans are kept if it is a success.

    The name of a gRPC status is HTTP status 400, and an HTTP status that is not a success is gRPC's UNKNOWN.
    """
    message: str = ""
    """The message of the response."""
    retry_after: float | None = None
    """Seconds, in a Retry-After header or a RetryInfo."""
    rejected: int = 0
    """A partial success: the first `rejected` spans are not kept."""
    body: bytes | None = None
    """HTTP only: the body of the response."""
    hang: bool = False
    """Respond only when the receiver's `release` or `close` is called."""
    reset: bool = False
    """HTTP only: reset the connection during the response, or before its status if there is no `body`."""

    def __post_init__(self) -> None:
        known = 100 <= self.status < 600 if isinstance(self.status, int) else self.status in _GRPC_FAILURES
        if not known:
            raise ConfigureError(
                f"status {self.status!r} is neither an HTTP status, 100 to 599, nor a gRPC error: "
                + ", ".join(_GRPC_FAILURES)
            )

    @property
    def is_success(self) -> bool:
        """Whether spans are kept."""
        return isinstance(self.status, int) and 200 <= self.status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """One received request."""

    path: str
    """The HTTP path, or the gRPC method."""
    headers: Mapping[str, str]
    """The headers or gRPC metadata, with names in lower case."""
    wire_bytes: int
    """The size of the body as sent; over gRPC the size of the message."""
    bytes: int
    """The size of the decompressed message."""
    spans: int
    """The number of spans."""
    status: int | str
    """The status of the response."""
    time: float
    """When it was received: seconds of `time.monotonic`."""


class OtlpReceiver:
    """
    A context manager that receives traces over HTTP and gRPC on free ports.

    `mttp.read(receiver)` reads the received spans.
    With `certificate` and `key`, files in PEM format, it uses TLS; with `client_ca` it requires client
    certificates.
    Messages larger than `max_http_bytes` and `max_grpc_bytes` are refused; the defaults are the Collector's.
    """

    def __init__(
        self,
        *,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        client_ca: str | Path | None = None,
        max_http_bytes: int = 20 * 2**20,
        max_grpc_bytes: int = 4 * 2**20,
    ) -> None:
        self.requests: list[ReceivedRequest] = []
        """The complete requests, in order of arrival."""
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._max_http_bytes = max_http_bytes
        self._max_grpc_bytes = max_grpc_bytes
        self._body_seconds = BODY_SECONDS
        self._records: list[SpanRecord] = []
        self._behaviours: list[Behaviour] = []
        self._forever: Behaviour | None = None
        self._changed = threading.Condition()
        self._released = False
        self._http: AppServer | None = None
        self._grpc: Any = None
        self._grpc_port = 0

    def __enter__(self) -> OtlpReceiver:
        self._http = AppServer(partial(_respond, self), name="mttp-receiver", tls=_server_context(self))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def http_address(self) -> str:
        """The address for OTLP over HTTP, e.g. `http://127.0.0.1:41234`."""
        return f"{'https' if self.is_secure else 'http'}://127.0.0.1:{self._started().port}"

    @property
    def grpc_address(self) -> str:
        """The address for OTLP over gRPC, e.g. `grpc://127.0.0.1:41235`; first use starts the server."""
        self._started()
        if self._grpc is None:
            self._grpc, self._grpc_port = _grpc_server(self, self._max_grpc_bytes)
        return f"{'grpcs' if self.is_secure else 'grpc'}://127.0.0.1:{self._grpc_port}"

    @property
    def is_secure(self) -> bool:
        """Whether it uses TLS."""
        return self._certificate is not None

    def records(self) -> Iterator[SpanRecord]:
        """Return an iterator over the received spans, in order of arrival."""
        with self._changed:
            return iter(list(self._records))

    def behave(self, *behaviours: Behaviour, forever: bool = False) -> None:
        """
        Respond to the next requests with these behaviours in turn, and then with successes.

        With `forever`, the last behaviour stays. Without behaviours, respond with successes from now on.
        """
        with self._changed:
            self._behaviours = list(behaviours)
            self._forever = behaviours[-1] if forever and behaviours else None
            self._released = False

    def release(self) -> None:
        """Respond to the requests that hang."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def wait(self, requests: int = 1, *, timeout: float = 30.0) -> bool:
        """Wait for a total number of requests; returns False if `timeout` seconds pass before."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.requests) >= requests, timeout)

    def close(self) -> None:
        """Stop the servers; the received spans stay readable."""
        self.release()
        http, self._http = self._http, None
        if http is not None:
            http.close()
        server, self._grpc = self._grpc, None
        if server is not None:
            server.stop(grace=0).wait(_CLOSING_SECONDS)

    def _started(self) -> AppServer:
        if self._http is None:
            raise MttpError(
                "the receiver is not open; use it as a context manager: with OtlpReceiver() as receiver"
            )
        return self._http

    # For both servers.

    def _received(
        self, path: str, headers: Mapping[str, str], wire_bytes: int, message: bytes, *, is_json: bool = False
    ) -> Behaviour:
        """Decode and keep a message as the next behaviour says, and return the behaviour for the response."""
        records: list[SpanRecord] = []
        refused = None
        if len(message) > self._max_http_bytes and path != _METHOD:
            refused = Behaviour(status=413, message="request body too large")
        else:
            try:
                records = decode_line(message) if is_json else decode_message(message)
            except MttpError as error:
                refused = Behaviour(status="INVALID_ARGUMENT", message=str(error))
        with self._changed:
            wanted = self._next()
            behaviour = refused or wanted
            if behaviour.is_success:
                self._records += records[behaviour.rejected :]
            self.requests.append(
                ReceivedRequest(
                    path=path,
                    headers=headers,
                    wire_bytes=wire_bytes,
                    bytes=len(message),
                    spans=len(records),
                    status=behaviour.status,
                    time=time.monotonic(),
                )
            )
            self._changed.notify_all()
        return behaviour

    def _next(self) -> Behaviour:
        if self._behaviours:
            return self._behaviours.pop(0)
        return self._forever or Behaviour()

    def _hold(self, context: Any = None) -> None:
        """Wait until `release` is called or the client disconnects."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._released or (context is not None and not context.is_active())
            )

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


# HTTP.


async def _respond(receiver: OtlpReceiver, scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI app: receive an export request, and respond as the next behaviour says."""
    request = Request(scope, receive)
    try:
        behaviour = await _read_request(receiver, request)
    except ClientDisconnect:
        return
    while behaviour.hang and not receiver._released:
        await asyncio.sleep(0.002)
    if behaviour.body is not None or not behaviour.reset:
        kind = request.headers.get("content-type", "")
        body = _http_body(behaviour, kind) if behaviour.body is None else behaviour.body
        headers = {"content-type": kind, "content-length": str(len(body) + behaviour.reset)}
        if behaviour.retry_after is not None:
            headers["retry-after"] = f"{behaviour.retry_after:g}"
        status = behaviour.status if isinstance(behaviour.status, int) else 400
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body, "more_body": behaviour.reset})
    if behaviour.reset:
        request.state.connection.reset()
        while (await receive())["type"] != "http.disconnect":
            pass


async def _read_request(receiver: OtlpReceiver, request: Request) -> Behaviour:
    """Read a request, up to the limits of size and time, and return the behaviour for the response."""
    limit, size, body = receiver._max_http_bytes, 0, bytearray()
    with move_on_after(receiver._body_seconds) as reading:
        async for chunk in request.stream():
            size += len(chunk)
            body += chunk[: limit + 1 - len(body)]
    if reading.cancelled_caught:
        return Behaviour(status=408, message=f"the body took more than {receiver._body_seconds:g} s")
    if request.url.path != "/v1/traces":
        return Behaviour(status=404, message="no such path")
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "deflate"):
        return Behaviour(status=415, message="the body must be sent with gzip, deflate, or uncompressed")
    try:
        message = _decompressed(bytes(body), encoding, limit)
    except zlib.error as error:
        return Behaviour(status=400, message=f"the body can't be decompressed: {error}")
    is_json = "json" in request.headers.get("content-type", "")
    return receiver._received(request.url.path, dict(request.headers), size, message, is_json=is_json)


_MAX_MEMBERS = 100
"""Parts of a compressed body; an exporter sends one, and each further one copies the rest of the body."""


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a decompressed body, cut off one byte after the limit; raises zlib.error if it is damaged."""
    if encoding not in ("gzip", "deflate"):
        return body
    found, members = b"", 0
    while body and len(found) <= limit:
        if (members := members + 1) > _MAX_MEMBERS:
            raise zlib.error(f"it has more than {_MAX_MEMBERS} parts")
        member = zlib.decompressobj(zlib.MAX_WBITS | 32)  # either format
        found += member.decompress(body, limit + 1 - len(found))
        if not member.eof and len(found) <= limit:
            raise zlib.error("it is incomplete")
        body = member.unused_data
    return found


def _http_body(behaviour: Behaviour, kind: str) -> bytes:
    message = _response(behaviour) if behaviour.is_success else Status(message=behaviour.message)
    return MessageToJson(message).encode() if "json" in kind else bytes(message.SerializeToString())


def _response(behaviour: Behaviour) -> ExportTraceServiceResponse:
    response = ExportTraceServiceResponse()
    if behaviour.rejected or behaviour.message:
        response.partial_success.rejected_spans = behaviour.rejected
        response.partial_success.error_message = behaviour.message
    return response


def _server_context(receiver: OtlpReceiver) -> ssl.SSLContext | None:
    if receiver._certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(receiver._certificate, receiver._key)
    if receiver._client_ca is not None:
        context.load_verify_locations(receiver._client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


# gRPC.


def _grpc_server(receiver: OtlpReceiver, max_bytes: int) -> tuple[Any, int]:
    """Start a gRPC server and return it with its port."""
    import grpc

    def export(message: bytes, context: Any) -> bytes:
        headers = {key: str(value) for key, value in context.invocation_metadata()}
        context.add_callback(receiver._notify)
        behaviour = receiver._received(_METHOD, headers, len(message), message)
        if behaviour.hang:
            receiver._hold(context)
        if behaviour.is_success:
            return bytes(_response(behaviour).SerializeToString())
        context.set_trailing_metadata(_retry_info(behaviour))
        code = getattr(grpc.StatusCode, str(behaviour.status), grpc.StatusCode.UNKNOWN)
        context.abort(code, behaviour.message)
        raise AssertionError("abort raises")

    service, _, method = _METHOD[1:].rpartition("/")
    handler = grpc.method_handlers_generic_handler(
        service, {method: grpc.unary_unary_rpc_method_handler(export)}
    )
    server = grpc.server(
        ThreadPoolExecutor(8, thread_name_prefix="mttp-receiver"),
        handlers=[handler],
        options=[("grpc.max_receive_message_length", max_bytes), ("grpc.so_reuseport", 0)],
    )
    port = _listen(server, receiver)
    server.start()
    return server, port


def _listen(server: Any, receiver: OtlpReceiver) -> int:
    import grpc

    if receiver._certificate is None:
        return int(server.add_insecure_port("127.0.0.1:0"))
    pair = [Path(path).read_bytes() for path in (receiver._key, receiver._certificate) if path]
    ca = receiver._client_ca
    credentials = grpc.ssl_server_credentials(
        [tuple(pair)],
        root_certificates=None if ca is None else Path(ca).read_bytes(),
        require_client_auth=ca is not None,
    )
    return int(server.add_secure_port("127.0.0.1:0", credentials))


def _retry_info(behaviour: Behaviour) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata with the delay before a retry, as a detail of the status."""
    if behaviour.retry_after is None:
        return ()
    info = RetryInfo()
    info.retry_delay.FromNanoseconds(int(behaviour.retry_after * 1e9))
    status = Status(message=behaviour.message)
    status.details.add().Pack(info)
    return (("grpc-status-details-bin", bytes(status.SerializeToString())),)

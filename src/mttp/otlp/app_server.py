"""Serves a web app on its own port by uvicorn on a thread, with limits on requests."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import Any

from mttp.errors import MissingExtra, TransportError

try:
    from starlette.responses import PlainTextResponse
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.server import ServerState
except ImportError as error:
    raise MissingExtra(
        package="starlette, uvicorn and httptools", extra="receive", purpose="listening"
    ) from error

__all__ = ["BODY_SECONDS", "CONNECTIONS", "HEAD_BYTES", "IDLE_SECONDS", "AppServer"]

BODY_SECONDS = 10.0
"""Seconds that the body of a request may take, for apps that set no other limit."""
CONNECTIONS = 512
"""Maximum number of connections; further ones wait."""
IDLE_SECONDS = 30.0
"""Seconds until the request line and headers of the next request must have arrived."""
HEAD_BYTES = 1 << 16
"""Maximum size of the request line and headers together."""
_BACKLOG = 128
_CLOSING_SECONDS = 5.0
_LINGERING_SECONDS = 1.0
_LINGERING_BYTES = 1 << 24
"""Bytes that are read of a rejected body, so that the sender reads the response."""
_PIECE = 1 << 16
"""Maximum size of one read from a connection."""
_RETRY_SECONDS = 0.1

_UPGRADE = re.compile(rb"\r\nUpgrade:", re.IGNORECASE)
"""Headers of an offered protocol upgrade, as Java sends; httptools would treat the body as that protocol."""

_log = logging.getLogger("mttp.otlp.app_server")
_log.setLevel(logging.ERROR)  # uvicorn warns about every invalid request


class AppServer:
    """
    Serves an ASGI app on a host and port until it is closed; the port 0 is a free one.

    With a `token`, requests without the header `Authorization: Bearer TOKEN` are answered 401.
    `on_refused` gets the status of each request that is turned down before the app sees it.
    `on_close` is called before connections are ended, so that the app can finish what it is at.
    Both are called on the server's thread.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        name: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        on_refused: Callable[[int], object] = int,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        try:
            host.encode("idna")  # the socket would leak
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server(
                (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=":" in host
            )
            self.loop = asyncio.SelectorEventLoop()
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TransportError(f"can't listen on {host}, port {port}: {reason}") from error
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self.config = Config(
            app if token is None else partial(_authorized, app, token, on_refused),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=math.ceil(IDLE_SECONDS) + 1,  # longer than our own timeout
        )
        self.state = ServerState()
        self.on_refused, self._on_close, self._tls = on_refused, on_close, tls
        self.closing = asyncio.Event()
        self._connections = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections, and close open ones after their response."""
        with suppress(RuntimeError):  # the loop is closed by an earlier call
            self.loop.call_soon_threadsafe(self.closing.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        finally:
            self.loop.close()

    async def _serve(self) -> None:
        self._listen()
        await self.closing.wait()
        self.loop.remove_reader(self._listener)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # a forked process may also hold the socket
        self._listener.close()
        self._on_close()
        for connection in list(self.state.connections):
            connection.shutdown()
        await self._ended(_CLOSING_SECONDS)
        for connection in list(self.state.connections):
            connection.transport.abort()
        for task in self.state.tasks:
            task.cancel()
        await self._ended(_RETRY_SECONDS)

    async def _ended(self, seconds: float) -> None:
        """Wait until all connections and requests have ended, at most until the timeout."""
        until = self.loop.time() + seconds
        while (self.state.connections or self.state.tasks) and self.loop.time() < until:
            await asyncio.sleep(0.001)

    def _listen(self) -> None:
        if self._connections < CONNECTIONS and not self.closing.is_set():
            self.loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # no file descriptor is free, or the connection is closed
            self.loop.remove_reader(self._listener)
            self.loop.call_later(_RETRY_SECONDS, self._listen)
            return
        connection.setblocking(False)
        self._connections += 1
        if self._connections == CONNECTIONS:
            self.loop.remove_reader(self._listener)
        task = self.loop.create_task(self._connect(connection))
        self.state.tasks.add(task)
        task.add_done_callback(self.state.tasks.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(
                lambda: _ServerConnection(self), connection, ssl=self._tls
            )
        except OSError:  # the handshake failed
            connection.close()
            self.disconnected()

    def disconnected(self) -> None:
        """Count a closed connection, so that another one can be accepted."""
        self._connections -= 1
        self._listen()


async def _authorized(
    app: ASGIApp, token: str, on_refused: Callable[[int], object], scope: Scope, receive: Receive, send: Send
) -> None:
    """Call the app if the request has the token."""
    authorization = dict(scope["headers"]).get(b"authorization", b"")
    if not hmac.compare_digest(authorization, f"Bearer {token}".encode()):
        on_refused(HTTPStatus.UNAUTHORIZED)
        headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
        app = PlainTextResponse("the token is missing or wrong\n", HTTPStatus.UNAUTHORIZED, headers)
    await app(scope, receive, send)


class _ServerConnection(HttpToolsProtocol):
    """A connection of uvicorn with limits on headers, which closes after its response was read."""

    def __init__(self, server: AppServer) -> None:
        super().__init__(server.config, server.state, {"connection": self}, server.loop)
        self.logger, self.access_log = _log, False
        self.app_server = server
        self._head_bytes = 0
        self._is_in_body = self._is_broken = False
        self.ended = math.inf
        """Time of the event loop since when the client sends no more: it may be gone, or only waits."""

    @property
    def is_unread(self) -> bool:
        """Whether unread bytes may still arrive."""
        return (self._is_in_body or self._is_broken) and self.ended == math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.max_size = _PIECE  # type: ignore[attr-defined]  # of asyncio's selector transports
        super().connection_made(_Lingering(transport, self))  # type: ignore[arg-type]  # replaces the transport
        self._head_timer = self.loop.call_later(IDLE_SECONDS, self.transport.close)
        if self.app_server.closing.is_set():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended = min(self.ended, self.loop.time())
        self._head_timer.cancel()
        with suppress(OSError):
            self.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # also for forked processes
        self.app_server.disconnected()

    def data_received(self, data: bytes) -> None:
        """Receive bytes of requests; drop those after the last response."""
        if self.transport.is_closing():
            self.transport.pass_over(len(data))  # type: ignore[attr-defined]  # it is a _Lingering
            return
        if not self._is_in_body:
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"\r\nX-Asked:", head) + end + rest
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES:
            self._turn_down(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def eof_received(self) -> bool:  # type: ignore[override]  # the signature of asyncio
        """Keep the connection for responses: a client that sends no more may still read."""
        self.ended = self.loop.time()
        if self.transport.get_extra_info("ssl_object") or self._is_idle:
            return False
        if self._is_in_body:
            self._turn_down(HTTPStatus.BAD_REQUEST)
        self.cycle.keep_alive = False
        return not self.transport.is_closing()

    def on_headers_complete(self) -> None:
        self._is_in_body, self._head_bytes = True, 0
        self._head_timer.cancel()
        date = formatdate(usegmt=True).encode()
        self.server_state.default_headers = [(b"server", b"mttp"), (b"date", date)]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body, self._head_bytes = False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless the body of this one was not read completely."""
        super().on_response_complete()
        if self._is_idle and self._is_in_body:
            self.transport.close()
        elif self._is_idle:
            self._head_timer = self.loop.call_later(IDLE_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the signature of uvicorn
        self._turn_down(HTTPStatus.BAD_REQUEST)

    def shutdown(self) -> None:
        if self.transport.is_closing():
            self.transport.end()  # type: ignore[attr-defined]
        else:
            super().shutdown()

    def reset(self) -> None:
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.transport.abort()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # at first

    def _turn_down(self, status: HTTPStatus) -> None:
        """Send a response unless the app has started one."""
        self._is_broken = True
        if self.transport.is_closing():
            return
        self.app_server.on_refused(status)
        if self._is_idle or not self.cycle.response_started:
            head = f"HTTP/1.1 {status:d} {status.phrase}\r\nConnection: close\r\nContent-Type: text/plain"
            body = f"{status.phrase}\n"
            self.transport.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        if not self._is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


class _Lingering:
    """A transport that reads on after closing, because unread bytes would reset the connection."""

    def __init__(self, transport: Any, connection: _ServerConnection) -> None:
        self._transport, self._connection = transport, connection
        self._left: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._left is not None or self._transport.is_closing()

    def close(self) -> None:
        """Close the writing side, and close the connection after the client has, or after a timeout."""
        if self.is_closing():
            return
        if not (self._connection.is_unread and self._transport.can_write_eof()):
            self._transport.close()
            return
        self._left = _LINGERING_BYTES
        self._transport.write_eof()
        self._transport.resume_reading()
        is_last = self._connection.app_server.closing.is_set()
        seconds = _RETRY_SECONDS if is_last else _LINGERING_SECONDS
        self._connection.loop.call_later(seconds, self.end)

    def pass_over(self, size: int) -> None:
        """Count dropped bytes."""
        self._left = (self._left or 0) - size
        if self._left < 0:
            self.end()

    def end(self) -> None:
        self._transport.close()

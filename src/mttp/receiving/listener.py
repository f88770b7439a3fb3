"""Messages over HTTP: a listener as the stack's own have, which says honestly what it took."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BufferedReader, BytesIO
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import Self

from mttp.channels import Channel, Entrance, Exit
from mttp.errors import SendError, TransportError
from mttp.messages import MAX_SIZE, Line, as_line
from mttp.transports.options import ByteCount, Positive, Seconds, path_of, take
from mttp.wire.deadlines import Deadline

__all__ = ["ListeningOrigin", "open"]

MIST_PATH = "/mist"
CONNECTIONS = 512
"""So many at once; another one waits until one of them ends."""
IDLE_SECONDS = 30.0
"""How long a connection may say nothing between two requests."""
TIMEOUT = 10.0
"""Seconds that the body of a request may take."""
MAX_UNFINISHED_BYTES = 256 * 2**20
"""Bytes of bodies that have not come in whole, of all connections together."""
HEAD_BYTES = 1 << 16
"""Bytes of a request's headers, all together."""
RETRY_AFTER = 1
"""Seconds after which a sender that was told so should come again."""
_CLOSING_SECONDS = 5.0
_DRAINED_BYTES = 1 << 24
"""Of a body that is not wanted so much is read, so that whoever sends it hears the answer."""
_LONGEST_SIZE = 1 << 10
_PIECE = 1 << 16


class ListeningOrigin:
    """
    Listens on a host and port; each POST to /mist is one message.

    It answers 202 once a message is in the inbox, which holds `capacity` of them, and 503 while that is full.
    The bodies that are coming in take at most `max_unfinished_bytes` of memory together: the one that would
    take more is answered 503, and its sender tries again.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        capacity: Positive | None = None,
        max_bytes: ByteCount = MAX_SIZE,
        timeout: Seconds = TIMEOUT,
        max_unfinished_bytes: ByteCount = MAX_UNFINISHED_BYTES,
    ) -> None:
        if max_unfinished_bytes < max_bytes:
            raise TransportError(
                f"max_unfinished_bytes={max_unfinished_bytes} is less than one message may have, "
                f"max_bytes={max_bytes}: no such message would ever be taken"
            )
        inbox = Channel(capacity, name="inbox")
        self.refused: Counter[str] = Counter()
        self._exit = Exit(inbox)
        self._closed = False
        self._server = _Server(
            host,
            port,
            Entrance(inbox, wait=False),
            self.refused,
            max_bytes=max_bytes,
            timeout=timeout,
            space=_Space(max_unfinished_bytes),
        )
        self.address = f"mttp+http://{_shown(host)}:{self._server.server_port}"

    @property
    def pending(self) -> int:
        """Messages in the inbox."""
        return self._exit.pending

    def lines(self) -> Iterator[Line]:
        """Messages and errors in the order in which they came in."""
        while line := self._exit.get():
            yield line

    def close(self) -> None:
        """Listen no more; what was taken stays in the inbox."""
        if not self._closed:
            self._closed = True
            self._server.stop()


class _Server(ThreadingHTTPServer):
    """Serves each connection on a thread of its own."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        entrance: Entrance,
        refused: Counter[str],
        *,
        max_bytes: int,
        timeout: float,
        space: _Space,
    ) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            entrance.close()
            raise TransportError(f"can't listen on {host}, port {port}: {error.strerror or error}") from error
        self.max_bytes, self.seconds, self.space, self.closing = max_bytes, timeout, space, False
        self._entrance, self._refused = entrance, refused
        self._received = 0
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.05,), name="mttp-receive", daemon=True
        )
        self._thread.start()

    def server_bind(self) -> None:
        """Bind, without asking for the host's name, which may take its time."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def stop(self) -> None:
        """Take no more connections, and end those that there are once they have their answer."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()
        self.shutdown()
        self.server_close()
        with self._changed:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._connections, _CLOSING_SECONDS)
        self._entrance.close()

    def take(self, body: bytes, sender: str) -> Line:
        """A message, put into the inbox, or what is wrong with it; raises SendError where that is full."""
        with self._changed:
            self._received += 1
            number = self._received
        line = as_line(body, number=number, source=sender)
        self._entrance.put_line(line)
        return line

    def count(self, status: int) -> None:
        """Count a request that was turned down."""
        with self._changed:
            self._refused[f"http_{status}"] += 1

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a connection, once there are not too many."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._connections) < CONNECTIONS or self.closing)
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        super().shutdown_request(request)
        with self._changed:
            self._connections.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: connections break."""


class _RefusedError(Exception):
    """A request is turned down."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Space:
    """The bytes that all unfinished bodies may take together."""

    def __init__(self, size: int) -> None:
        self._size = self._left = size
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Take a part; raises _RefusedError where not so much is left."""
        with self._lock:
            if size > self._left:
                raise _RefusedError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"messages that are coming in take {self._size - self._left:,} bytes of {self._size:,}",
                )
            self._left -= size

    def give_back(self, size: int) -> None:
        """Give a part back."""
        with self._lock:
            self._left += size


class _Body:
    """The part of a request's body that has come in; it takes space until its block ends."""

    def __init__(self, space: _Space) -> None:
        self._space = space
        self._taken = 0
        self._content = BytesIO()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._content = BytesIO()
        self._space.give_back(self._taken)

    @property
    def size(self) -> int:
        """Bytes that have come in."""
        return self._content.tell()

    def read(self, source: BufferedIOBase, length: int) -> bool:
        """Read so many bytes more; whether there were as many."""
        end = self.size + length
        while self.size < end:
            piece = min(end - self.size, _PIECE)
            self._space.take(piece)
            self._taken += piece
            if self._content.write(source.read(piece)) < piece:
                return False
        return True

    def content(self) -> bytes:
        """All bytes that have come in."""
        return self._content.getvalue()


class _Reader(BufferedReader):
    """What a connection sends; `head_left` is how many bytes its headers may still have."""

    head_left: float = HEAD_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line; raises HTTPException once the headers are too large."""
        if self.head_left <= 0:
            raise HTTPException(f"headers may have {HEAD_BYTES:,} bytes")
        line = super().readline(size)
        self.head_left -= len(line)
        return line


class _Handler(BaseHTTPRequestHandler):
    """One connection, request after request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        """Read with a deadline."""
        super().setup()
        self._deadline = Deadline(self.connection)
        self.rfile.close()
        self.rfile = self._reader = _Reader(self._deadline)

    def handle_one_request(self) -> None:
        """One request, whose line and headers must come in time."""
        self._deadline.until = time.monotonic() + IDLE_SECONDS
        self._reader.head_left = HEAD_BYTES
        super().handle_one_request()

    def do_POST(self) -> None:
        """Take a message."""
        self._deadline.until = time.monotonic() + self.server.seconds
        self._reader.head_left = math.inf
        try:
            self._check_path()
            with _Body(self.server.space) as body:
                self._read(body)
                line = self.server.take(body.content(), self.client_address[0])
        except _RefusedError as refused:
            self._refuse(refused.status, str(refused))
        except TimeoutError:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the message took more than {self.server.seconds:g} s")
        except SendError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error), is_read=True)
        else:
            if line.error is None:
                self._answer(HTTPStatus.ACCEPTED)
            else:
                self._answer(HTTPStatus.BAD_REQUEST, str(line.error))

    def _other(self) -> None:
        """Whatever is asked for by another method is not to be had."""
        try:
            self._check_path()
        except _RefusedError as refused:
            self._refuse(refused.status, str(refused))
        else:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "messages are sent by POST")

    def version_string(self) -> str:
        """What it is."""
        return "mttp"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Turn down and count what is no request."""
        self.server.count(code)
        super().send_error(code, message, explain)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _check_path(self) -> None:
        if self.path.partition("?")[0] != MIST_PATH:
            raise _RefusedError(HTTPStatus.NOT_FOUND, f"messages are taken at {MIST_PATH}")

    def _read(self, body: _Body) -> None:
        """Read the body, whichever way its end is said; raises _RefusedError where it can't be taken."""
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "messages are sent uncompressed")
        encoding, length = self.headers.get("transfer-encoding"), self.headers.get("content-length")
        if encoding is not None:
            if encoding.lower() != "chunked" or length is not None:
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "the end of the body is not said clearly")
            self._read_chunks(body)
            return
        if length is None:
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "the length of the message is not said")
        self._read_exactly(body, _number(length, 10))

    def _read_chunks(self, body: _Body) -> None:
        while length := _number(self._line().partition(b";")[0].decode("latin-1"), 16):
            self._read_exactly(body, length)
            if self._line():
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "a chunk is longer than it says")
        while self._line():
            pass  # trailers

    def _read_exactly(self, body: _Body, length: int) -> None:
        if body.size + length > self.server.max_bytes:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message may have {self.server.max_bytes:,} bytes"
            )
        if not body.read(self.rfile, length):
            raise self._broken_off()

    def _line(self) -> bytes:
        line = self.rfile.readline(_LONGEST_SIZE)
        if not line.endswith(b"\n"):
            raise self._broken_off()
        return line.strip()

    def _broken_off(self) -> _RefusedError:
        """Why no more of the body comes."""
        if self.server.closing:
            return _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "it is closing")
        return _RefusedError(HTTPStatus.BAD_REQUEST, "the message breaks off")

    def _refuse(self, status: int, reason: str, *, is_read: bool = False) -> None:
        """Turn a request down, of which not everything was read unless that is said."""
        self.server.count(status)
        self.close_connection = self.close_connection or not is_read
        self._answer(status, reason)
        if not is_read:
            self._drain()

    def _answer(self, status: int, reason: str = "") -> None:
        body = f"{reason}\n".encode() if reason and self.command != "HEAD" else b""
        self.connection.settimeout(self.server.seconds)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if body:
            self.send_header("Content-Type", "text/plain; charset=utf-8")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", str(RETRY_AFTER))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "POST")
        if self.close_connection or self.server.closing:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _drain(self) -> None:
        """Read on for a while: a connection that is closed with bytes unread takes the answer with it."""
        with suppress(OSError, ValueError):
            self.connection.shutdown(socket.SHUT_WR)
            self._deadline.until = time.monotonic() + 1.0
            read = 0
            while read < _DRAINED_BYTES and (piece := self.rfile.read1(1 << 16)):
                read += len(piece)


for _method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
    setattr(_Handler, f"do_{_method}", _Handler._other)


def _number(text: str, base: int) -> int:
    """A length, in decimal or hexadecimal digits and nothing else."""
    digits = text.strip()
    if not digits.isascii() or not digits.isalnum():
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"{digits[:20]!r} is no length")
    try:
        return int(digits[:20], base)
    except ValueError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"{digits[:20]!r} is no length") from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def open(address: str, options: Mapping[str, object]) -> ListeningOrigin:
    """A listener; without a host on the loopback interface."""
    try:
        parts = urlsplit(f"http://{path_of(address)}")
        port = parts.port
    except ValueError as error:
        raise TransportError(f"{error}; write mttp+http://127.0.0.1:8700") from error
    if port is None or parts.path.rstrip("/") not in ("", MIST_PATH) or "@" in parts.netloc:
        raise TransportError("it listens on a host and port, at /mist; write mttp+http://127.0.0.1:8700")
    return ListeningOrigin(parts.hostname or "127.0.0.1", port, **take(options, ListeningOrigin))

"""A peer that receives messages by the rules of the stack's own tools, and misbehaves as configured."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mttp.mist import span_messages
from mttp.mist.messages import TraceSpan
from mttp.model.spans import SpanRecord

Answer = Callable[[Any], None]
"""Does something with the connection of a request whose body was read, instead of a good answer."""

_FIRST = json.JSONDecoder().raw_decode


class Mist:
    """
    Takes messages at /mist as the tools do: of a body the first JSON value, of an envelope only the type.

    It adds up what the spans say, as the tool that keeps them does.
    """

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        """Bodies of all requests, in order of arrival."""
        self.answers: list[Answer | int | tuple[int, str]] = []
        """How the next requests are answered: a status, perhaps with Retry-After, or otherwise."""
        self.connections = 0
        self.open: list[socket.socket] = []
        self.released = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Mist:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"mist": self}))
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in self.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def address(self) -> str:
        """Where it is, for a transport."""
        return f"mttp+http://127.0.0.1:{self.port}"

    def take(self, body: bytes) -> int:
        """The status for a message; a span is kept."""
        try:
            message, _ = _FIRST(body.decode().lstrip())
            if message["type"] != TraceSpan.TYPE:
                return 400
            span = message["payload"]
            assert isinstance(span["trace_id"], str)
            assert isinstance(span["start_ns"], int)
        except (ValueError, KeyError, TypeError, AssertionError):
            return 400
        with self._lock:
            self.spans.append(span)
        return 202

    def records(self) -> Iterator[SpanRecord]:
        """The spans, for `mttp.read`."""
        return iter([span_messages.decode(TraceSpan(**span)) for span in self.spans])

    def stats(self) -> dict[str, Any]:
        """What the tool says of all spans so far."""
        attrs = [span.get("attrs", {}) for span in self.spans]
        return {
            "total_spans": len(self.spans),
            "error_count": sum(span["status"] == "error" for span in self.spans),
            "total_tokens_in": sum(_number(each.get("tokens_in")) for each in attrs),
            "total_tokens_out": sum(_number(each.get("tokens_out")) for each in attrs),
            "by_operation": Counter(span["operation"] for span in self.spans),
        }

    def answer(self, body: bytes) -> Answer | int | tuple[int, str]:
        """How this request is answered."""
        with self._lock:
            self.bodies.append(body)
            told = self.answers.pop(0) if self.answers else None
        return self.take(body) if told is None else told


def _number(value: object) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mist: Mist

    def setup(self) -> None:
        super().setup()
        self.mist.connections += 1
        self.mist.open.append(self.connection)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path != "/mist":
            self._say(404)
            return
        answer = self.mist.answer(body)
        if callable(answer):
            self.close_connection = True
            answer(self)
        else:
            self._say(*answer if isinstance(answer, tuple) else (answer,))

    def do_GET(self) -> None:
        self._say(405)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _say(self, status: int, retry_after: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.end_headers()


def hang(handler: Any) -> None:
    """Say nothing until the peer ends."""
    handler.mist.released.wait()


def hang_up(handler: Any) -> None:
    """Close the connection without an answer."""


def break_off(handler: Any) -> None:
    """Close it in the middle of the status."""
    handler.wfile.write(b"HTTP/1.1 20")


def garbage(handler: Any) -> None:
    """Answer in another language."""
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")


def drip(handler: Any) -> None:
    """Say a header, a byte at a time, for ever."""
    handler.wfile.write(b"HTTP/1.1 202 Accepted\r\nX-Slow: ")
    while not handler.mist.released.wait(0.02):
        handler.wfile.write(b"x")


def take_and_break_off(handler: Any) -> None:
    """Take the message, and break off in the body of the answer."""
    handler.mist.take(handler.mist.bodies[-1])
    handler.wfile.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\nso far")

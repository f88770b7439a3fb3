"""
An OTLP receiver in a process of its own, which keeps the requests and does nothing else.

It ends with the process that made it, or at the end of a `with` block; a recorder that closes at the
interpreter's end still finds it.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.request import Request, urlopen

__all__ = ["Sink"]

_LENGTH = struct.Struct("<Q")
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n"


class Sink:
    """The process, seen from the one that sends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.address = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def requests(self) -> list[bytes]:
        """The bodies that came in, in order; they are forgotten."""
        body, found, at = urlopen(Request(self.address + "/taken", b"")).read(), [], 0
        while at < len(body):
            (length,) = _LENGTH.unpack_from(body, at)
            found.append(body[at + _LENGTH.size : at + _LENGTH.size + length])
            at += _LENGTH.size + length
        return found

    def spans(self) -> list[Any]:
        """The spans that came in, as protobuf messages; they are forgotten."""
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

        return [
            span
            for request in self.requests()
            for block in TracesData.FromString(request).resource_spans
            for scoped in block.scope_spans
            for span in scoped.spans
        ]

    def keep_nothing(self) -> None:
        """From here on requests are taken, and forgotten."""
        urlopen(Request(self.address + "/forget", b"")).read()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    taken: ClassVar[list[bytes] | None] = []

    def do_POST(self) -> None:
        """Keep a request, or give back all of them."""
        body, answer = self.rfile.read(int(self.headers["content-length"])), b""
        if self.path == "/forget":
            _Handler.taken = None
        elif self.taken is not None and self.path == "/taken":
            answer = b"".join(_LENGTH.pack(len(one)) + one for one in self.taken)
            self.taken.clear()
        elif self.taken is not None:
            self.taken.append(body)
        self.wfile.write(_HEAD % len(answer) + answer)


def _serve() -> None:
    """Serve until the end of input says that the process that sends is gone."""
    import threading

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()

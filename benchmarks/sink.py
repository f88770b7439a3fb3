"""
A receiver of OTLP requests in a process of its own, which appends what it is sent to a file.

Its CPU time and memory are not measured. It ends with the process that started it.
"""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

__all__ = ["Sink", "received"]

_FRAME = struct.Struct("<?Q")
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"


class Sink:
    """The receiver, seen from the process that sends; it keeps the requests in `path`."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.address = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.pid = self._process.pid

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def received(path: Path) -> Iterator[Any]:
    """The spans of all requests in a sink's file, as protobuf messages."""
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    with path.open("rb") as file:
        while head := file.read(_FRAME.size):
            is_gzip, length = _FRAME.unpack(head)
            body = file.read(length)
            request = TracesData.FromString(gzip.decompress(body) if is_gzip else body)
            for block in request.resource_spans:
                for scoped in block.scope_spans:
                    yield from scoped.spans


def _serve(path: str) -> None:
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Append a request to the file."""
            body = self.rfile.read(int(self.headers["content-length"]))
            is_gzip = self.headers.get("content-encoding") == "gzip"
            with lock:
                file.write(_FRAME.pack(is_gzip, len(body)) + body)
                file.flush()
            self.wfile.write(_ANSWER)

    with open(path, "wb") as file:  # noqa: PTH123 - imports little
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()  # the end of input: the process that sends is gone


if __name__ == "__main__":
    _serve(sys.argv[1])

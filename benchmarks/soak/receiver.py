"""
An OTLP receiver in a process of its own: it causes the faults it is asked for, and counts the spans it gets.

It reads one command per line, as JSON, and answers each with a line. It ends with its standard input.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ledger import Ledger
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

__all__ = ["MOST_REJECTED"]

MOST_REJECTED = 3
"""Spans of a request that a partial success rejects."""
_SLOW_SECONDS = 2.0


class Receiver:
    """What arrived, and how the next request is answered."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.behaviour = "good"
        self.refused: Counter[str] = Counter()
        self.refused_names: Counter[str] = Counter()
        self.refused_after_all = 0
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.changed = threading.Event()

    def keep(self, spans: list[Any]) -> None:
        """Enter spans into the ledger."""
        with self.lock:
            for span in spans:
                _enter(self.ledger, span)

    def refuse(self, cause: str, spans: list[Any]) -> None:
        """Count spans that the client was told to forget."""
        with self.lock:
            self.refused[cause] += len(spans)
            for span in spans:
                if self.ledger.has(int.from_bytes(span.span_id, "big")):
                    self.refused_after_all += 1  # kept without an answer, and refused when it came again
                else:
                    self.refused_names[span.name] += 1

    def as_dict(self) -> dict[str, Any]:
        """What arrived and what was refused."""
        with self.lock:
            return {
                **self.ledger.as_dict(),
                "refused_names": dict(self.refused_names),
                "refused_after_all": self.refused_after_all,
                "refused": dict(self.refused),
                "requests": dict(self.requests),
            }


def _enter(ledger: Ledger, span: Any) -> None:
    steps, weight, expected = int(span.name == "step"), 1, None
    if not span.parent_span_id or span.name == "steps":
        numbers = {each.key: each.value.int_value for each in span.attributes}
        expected = numbers.get("mttp.episode.span_count")
        if span.name == "steps":
            steps = weight = numbers["mttp.steps.count"]
    span_id = int.from_bytes(span.span_id, "big")
    ledger.add(span.trace_id.hex(), span_id, span.name, steps=steps, weight=weight, expected=expected)


class Handler(BaseHTTPRequestHandler):
    """Answers requests as the receiver's behaviour says."""

    protocol_version = "HTTP/1.1"
    receiver: Receiver

    def do_POST(self) -> None:
        """Receive a request."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        spans = [
            span for block in request.resource_spans for scoped in block.scope_spans for span in scoped.spans
        ]
        behaviour = self.receiver.behaviour
        self.receiver.requests[behaviour] += 1
        getattr(self, f"_{behaviour}")(spans)

    def _good(self, spans: list[Any]) -> None:
        self.receiver.keep(spans)
        self._answer(200)

    def _slow(self, spans: list[Any]) -> None:
        time.sleep(_SLOW_SECONDS)
        self._good(spans)

    def _unavailable(self, _: list[Any]) -> None:
        self._answer(503, **{"Retry-After": "2"})

    def _bad_request(self, spans: list[Any]) -> None:
        if self._answer(400):
            self.receiver.refuse("http_400", spans)

    def _partial(self, spans: list[Any]) -> None:
        rejected = min(MOST_REJECTED, len(spans))
        response = ExportTraceServiceResponse()
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = "rejected by the soak"
        self.receiver.keep(spans[rejected:])
        if self._answer(200, response.SerializeToString()):
            self.receiver.refuse("partial_success", spans[:rejected])

    def _garbage(self, spans: list[Any]) -> None:
        if self._answer(200, b"\xff\x00\x13garbage" * 20):
            self.receiver.refuse("not_otlp", spans)

    def _page(self, spans: list[Any]) -> None:
        if self._answer(200, b"<!doctype html><title>Sign in</title>", **{"Content-Type": "text/html"}):
            self.receiver.refuse("not_otlp", spans)

    def _hang(self, spans: list[Any]) -> None:
        self.receiver.keep(spans)  # and it says so too late: the spans come again
        self.receiver.changed.wait(60)
        self.close_connection = True

    def _reset(self, spans: list[Any]) -> None:
        if len(spans) % 2:
            self.receiver.keep(spans)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _down(self, _: list[Any]) -> None:
        self._reset([])

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> bool:
        """Send a response; False if the client is gone."""
        try:
            self.send_response_only(status)
            for name, value in {"Content-Type": "application/x-protobuf", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True
            return False
        return True

    def handle_one_request(self) -> None:
        """Handle a request; the client may leave at any time."""
        try:
            super().handle_one_request()
        except (OSError, ValueError):
            self.close_connection = True


class Server(ThreadingHTTPServer):
    """Listens on a port that it can leave and take again."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """A client that leaves is no error."""


def _listen(port: int) -> Server:
    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    return server


def main() -> None:
    """Listen, and do as standard input says."""
    receiver = Handler.receiver = Receiver()
    server: Server | None = _listen(0)
    assert server is not None
    port = server.server_port
    print(json.dumps({"port": port}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "behave" in command:
            receiver.behaviour = command["behave"]
            receiver.changed.set()
            if receiver.behaviour == "hang":
                receiver.changed.clear()
            if receiver.behaviour == "down" and server is not None:
                server.shutdown()
                server.server_close()
                server = None
            elif receiver.behaviour != "down" and server is None:
                server = _listen(port)
        print(json.dumps(receiver.as_dict()), flush=True)


if __name__ == "__main__":
    main()

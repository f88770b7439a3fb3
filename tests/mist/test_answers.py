"""Answers of a server to a message: which of them are a delivery."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import mttp
from mttp.errors import SendError
from mttp.mist.messages import Message

PING = Message.from_bytes(
    b'{"version":"1","id":"1","type":"health.ping","source":"a","timestamp_ns":1,"payload":{"from":"a"}}'
)


class Answering(BaseHTTPRequestHandler):
    """Answers each message with a success and the server's body."""

    def do_POST(self) -> None:
        """Answer a message."""
        self.rfile.read(int(self.headers["content-length"]))
        body = self.server.body  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """Return a server that answers."""
    server = HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("body", [b"", b"\n", b"[]", b"null", b'[{"passed": true}]'])
def test_nothing_and_json_are_deliveries(server: HTTPServer, body: bytes) -> None:
    """A receiver answers with nothing, or with the results of an evaluation."""
    server.body = body  # type: ignore[attr-defined]
    with mttp.mist.dial(f"mttp+http://127.0.0.1:{server.server_port}") as outlet:
        outlet.send(PING)


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"<?xml version='1.0'?><html/>", b"welcome"])
def test_a_page_is_no_delivery(server: HTTPServer, body: bytes) -> None:
    """A proxy or another program has answered."""
    server.body = body  # type: ignore[attr-defined]
    with mttp.mist.dial(f"mttp+http://127.0.0.1:{server.server_port}") as outlet:  # noqa: SIM117
        with pytest.raises(SendError, match="no answer of a receiver"):
            outlet.send(PING)

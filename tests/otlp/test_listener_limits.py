"""Every listener limits the size of a request's head and body, and the time of both."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from polling import SECONDS

import mttp
from mttp.otlp import app_server
from mttp.testing import OtlpReceiver
from mttp.viewing.live import LivePages
from mttp.viewing.server import serve


@contextmanager
def otlp_receiver() -> Iterator[tuple[int, str]]:
    """The receiver of `mttp.testing`."""
    with OtlpReceiver(max_http_bytes=1 << 16) as opened:
        yield int(opened.http_address.rpartition(":")[2]), "/v1/traces"


@contextmanager
def message_receiver() -> Iterator[tuple[int, str]]:
    """The receiver of messages."""
    with mttp.mist.receive("mttp+http://127.0.0.1:0?timeout=0.5&max_bytes=65536") as opened:
        yield int(opened.address.rpartition(":")[2]), "/mist"


@contextmanager
def live_pages() -> Iterator[tuple[int, str]]:
    """The server of `mttp view`."""
    with mttp.configure("file://run.jsonl"), mttp.episode() as episode:
        episode.reward(1.0)
    pages = LivePages(["run.jsonl"])
    pages.start()
    server = serve(pages, "127.0.0.1", 0)
    try:
        yield server.port, "/api/episodes"
    finally:
        server.close()
        pages.close()


LISTENERS = {"receiver": otlp_receiver, "messages": message_receiver, "view": live_pages}


@pytest.fixture(params=LISTENERS)
def ask(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[bytes, bytes], int]]:
    """Returns the status of the answer to a request with these headers, which may be incomplete."""
    for name in ("BODY_SECONDS", "IDLE_SECONDS"):
        monkeypatch.setattr(app_server, name, 0.5)
    monkeypatch.setattr("mttp.testing.receiver.BODY_SECONDS", 0.5)
    with ExitStack() as stack:
        port, path = stack.enter_context(LISTENERS[request.param]())

        def asked(headers: bytes, body: bytes) -> int:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            connection.sendall(head.encode() + headers + body)
            answer = connection.recv(1 << 16)
            return int(answer.split()[1]) if answer else 0

        yield asked


def test_a_head_has_a_size(ask: Callable[[bytes, bytes], int]) -> None:
    """
    64 KiB.
    """
    assert 431 == ask(b"X: " + b"x" * (app_server.HEAD_BYTES + 1), b"")


def test_a_head_has_a_time(ask: Callable[[bytes, bytes], int]) -> None:
    """
    The connection is closed, or answered 408.
    """
    assert ask(b"X: un", b"") in (0, 408)


def test_a_body_has_a_size(ask: Callable[[bytes, bytes], int]) -> None:
    """
    The query of a page is a wrong one.
    """
    assert ask(b"Content-Length: 200000\r\n\r\n", b"x" * 200_000) in (400, 413)


def test_a_body_has_a_time(ask: Callable[[bytes, bytes], int]) -> None:
    """
    It is answered, though it never ends.
    """
    assert 408 == ask(b"Content-Length: 10\r\n\r\n", b"{")

"""What comes from elsewhere, as a log and a terminal have it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

import mttp
from mttp.errors import ReadError, SendError
from mttp.mist.messages import HealthPing, Message
from mttp.model.printable import visible, visible_json

EVIL = "a\x1b[31mb\nc\x9bd\u202ee\u061cf\u2028g\x07"


@pytest.mark.parametrize("name", ["message", "argument"])
def test_log_records_have_no_control_characters(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    Whether it stands in the message or in an argument; a message is one line.
    """
    logger = logging.getLogger("mttp")
    if name == "message":
        logger.warning(EVIL)
    else:
        logger.warning("mttp: %s of %d", EVIL, 7)

    assert caplog.messages[0].isprintable()
    assert "[31mb" in caplog.messages[0]


def test_a_traceback_acts_on_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    """
    Its line breaks stay, and the exception's text is spelled out.
    """
    try:
        raise ValueError(EVIL)
    except ValueError:
        logging.getLogger("mttp").exception("mttp: it failed")

    assert "\\x1b[31mb" in caplog.text
    assert not set("\x1b\x9b\u202e\u061c\u2028\x07") & set(caplog.text)


def test_text_has_its_acting_characters_spelled_out() -> None:
    """
    Line breaks stay only where lines were asked for.
    """
    assert "a\\x1b[31mb⏎c\\x9bd\\u202ee\\u061cf\\u2028g\\x07" == visible(EVIL)
    assert "a\nb" == visible("a\nb", lines=True)


def test_a_document_reads_back_as_it_was() -> None:
    """
    With lone surrogates, too.
    """
    document = visible_json(json.dumps({EVIL: "\x7f\ud800"}, ensure_ascii=False))

    assert {EVIL: "\x7f\ud800"} == json.loads(document)
    assert document.isprintable()


@pytest.fixture
def port() -> Iterator[int]:
    """A server whose every answer is a redirect with escape sequences in its reason and its address."""
    head = b"HTTP/1.1 302 a\x1b[31mb\x9b1m\r\nLocation: http://h/\x1b[31m\x9b1m\r\n"

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.wfile.write(head + b"Content-Length: 0\r\n\r\n")

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_trace_stores_response_is_logged_on_one_line(port: int) -> None:
    """
    Its reason and where it leads to are in the error, without what acts on a terminal.
    """
    with pytest.raises(ReadError, match="302") as caught:
        mttp.read(f"jaeger://127.0.0.1:{port}?run=x")

    assert "it redirects to http://h/ [31m" in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_message_receivers_response_is_logged_on_one_line(port: int) -> None:
    """
    The reason is in the error, without what acts on a terminal.
    """
    sender = mttp.mist.dial(f"mttp+http://127.0.0.1:{port}", max_retry_seconds=0)
    with sender, pytest.raises(SendError, match="302") as caught:
        sender.send(Message.new("me", HealthPing(from_="me")))

    assert "a [31mb" in str(caught.value)
    assert str(caught.value).isprintable()

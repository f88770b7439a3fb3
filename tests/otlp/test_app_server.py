"""What any listener keeps to, whatever its app does: limits, ends that are heard, and other processes."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from polling import SECONDS, eventually
from vectors import LINES

import mttp
from mttp.errors import TransportError
from mttp.mist.messages import Message
from mttp.otlp.app_server import HEAD_BYTES, AppServer

PING = LINES["health_ping"]
REQUEST = b"POST /mist HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(PING), PING)


@pytest.fixture
def inbox() -> Iterator[mttp.mist.Receiver]:
    """A listener that gives up a body after half a second."""
    with mttp.mist.receive("mttp+http://127.0.0.1:0?timeout=0.5") as opened:
        yield opened


def connected(inbox: mttp.mist.Receiver) -> socket.socket:
    """A connection to it."""
    return socket.create_connection(("127.0.0.1", int(inbox.address.rpartition(":")[2])), timeout=SECONDS)


def until_end(connection: socket.socket) -> bytes:
    """What comes until the other side ends."""
    found = b""
    while piece := connection.recv(1 << 16):
        found += piece
    return found


def test_a_sender_that_sends_no_more_is_answered(inbox: mttp.mist.Receiver) -> None:
    """
    It ends its half of the connection, as `nc` does, and hears each answer, then the end.
    """
    with connected(inbox) as connection:
        connection.sendall(REQUEST * 3)
        connection.shutdown(socket.SHUT_WR)

        assert 3 == until_end(connection).count(b"HTTP/1.1 202 ")
    inbox.close()
    assert 3 == len(list(inbox))


def test_requests_that_come_at_once_are_answered_in_turn(inbox: mttp.mist.Receiver) -> None:
    """
    Before a caller waits for a response.
    """
    with connected(inbox) as connection:
        connection.sendall(REQUEST * 9 + b"GET /mist HTTP/1.1\r\nConnection: close\r\n\r\n")
        found = until_end(connection)

    statuses = [line.split()[1] for line in found.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    assert [b"202"] * 9 + [b"405"] == statuses


def test_an_offer_of_another_protocol_is_passed_over(inbox: mttp.mist.Receiver) -> None:
    """
    As Java's client makes it with the first request: the body is that of the request.
    """
    offer = b"Host: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    with connected(inbox) as connection:
        connection.sendall(REQUEST.replace(b"Host: h\r\n", offer))

        assert connection.recv(1 << 12).startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize(
    "endless",
    [b"X: " + b"a" * 4 * HEAD_BYTES, b"X: y\r\n" * HEAD_BYTES],
    ids=["one header", "many headers"],
)
@pytest.mark.parametrize(
    "before",
    [b"POST /mist HTTP/1.1\r\n", b"POST /mist HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"],
    ids=["head", "trailers"],
)
def test_headers_without_an_end_are_given_up(
    inbox: mttp.mist.Receiver, before: bytes, endless: bytes
) -> None:
    """
    Before the request and after its chunks; the sender hears why, though it went on.
    """
    with connected(inbox) as connection:
        connection.sendall(before + endless)

        assert until_end(connection).startswith(b"HTTP/1.1 431 ")


def test_a_chunk_size_without_an_end_is_given_up(inbox: mttp.mist.Receiver) -> None:
    """
    By its extensions it could go on forever.
    """
    with connected(inbox) as connection:
        connection.sendall(
            b"POST /mist HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 4 * HEAD_BYTES
        )

        assert until_end(connection).startswith(b"HTTP/1.1 431 ")


def test_a_body_without_an_end_is_not_read_forever(inbox: mttp.mist.Receiver) -> None:
    """
    A gigabyte in chunks is turned down after the bytes that a message may have, and cut off soon after that.
    """
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    sent = 0
    with connected(inbox) as connection, suppress(ConnectionError):
        connection.sendall(b"POST /mist HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        while sent < 1024:
            connection.sendall(chunk)
            sent += 1

    assert 10 <= sent < 200
    assert {"http_413": 1} == dict(inbox.stats.refused)


def test_what_comes_in_small_chunks_holds_up_no_other_client() -> None:
    """
    Half a million chunks of a byte each, while others send: these are answered before it is.
    """
    answers: list[bytes] = []

    def flood(connection: socket.socket) -> None:
        head = b"POST /mist HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"1\r\n \r\n" * 500_000 + b"0\r\n\r\n")
        answers.append(connection.recv(1 << 12))

    with (
        mttp.mist.receive("mttp+http://127.0.0.1:0") as inbox,
        connected(inbox) as connection,
        connected(inbox) as other,
    ):
        flooding = threading.Thread(target=flood, args=(connection,))
        flooding.start()
        meanwhile = 0
        while not answers:
            other.sendall(REQUEST)
            assert other.recv(1 << 12).startswith(b"HTTP/1.1 202 ")
            meanwhile += 1
        flooding.join()

    assert answers[0].startswith(b"HTTP/1.1 400 ")
    assert meanwhile > 5


@pytest.mark.parametrize("stated", ["", "Authorization: Bearer other\r\n", "Authorization: secret\r\n"])
def test_who_does_not_know_the_token_is_turned_down(stated: str) -> None:
    """
    Before the message is looked at; a sender states it as a header, and no error and no address repeats it.
    """
    with mttp.mist.receive("mttp+http://127.0.0.1:0?token=secret") as inbox:
        with connected(inbox) as connection:
            connection.sendall(REQUEST.replace(b"Host: h\r\n", stated.encode()))
            answer = until_end(connection)
        with mttp.mist.dial(inbox.address, headers={"authorization": "Bearer secret"}) as sender:
            sender.send(Message.from_bytes(PING))
        inbox.close()
        assert 1 == len(list(inbox))

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"secret" not in answer
    assert "secret" not in inbox.address
    assert {"http_401": 1} == dict(inbox.stats.refused)


def test_a_port_that_is_taken_repeats_no_token(inbox: mttp.mist.Receiver) -> None:
    """
    The error names the port.
    """
    with pytest.raises(TransportError) as taken:
        mttp.mist.receive(f"{inbox.address}?token=secret")

    assert "can't listen on 127.0.0.1, port" in str(taken.value)
    assert "secret" not in str(taken.value)


def test_two_listeners_are_apart() -> None:
    """
    In one process; the end of one is not the end of the other.
    """
    with (
        mttp.mist.receive("mttp+http://127.0.0.1:0") as one,
        mttp.mist.receive("mttp+http://127.0.0.1:0") as other,
    ):
        for inbox in (one, other, other):
            with mttp.mist.dial(inbox.address) as sender:
                sender.send(Message.from_bytes(PING))
        one.close()
        with mttp.mist.dial(other.address) as sender:
            sender.send(Message.from_bytes(PING))
        other.close()

        assert (1, 3) == (len(list(one)), len(list(other)))


def test_the_loggers_of_uvicorn_stay_as_they_are(
    inbox: mttp.mist.Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A program that is served by uvicorn itself keeps its logs, and noise that comes in adds nothing to them.
    """
    loggers = [logging.getLogger(f"uvicorn{name}") for name in ("", ".error", ".access", ".asgi")]
    with caplog.at_level(logging.INFO), connected(inbox) as connection:
        connection.sendall(b"GARBAGE\r\n\r\n")
        until_end(connection)
        inbox.close()

    assert [] == caplog.messages
    assert [(0, [], True)] * 4 == [(each.level, each.handlers, each.propagate) for each in loggers]


def test_what_an_app_raises_is_logged_and_ends_no_server(caplog: pytest.LogCaptureFixture) -> None:
    """
    The request is answered 500, with its traceback in the log.
    """

    async def app(scope: object, receive: object, send: object) -> None:
        raise LookupError("a bug")

    server = AppServer(app, name="broken")
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert until_end(connection).startswith(b"HTTP/1.1 500 ")
    server.close()
    server.close()

    assert 2 == caplog.text.count("LookupError: a bug")


def test_an_end_while_others_connect_loses_nothing() -> None:
    """
    Whatever was answered 202 is in the inbox; no connection stays open, or holds up the end.
    """
    for _ in range(20):
        inbox = mttp.mist.receive("mttp+http://127.0.0.1:0?capacity=10000")
        accepted: list[int] = []
        end = threading.Event()
        threads = [threading.Thread(target=send_on, args=(inbox, accepted, end)) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: accepted)  # noqa: B023 - called in this round
        inbox.close()
        end.set()
        for thread in threads:
            thread.join()

        assert len(accepted) <= len(list(inbox))


def send_on(inbox: mttp.mist.Receiver, accepted: list[int], end: threading.Event) -> None:
    """Send over one connection after the other, until the server has closed its port."""
    with suppress(OSError):
        while not end.is_set():
            with connected(inbox) as connection:
                connection.sendall(REQUEST)
                accepted += [1] * connection.recv(1 << 12).count(b" 202 ")


# Processes.


def printed(program: str) -> list[str]:
    """The lines that a program prints, with a listener `inbox` and a function `ask` at hand."""
    head = f"""
import os, socket, sys, time
import mttp
def ask(port, request={REQUEST!r}, timeout=100):
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    connection.sendall(request)
    return connection
inbox = mttp.mist.receive("mttp+http://127.0.0.1:0")
port = int(inbox.address.rpartition(":")[2])
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", head + program],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_takes_nothing_from_its_parent() -> None:
    """
    Its copy may be closed. The parent's goes on, and ends its connections and its port while the child lives.
    """
    program = """
idle = ask(port)
idle.recv(4096)
reading, writing = os.pipe()
child = os.fork()
if not child:
    inbox.close()
    os.write(writing, b"closed")
    time.sleep(60)
    os._exit(0)
os.read(reading, 6)
print(ask(port).recv(4096).split()[1].decode())
refused = ask(port, b"GET / HTTP/1.1\\r\\n\\r\\n")
while refused.recv(4096):
    pass
inbox.close()
print(idle.recv(1), len(list(inbox)))
try:
    ask(port)
except ConnectionRefusedError:
    print("nobody listens")
os.kill(child, 9)
"""
    assert ["202", "b'' 2", "nobody listens"] == printed(program)


@pytest.mark.skipif(sys.platform == "win32", reason="handles are limited otherwise")
def test_without_free_file_handles_it_waits() -> None:
    """
    It neither ends nor spins, and goes on once there are some; a second listener is an error at once.
    """
    program = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
senders = []
try:
    while True:
        senders.append(socket.create_connection(("127.0.0.1", port), timeout=100))
except OSError:
    pass
try:
    mttp.mist.receive("mttp+http://127.0.0.1:0")
except mttp.errors.TransportError as error:
    print(str(error).rpartition(": ")[2])
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before < 0.4)
for sender in senders:
    sender.close()
print(ask(port).recv(4096).split()[1].decode())
"""
    assert ["Too many open files", "True", "202"] == printed(program)


def test_a_program_may_end_without_closing() -> None:
    """
    Though connections are open.
    """
    assert ["202"] == printed("idle = ask(port)\nprint(idle.recv(4096).split()[1].decode())\n")


def test_without_the_extra_the_error_names_it() -> None:
    """
    For a listener and for the receiver of tests.
    """
    program = """
import sys
sys.modules["uvicorn"] = None
import mttp, mttp.testing
for code in ("mttp.mist.receive('mttp+http://127.0.0.1:0')", "mttp.testing.OtlpReceiver"):
    try:
        eval(code)
    except mttp.errors.MissingExtra as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * SECONDS
    )

    said = "listening needs starlette, uvicorn and httptools: pip install 'mttp[receive]'"
    assert [said, said] == done.stdout.splitlines(), done.stderr

"""A listener says honestly what it took, whatever is sent to it and however slowly."""

from __future__ import annotations

import http.client
import logging
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polling import SECONDS, eventually
from vectors import LINES

import mttp
from mttp.errors import ChecksumError, ConfigureError, EnvelopeError, TransportError, VersionError
from mttp.mist.messages import MAX_SIZE, HealthPing, Message, TraceSpan
from mttp.otlp import app_server

PING = LINES["health_ping"]


def pings(count: int) -> list[Message]:
    """Messages that are told apart by their ids."""
    return [
        Message.new("me", HealthPing(from_="me"), id=str(number), checksum=True) for number in range(count)
    ]


@pytest.fixture
def inbox() -> Iterator[mttp.mist.Receiver]:
    """A listener on a free port."""
    with mttp.mist.receive("mttp+http://127.0.0.1:0") as opened:
        yield opened


def connected(inbox: mttp.mist.Receiver, **options: Any) -> http.client.HTTPConnection:
    """A connection to it."""
    return http.client.HTTPConnection(inbox.address.removeprefix("mttp+http://"), timeout=SECONDS, **options)


def asked(
    inbox: mttp.mist.Receiver, body: Any, *, method: str = "POST", path: str = "/mist", **headers: str
) -> Any:
    """Status, text and headers of the answer to one request."""
    connection = connected(inbox)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named, encode_chunked="transfer-encoding" in named)
    response = connection.getresponse()
    found = response.status, response.read().decode(), response.headers
    connection.close()
    return found


def raw(inbox: mttp.mist.Receiver, *pieces: bytes, end: bool = False) -> bytes:
    """What is answered to bytes, until the connection is closed or says nothing more."""
    with socket.create_connection(("127.0.0.1", port(inbox)), timeout=SECONDS) as connection:
        for piece in pieces:
            connection.sendall(piece)
        if end:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        while more := connection.recv(1 << 16):
            found += more
            if b"\r\n\r\n" in found and b"connection: close" not in found.lower():
                break
        return found


def port(inbox: mttp.mist.Receiver) -> int:
    """Where it listens."""
    return int(inbox.address.rpartition(":")[2])


def taken(inbox: mttp.mist.Receiver) -> list[Message]:
    """What is in the inbox of a listener that is closed with that."""
    inbox.close()
    return list(inbox)


# What is answered.


def test_a_good_message_is_accepted(inbox: mttp.mist.Receiver) -> None:
    """
    And comes out as it went in.
    """
    assert (202, "") == asked(inbox, PING)[:2]
    assert [Message.from_bytes(PING)] == taken(inbox)
    assert 1 == inbox.stats.received


@pytest.mark.parametrize(
    ("body", "error", "kind"),
    [
        (b"", EnvelopeError, "envelope"),
        (b"{", EnvelopeError, "envelope"),
        (PING + PING, EnvelopeError, "envelope"),
        (b"\xef\xbb\xbf" + PING, EnvelopeError, "envelope"),
        (PING.replace(b'"mist-cli",', b'"",', 1), EnvelopeError, "envelope"),
        (PING.replace(b'"version":"1"', b'"version":"2"'), VersionError, "version"),
        (PING.replace(b'"from":"mist', b'"from":"mosd'), ChecksumError, "checksum"),
    ],
)
def test_a_message_that_may_not_be_trusted_is_turned_down(
    inbox: mttp.mist.Receiver, caplog: pytest.LogCaptureFixture, body: bytes, error: type, kind: str
) -> None:
    """
    With what is wrong, on both sides; the rest goes on.
    """
    with caplog.at_level(logging.WARNING, "mttp"):
        status, said, _ = asked(inbox, body)
        asked(inbox, body)
        assert 202 == asked(inbox, PING)[0]

        assert (400, True) == (status, bool(said.strip()))
        assert 1 == len(taken(inbox))
    assert {kind: 2} == dict(inbox.stats.errors)
    assert 1 == len(caplog.messages)
    assert said.strip() in caplog.text
    assert issubclass(error, Exception)


def test_errors_are_reported_with_their_place() -> None:
    """
    The number of the request, and who sent it; with `strict` they are raised, and one may go on after that.
    """
    seen: list[Any] = []
    with mttp.mist.receive("mttp+http://127.0.0.1:0", on_error=seen.append) as inbox:
        asked(inbox, PING)
        asked(inbox, b"{}")
        assert 1 == len(taken(inbox))
    with mttp.mist.receive("mttp+http://127.0.0.1:0", strict=True) as strict:
        asked(strict, b"{}")
        asked(strict, PING)
        with pytest.raises(EnvelopeError, match="version is missing"):
            next(strict)
        assert "mist-cli" == next(strict).source

    assert ["127.0.0.1:2"] == [str(line) for line in seen]
    assert "version is missing" == str(seen[0].error)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_not_to_be_had(inbox: mttp.mist.Receiver, method: str) -> None:
    """
    The header is sent for the path of messages, and for no other.
    """
    status, _, headers = asked(inbox, PING, method=method)

    assert (405, "POST") == (status, headers["allow"])
    assert 404 == asked(inbox, PING, method=method, path="/")[0]
    assert {"http_405": 1, "http_404": 1} == dict(inbox.stats.refused)


@pytest.mark.parametrize("path", ["/", "/mist/", "/MIST", "/v1/traces", "/mist/more"])
def test_messages_are_taken_at_one_path(inbox: mttp.mist.Receiver, path: str) -> None:
    """
    A query after it makes no difference.
    """
    assert 404 == asked(inbox, PING, path=path)[0]
    assert 202 == asked(inbox, PING, path="/mist?a=b")[0]


def test_a_head_is_answered_without_a_body(inbox: mttp.mist.Receiver) -> None:
    """
    As the protocol wants it.
    """
    assert (405, "") == asked(inbox, None, method="HEAD")[:2]


@pytest.mark.parametrize("size", [MAX_SIZE, MAX_SIZE + 1])
def test_the_largest_message(inbox: mttp.mist.Receiver, size: int) -> None:
    """
    Has that many bytes; one more is rejected before it is read, and the sender gets the response.
    """
    body = PING[:-1] + b" " * (size - len(PING)) + b"}"

    assert (202 if size == MAX_SIZE else 413) == asked(inbox, body)[0]


def test_a_smaller_limit() -> None:
    """
    Is set by the receiver, and holds for chunked bodies, too.
    """
    with mttp.mist.receive("mttp+http://127.0.0.1:0?max_bytes=200") as inbox:
        assert 202 == asked(inbox, PING)[0]
        assert 413 == asked(inbox, PING + b" " * 100)[0]
        chunks = iter([PING, b" " * 50, b" " * 50])
        assert 413 == asked(inbox, chunks, transfer_encoding="chunked")[0]

    assert {"http_413": 2} == dict(inbox.stats.refused)


def test_chunks_are_put_together(inbox: mttp.mist.Receiver) -> None:
    """
    Wherever they are cut; extensions and trailers are passed over.
    """
    for size in (1, 7, len(PING)):
        pieces = (PING[place : place + size] for place in range(0, len(PING), size))
        assert 202 == asked(inbox, pieces, transfer_encoding="chunked")[0]
    chunked = b"POST /mist HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%X;a=b\r\n%b\r\n0\r\nX: y\r\n\r\n"
    assert raw(inbox, chunked % (len(PING), PING)).startswith(b"HTTP/1.1 202")

    assert 4 == len(taken(inbox))


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        ("Content-Length: x", b"", 400),
        ("Content-Length: -1", b"", 400),
        ("Content-Length: 1_0", b"", 400),
        ("Content-Length: 99", b"{}", 400),
        ("Content-Length: 9999999999999999999", b"{}", 413),
        ("Content-Length: 99999999999999999999999999", b"{}", 400),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", b"{}", 400),
        ("Transfer-Encoding: gzip", b"{}", 400),
        ("Transfer-Encoding: chunked", b"2\r\n{}..\r\n0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked", b"zz\r\n", 400),
        ("Transfer-Encoding: chunked", b"-2\r\n{}", 400),
        ("Transfer-Encoding: chunked", b"2\r\n{", 400),
        ("Transfer-Encoding: chunked", b"9" * 5000, 400),
        ("Content-Length: 2\r\nContent-Encoding: gzip", b"{}", 415),
        ("X: y", b"", 411),
    ],
)
def test_a_body_without_a_clear_end_is_turned_down(
    inbox: mttp.mist.Receiver, head: str, body: bytes, status: int
) -> None:
    """
    And its connection is closed, since the start of the next request is unknown.
    """
    answer = raw(inbox, f"POST /mist HTTP/1.1\r\n{head}\r\n\r\n".encode(), body, end=True)

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in answer.lower()
    assert [] == taken(inbox)


def test_what_is_not_http_is_no_matter(inbox: mttp.mist.Receiver) -> None:
    """
    A client that sends that, or disconnects, disturbs no others.
    """
    for noise in (b"\x16\x03\x01\x02\x00", b"\r\n" * 10, b"GET\r\n\r\n", b""):
        raw(inbox, noise, end=True)

    assert 202 == asked(inbox, PING)[0]


# When there is no room, or no time.


def test_a_full_inbox_asks_to_come_again() -> None:
    """
    What it answers 202 to it keeps, and nothing else; a sender with patience loses nothing.
    """
    with mttp.mist.receive("mttp+http://127.0.0.1:0?capacity=2") as inbox:
        answers = [asked(inbox, PING) for _ in range(3)]
        assert [202, 202, 503] == [status for status, _, _ in answers]
        assert "1" == answers[2][2]["retry-after"]
        with ThreadPoolExecutor(1) as pool, mttp.mist.dial(inbox.address) as sender:
            sent = pool.submit(lambda: [sender.send(message) for message in pings(3)])
            found = [next(inbox).id for _ in range(5)]
            sent.result(SECONDS)

    assert ["0", "1", "2"] == found[2:]
    assert inbox.stats.refused["http_503"] >= 1


@pytest.mark.parametrize(
    "slow",
    [
        b"POST /mist HTTP/1.1\r\nContent-Length: 1000\r\n\r\n",
        b"POST /mist HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_slow_message_is_given_up(slow: bytes) -> None:
    """
    However slowly its bytes come: it is the whole that must come in time.
    """
    with mttp.mist.receive("mttp+http://127.0.0.1:0?timeout=0.3") as inbox:
        with socket.create_connection(("127.0.0.1", port(inbox)), timeout=SECONDS) as connection:
            connection.sendall(slow)
            stop = threading.Event()

            def drip() -> None:
                while not stop.wait(0.02):
                    try:
                        connection.sendall(b"1")
                    except OSError:
                        return

            thread = threading.Thread(target=drip)
            thread.start()
            answer = connection.recv(1 << 16)
            stop.set()
            thread.join()
        assert 202 == asked(inbox, PING)[0]

    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Or not a whole request.
    """
    monkeypatch.setattr(app_server, "IDLE_SECONDS", 0.2)
    with mttp.mist.receive("mttp+http://127.0.0.1:0") as inbox:
        for begun in (b"", b"POST /mist HTTP/1.1\r\nX: "):
            with socket.create_connection(("127.0.0.1", port(inbox)), timeout=SECONDS) as connection:
                connection.sendall(begun)

                assert b"" == connection.recv(1)


def test_many_connections_at_once(inbox: mttp.mist.Receiver) -> None:
    """
    Each with several messages, and none is lost.
    """
    expected = [message.id for message in pings(240)]

    def send(messages: list[Message]) -> None:
        with mttp.mist.dial(inbox.address) as sender:
            for message in messages:
                sender.send(message)

    with ThreadPoolExecutor(41) as pool:
        done = [pool.submit(send, pings(240)[place::40]) for place in range(40)]
        found = sorted((next(inbox).id for _ in expected), key=int)
        for each in done:
            each.result(SECONDS)

    assert expected == found


def test_one_connection_too_many_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Until another ends; those that there are go on.
    """
    monkeypatch.setattr(app_server, "CONNECTIONS", 1)
    with mttp.mist.receive("mttp+http://127.0.0.1:0") as inbox, ThreadPoolExecutor(1) as pool:
        first = connected(inbox)
        first.request("POST", "/mist", PING)
        assert b"" == first.getresponse().read()
        second = pool.submit(asked, inbox, PING)
        first.request("POST", "/mist", PING)
        assert b"" == first.getresponse().read()
        assert not second.done()
        first.close()

        assert 202 == second.result(SECONDS)[0]


def test_what_was_received_may_be_read(inbox: mttp.mist.Receiver) -> None:
    """
    As a recording; a payload that is no span is an error, and other messages are none.
    """
    with mttp.configure(inbox.address), mttp.episode(env="sent"):
        pass
    asked(inbox, PING)
    asked(inbox, Message(id="i", source="s", type="trace.span", payload=b"[]").to_bytes())
    inbox.close()
    recording = mttp.read(inbox)

    assert ["sent"] == [episode.env for episode in recording]
    assert {"payload": 1} == dict(inbox.stats.errors)


# Ends.


def test_the_end_keeps_what_was_taken() -> None:
    """
    It may be iterated over after that; closing twice is allowed, and the port is free.
    """
    inbox = mttp.mist.receive("mttp+http://127.0.0.1:0")
    idle = connected(inbox)
    idle.connect()
    asked(inbox, PING)
    inbox.close()
    inbox.close()

    assert b"" == idle.sock.recv(1)
    assert 1 == inbox.pending
    assert ["mist-cli"] == [message.source for message in inbox]
    with pytest.raises(ConnectionRefusedError):
        asked(inbox, PING)
    idle.close()


def test_the_end_lets_go_of_whoever_waits(inbox: mttp.mist.Receiver) -> None:
    """
    From another thread.
    """
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(list, inbox)
        inbox.close()

        assert [] == found.result(SECONDS)


def test_a_message_that_comes_at_the_end_is_asked_to_come_again(inbox: mttp.mist.Receiver) -> None:
    """
    Half a message is none, and is the listener's fault.
    """
    with socket.create_connection(("127.0.0.1", port(inbox)), timeout=SECONDS) as connection:
        connection.sendall(b"POST /mist HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{")
        assert eventually(lambda: inbox._origin._inbox._reading)
        inbox.close()

        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 503 ")


# Addresses.


def test_it_listens_to_this_machine_alone_unless_reported_otherwise() -> None:
    """
    The port 0 is a free one, which the address says.
    """
    with (
        mttp.mist.receive("mttp+http://:0") as one,
        mttp.mist.receive("mttp+http://localhost:0/mist") as other,
    ):
        assert one.address.startswith("mttp+http://127.0.0.1:")
        assert port(other) not in (0, port(one))
        assert repr(one) == f"<mttp.mist.Receiver at {one.address}>"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mttp+http://127.0.0.1", "a listener needs a host and a port"),
        ("mttp+http://127.0.0.1:0/other", "a listener needs a host and a port"),
        ("mttp+http://a:b@127.0.0.1:0", "a listener needs a host and a port"),
        ("mttp+http://127.0.0.1:http", "could not be cast"),
        ("mttp+http://192.0.2.1:0", "can't listen on 192.0.2.1, port 0"),
        ("mttp+http://127.0.0.1:0?timeout=-1", "expected a number of seconds"),
        (
            "mttp+http://127.0.0.1:0?size=1",
            "known are capacity, max_bytes, timeout, max_unfinished_bytes, token",
        ),
        ("mttp+https://127.0.0.1:0", "can't receive at 'mttp+https://127.0.0.1:0'"),
        ("file://a.jsonl", "can't receive at 'file://a.jsonl'; supported are mttp+http://, "),
        ("nothing", "can't receive at 'nothing'"),
    ],
)
def test_wrong_addresses_are_errors_at_once(url: str, said: str) -> None:
    """
    That say what is wrong.
    """
    with pytest.raises(TransportError) as wrong:
        mttp.mist.receive(url)

    assert said in str(wrong.value)


def test_a_port_that_is_taken_is_an_error_at_once(inbox: mttp.mist.Receiver) -> None:
    """
    It says which.
    """
    with pytest.raises(TransportError, match=f"can't listen on 127.0.0.1, port {port(inbox)}"):
        mttp.mist.receive(inbox.address)


def test_on_error_is_a_function() -> None:
    """
    Anything else is an error at once.
    """
    with pytest.raises(ConfigureError, match="on_error=3 is not a function"):
        mttp.mist.receive("chan://a", on_error=3)  # type: ignore[arg-type]


# Whatever comes.


@pytest.fixture(scope="module")
def target() -> Iterator[mttp.mist.Receiver]:
    """A listener for many requests."""
    with mttp.mist.receive("mttp+http://127.0.0.1:0?capacity=100000") as opened:
        yield opened


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(LINES)), st.data())
def test_a_flipped_byte_is_never_a_message_with_a_wrong_checksum(
    target: mttp.mist.Receiver, name: str, data: Any
) -> None:
    """
    It is turned down, or it changed nothing that the checksum covers.
    """
    line = bytearray(LINES[name])
    place = data.draw(st.integers(0, len(line) - 1))
    line[place] ^= data.draw(st.integers(1, 255))
    before = target.stats.received
    status, _, _ = asked(target, bytes(line))
    assert status in (202, 400)
    if status == 202:
        message = next(target)
        original = Message.from_bytes(LINES[name])
        assert message.payload == original.payload or not message.checksum
        message.verify_checksum()
    assert (before + (status == 202)) == target.stats.received


def test_random_requests_crash_nothing(inbox: mttp.mist.Receiver) -> None:
    """
    Of bytes that look like requests, cut and changed anywhere.
    """
    chance = random.Random(5)
    whole = b"POST /mist HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(PING), PING)
    for _ in range(60):
        changed = bytearray(whole[: chance.randrange(len(whole))])
        for _ in range(chance.randrange(4)):
            if changed:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
        raw(inbox, bytes(changed), end=True)

    assert 202 == asked(inbox, PING)[0]


def test_spans_of_every_size_arrive(inbox: mttp.mist.Receiver) -> None:
    """
    From nothing to a megabyte.
    """
    with mttp.mist.dial(inbox.address, max_bytes="2MiB") as sender:
        for size in (0, 1, 1 << 10, 1 << 16, 1 << 20):
            sender.send(Message.new("me", TraceSpan(operation="x" * size), checksum=True))

    assert [0, 1, 1 << 10, 1 << 16, 1 << 20] == [len(each.decode().operation) for each in taken(inbox)]

"""What a listener holds in memory while many bodies come in at the same time."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest
from polling import SECONDS, eventually

import mttp
from mttp.mist.messages import MAX_SIZE, HealthPing, Message, TraceSpan
from mttp.mist.receiving import listener

MIB = 2**20
PING = Message.new("me", HealthPing(), checksum=True).to_bytes()

PROGRAM = """
import sys
import mttp

with mttp.mist.receive(sys.argv[1]) as inbox:
    print(inbox.address, flush=True)
    for asked in sys.stdin:
        with open("/proc/self/status") as file:
            status = dict(line.split(":", 1) for line in file)
        print(int(status["VmHWM"].split()[0]) * 1024, inbox.stats.refused["http_503"], flush=True)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")


class Listening:
    """A listener in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._line()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.address.rpartition(":")[2])

    def measured(self) -> tuple[int, int]:
        """The most memory that it ever had, in bytes, and how many requests it answered by 503."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        peak, refused = self._line().split()
        return int(peak), int(refused)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def listening(options: str = "") -> Iterator[Listening]:
    """A listener that takes no message out of its inbox."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"mttp+http://127.0.0.1:0?timeout={SECONDS}{options}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Listening(process)
    finally:
        process.kill()
        process.communicate()


def unfinished(port: int, head: bytes, body: bytes) -> tuple[socket.socket, bytes]:
    """A connection over which a request came but for its end, and what was answered to it so far."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    try:
        connection.sendall(b"POST /mist HTTP/1.1\r\nHost: h\r\n" + head)
        for start in range(0, len(body), MIB):
            if select.select([connection], [], [], 0)[0]:
                break
            connection.sendall(body[start : start + MIB])
    except ConnectionError:
        pass  # the listener has heard enough
    return connection, answer(connection)


def answer(connection: socket.socket) -> bytes:
    """What was answered so far."""
    try:
        return connection.recv(1 << 12) if select.select([connection], [], [], 0)[0] else b""
    except ConnectionError:
        return b""


@pytest.mark.parametrize("connections", [80, pytest.param(500, marks=pytest.mark.long)])
def test_unfinished_bodies_have_a_limit_for_all_together(connections: int) -> None:
    """
    80 bodies of 10 MiB, and 500, that lack their last byte: those beyond the limit are answered by 503.
    """
    head = b"Content-Length: %d\r\n\r\n" % MAX_SIZE
    body = b" " * (MAX_SIZE - 1)
    with listening() as listener_, ExitStack() as opened:
        before, _ = listener_.measured()
        for _ in range(connections):
            connection, _ = unfinished(listener_.port, head, body)
            opened.enter_context(connection)
        held = listener.MAX_UNFINISHED_BYTES // MAX_SIZE
        eventually(lambda: listener_.measured()[1] >= connections - held)
        peak, refused = listener_.measured()

    assert held - 5 <= connections - refused <= held
    assert listener.MAX_UNFINISHED_BYTES * 0.7 < peak - before < listener.MAX_UNFINISHED_BYTES * 1.7
    print(f"{connections} unfinished bodies: {(peak - before) // MIB} MiB")


def test_small_chunks_take_no_more_memory_than_large_ones() -> None:
    """
    A body of 0.5 MiB in chunks of two bytes takes a few times its bytes, and not fifty of each chunk.
    """
    body = b"2\r\n  \r\n" * (MIB // 4)
    with listening() as listener_:
        before, _ = listener_.measured()
        connection, _ = unfinished(listener_.port, b"Transfer-Encoding: chunked\r\n\r\n", body)
        with connection:
            connection.sendall(b"0\r\n\r\n")
            answered = connection.recv(1 << 12)
            peak, _ = listener_.measured()

    assert b"HTTP/1.1 400 " == answered[:13]
    assert peak - before < 8 * MIB


def test_headers_have_a_limit_all_together() -> None:
    """
    A hundred headers of almost 64 KiB each are not held.
    """
    header = b"x: " + b"a" * 60_000 + b"\r\n"
    with listening() as listener_:
        connection, answered = unfinished(listener_.port, b"", header * 50)
        with connection:
            answered = answered or connection.recv(1 << 12)

    assert b"HTTP/1.1 431 " == answered[:13]


def test_what_is_given_up_gives_its_space_back() -> None:
    """
    A body that breaks off, one that takes too long, and one that was taken leave room for the next.
    """
    with mttp.mist.receive(
        "mttp+http://127.0.0.1:0?max_bytes=1MiB&max_unfinished_bytes=1MiB&timeout=0.5"
    ) as inbox:
        port = int(inbox.address.rpartition(":")[2])
        head = b"Content-Length: %d\r\n\r\n" % MIB
        with unfinished(port, head, b" " * (MIB - 1))[0] as slow:
            turned_down = slow.recv(1 << 12)
        with unfinished(port, head, b" " * (MIB - 1))[0] as broken:
            broken.shutdown(socket.SHUT_WR)
            broke_off = broken.recv(1 << 12)
        for _ in range(3):
            with unfinished(port, head, b" " * (MIB - len(PING)))[0] as whole:
                whole.sendall(PING)
                taken = whole.recv(1 << 12)

    assert [b"408", b"400", b"202"] == [found[9:12] for found in (turned_down, broke_off, taken)]


def test_a_sender_that_is_asked_to_retry_loses_nothing() -> None:
    """
    8 senders with a message of 0.9 MB each, and space that others take at first: each message comes in once.
    """
    span = TraceSpan(trace_id="7", span_id="8", operation="o", start_ns=1, end_ns=2, status="ok")
    span = TraceSpan(**{**vars(span), "attrs": {"text": "x" * 900_000}})
    messages = [Message.new("me", span, id=str(number)) for number in range(8)]
    found: list[str] = []
    with mttp.mist.receive(
        "mttp+http://127.0.0.1:0?max_bytes=1MB&max_unfinished_bytes=2MB&timeout=60"
    ) as inbox:
        reader = Thread(target=lambda: found.extend(message.id for message in inbox))
        reader.start()

        def send(message: Message) -> None:
            with mttp.mist.dial(
                f"{inbox.address}?max_bytes=1MB&timeout=60", max_retry_seconds=SECONDS
            ) as sender:
                sender.send(message)

        port = int(inbox.address.rpartition(":")[2])
        body = b" " * 950_000
        others = [
            unfinished(port, b"Content-Length: %d\r\n\r\n" % (len(body) + 1), body)[0] for _ in range(2)
        ]
        with ThreadPoolExecutor(len(messages)) as senders:
            sent = [senders.submit(send, message) for message in messages]
            assert eventually(lambda: inbox.stats.refused["http_503"] > 0)
            for other in others:
                other.close()
            for one in sent:
                one.result()
    reader.join()

    assert sorted(message.id for message in messages) == sorted(found)


@pytest.mark.parametrize("options", ["max_unfinished_bytes=1MB", "max_bytes=2MB&max_unfinished_bytes=1MB"])
def test_a_limit_below_one_message_is_refused(options: str) -> None:
    """
    With such a limit the largest message would be turned down for ever.
    """
    with pytest.raises(mttp.errors.TransportError, match="the largest messages could never be received"):
        mttp.mist.receive(f"mttp+http://127.0.0.1:0?{options}")

"""Faults of receivers and of the network."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from faults.account import Account, arrived_at, arrived_in_files, recording
from faults.scene import fault
from mttp.testing import Behaviour, OtlpReceiver

DOWN = Behaviour(status=503)


def _behaving(
    *behaviours: Behaviour, options: str = "", then: bool = True, timeout: float | None = None
) -> Account:
    """The account of a receiver that behaves so while a session records, and then well if `then`."""
    account = Account()
    with OtlpReceiver() as receiver:
        with recording(f"{receiver.http_address}?timeout=5{options}", account, timeout=timeout) as loop:
            loop.train()
            loop.session.flush(5)
            receiver.behave(*behaviours, forever=True)
            loop.train(0.4)
            loop.session.flush(1)
            if then:
                receiver.behave()
                receiver.release()
                loop.train()
        account.arrived = arrived_at(receiver)
    return account


@fault("The collector is down, and then up.", "All spans arrive once it is up.")
def collector_down(folder: Path) -> Account:
    account = Account()
    with OtlpReceiver() as receiver, Network(receiver) as network:
        network.is_up = False
        with recording(network.address, account) as loop:
            loop.train()
            assert not loop.session.flush(0.5)
            network.is_up = True
            loop.train()
        account.arrived = arrived_at(receiver)
    account.check()
    return account


@fault(
    "The collector is down until the process ends.",
    "The spans that were not sent are counted as `write_failed`.",
)
def collector_down_to_the_end(folder: Path) -> Account:
    account = _behaving(DOWN, then=False)
    account.check(lost=["write_failed"])
    return account


@fault(
    "The collector is down until the process ends, and there is a spool.",
    "The spans that were not sent wait on disk.",
)
def collector_down_with_a_spool(folder: Path) -> Account:
    account = _behaving(DOWN, then=False, options=f"&spool={folder}/spool")
    account.check(pending=True)
    waiting = arrived_in_files(*(folder / "spool").rglob("*.jsonl"))
    assert account.pending == len(waiting) == waiting.total()
    assert not set(waiting) & set(account.arrived)
    account.note = f"{len(waiting):,} in the spool's files"
    return account


@fault(
    "The collector is down until the process ends; another process has the same spool.",
    "The other process sends the spans.",
)
def a_spool_is_taken_over(folder: Path) -> Account:
    first, second = Account(), Account()
    with OtlpReceiver() as receiver:
        address = f"{receiver.http_address}?spool={folder}/spool"
        receiver.behave(DOWN, forever=True)
        with recording(address, first) as loop:
            loop.train()
        first.check(pending=True)
        receiver.behave()
        with recording(address, second) as loop:
            loop.train()
        second.arrived = arrived_at(receiver)
        forwarded = loop.session.stats.forwarded
    assert first.pending == forwarded["delivered"] == forwarded.total()
    assert second.delivered + first.pending == len(second.arrived) == second.arrived.total()
    second.note = f"{first.pending:,} of them from the ended process"
    return second


@fault("The collector takes half a second for each answer.", "Recording does not wait for it.")
def collector_slow(folder: Path) -> Account:
    account = Account()
    with OtlpReceiver() as receiver, Network(receiver, delay=0.5) as network:
        with recording(network.address, account, timeout=20) as loop:
            loop.train(1.5)
        account.arrived = arrived_at(receiver)
    account.check()
    account.note = f"the slowest episode took {account.longest * 1e3:.0f} ms"
    return account


@fault(
    "The collector takes a request and never answers.", "The request ends at its timeout, and is sent again."
)
def collector_hangs(folder: Path) -> Account:
    account = Account()
    with OtlpReceiver() as receiver:
        with recording(f"{receiver.http_address}?timeout=2", account) as loop:
            receiver.behave(Behaviour(hang=True, status=503), forever=True)
            loop.train(60, until=lambda: len(receiver.requests) > 1)
            receiver.behave()
            receiver.release()
            loop.train()
        account.arrived = arrived_at(receiver)
    account.check(again=True)  # on a busy machine two seconds may not be enough for an answer
    return account


@fault(
    "The collector keeps spans and breaks the connection before it answers.",
    "Spans that arrive twice count once.",
)
def connection_breaks(folder: Path) -> Account:
    account = _behaving(*[Behaviour(reset=True)] * 3, Behaviour())
    account.check(again=True)
    return account


def _refusing(status: int) -> Account:
    account = _behaving(*[Behaviour(status=status)] * 2, Behaviour())
    account.check(lost=[f"http_{status}"])
    return account


@fault("The collector answers 400 twice.", "The refused spans are counted by status; all others arrive.")
def status_400(folder: Path) -> Account:
    return _refusing(400)


@fault("The collector answers 401 twice.", "The refused spans are counted by status; all others arrive.")
def status_401(folder: Path) -> Account:
    return _refusing(401)


@fault("The collector answers 500 twice.", "The refused spans are counted by status; all others arrive.")
def status_500(folder: Path) -> Account:
    return _refusing(500)


@fault("The collector answers 413 to large requests.", "The requests are halved until they fit.")
def status_413(folder: Path) -> Account:
    account = _behaving(*[Behaviour(status=413)] * 3, Behaviour())
    account.check()
    return account


@fault(
    "The collector answers 503 with Retry-After.",
    "Nothing is sent before that time; everything is sent after it.",
)
def retry_after(folder: Path) -> Account:
    account = Account()
    with OtlpReceiver() as receiver:
        with recording(receiver.http_address, account) as loop:
            receiver.behave(Behaviour(status=503, retry_after=1))
            loop.train(60, until=lambda: len(receiver.requests) > 1)
            refused, taken = receiver.requests[:2]
            assert taken.time - refused.time >= 1
            loop.train()
        account.arrived = arrived_at(receiver)
    account.check()
    return account


@fault("The collector accepts a part of a request.", "The rejected spans are counted as `partial_success`.")
def partial_success(folder: Path) -> Account:
    account = _behaving(Behaviour(rejected=3), Behaviour(rejected=2), Behaviour())
    account.check(lost=["partial_success"])
    assert 5 == account.lost["partial_success"]
    return account


@fault(
    "Another server answers 200 with a body of garbage.",
    "The spans are counted as `not_otlp`: no receiver has them.",
)
def garbage(folder: Path) -> Account:
    return _answering(b"\xff\xff\xff\x00garbage")


@fault("A proxy answers 200 with a page.", "The spans are counted as `not_otlp`: no receiver has them.")
def html_page(folder: Path) -> Account:
    return _answering(b"<!DOCTYPE html><html>log in</html>")


def _answering(body: bytes) -> Account:
    """The account of a session whose requests another server answers for some time."""
    account = Account()
    with OtlpReceiver() as receiver, Network(receiver) as network:
        network.page = body
        with recording(network.address, account) as loop:
            loop.train()
            assert not loop.session.flush(5)
            network.page = b""
            loop.train()
        account.arrived = arrived_at(receiver)
    account.check(lost=["not_otlp"])
    return account


@fault(
    "The host name is not known.",
    "Spans wait for the name; when the session closes, they are counted as `write_failed`.",
)
def unknown_host(folder: Path) -> Account:
    account = Account()
    with recording("http://nowhere.invalid:4318", account) as loop:
        loop.train()
        assert not loop.session.flush(1)
    account.check(lost=["write_failed"])
    return account


class Network:
    """A network before a receiver: it refuses connections, or delays what it forwards."""

    def __init__(self, receiver: OtlpReceiver, delay: float = 0.0) -> None:
        self.is_up = True
        self.page = b""
        """What every request gets as its answer, if it is not empty."""
        self._delay = delay
        self._target = int(receiver.http_address.rpartition(":")[2])
        self._port = 0

    def __enter__(self) -> Network:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self.is_up:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
                    continue
                if self.page:
                    _answer(client, self.page)
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                for source, sink, delay in ((client, server, 0.0), (server, client, self._delay)):
                    threading.Thread(target=_forward, args=(source, sink, delay), daemon=True).start()


def _answer(client: socket.socket, page: bytes) -> None:
    """Read a request and respond with a page."""
    with client, client.makefile("rb") as request:
        length = 0
        while (line := request.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        request.read(length)
        head = f"content-type: text/html\r\ncontent-length: {len(page)}\r\nconnection: close\r\n\r\n"
        client.sendall(b"HTTP/1.1 200 OK\r\n" + head.encode() + page)


def _forward(source: socket.socket, sink: socket.socket, delay: float) -> None:
    with source, suppress(OSError):
        while data := source.recv(1 << 16):
            time.sleep(delay)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

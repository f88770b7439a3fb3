"""Messages from files, those that grow among them, and from standard input."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from polling import SECONDS, eventually
from vectors import LINES

import mttp
from mttp.errors import EnvelopeError, ReadError, TransportError
from mttp.mist.messages import MAX_SIZE, HealthPing, Message

PING = LINES["health_ping"]


def line(number: int) -> bytes:
    """The line of a message with a distinct number."""
    return Message.new("me", HealthPing(), id=str(number), checksum=True).to_bytes() + b"\n"


def ids(receiver: mttp.mist.Receiver) -> list[str]:
    """Which messages are received until the end."""
    return [message.id for message in receiver]


def test_a_file_is_read_to_its_end() -> None:
    """
    Lines may end as elsewhere, and empty ones are nothing.
    """
    Path("a.jsonl").write_bytes(line(0) + b"\n" + line(1).replace(b"\n", b"\r\n") + line(2)[:-1])
    with mttp.mist.receive("mttp+file://a.jsonl") as receiver:
        assert ["0", "1", "2"] == ids(receiver)
        assert (3, 0) == (receiver.stats.received, receiver.pending)


def test_a_bad_line_is_one_error_and_the_rest_goes_on() -> None:
    """
    With its file and its number.
    """
    seen: list[Any] = []
    Path("a.jsonl").write_bytes(
        line(0) + b"{}\n" + line(1).replace(b'"1"', b'"9"', 1) + line(2) + line(3)[:30]
    )
    receiver = mttp.mist.receive("mttp+file://a.jsonl", on_error=seen.append)

    assert ["0", "2"] == ids(receiver)
    assert ["a.jsonl:2", "a.jsonl:3", "a.jsonl:5"] == [str(found) for found in seen]
    assert {"envelope": 2, "version": 1} == dict(receiver.stats.errors)


def test_strict_stops_at_the_first() -> None:
    """
    By raising what is wrong.
    """
    Path("a.jsonl").write_bytes(line(0) + b"{}\n")
    receiver = mttp.mist.receive("mttp+file://a.jsonl", strict=True)

    assert "0" == next(receiver).id
    with pytest.raises(EnvelopeError, match="version is missing"):
        next(receiver)


@pytest.mark.parametrize("address", ["runs/", "runs/*.gz", "runs/a.jsonl.gz"])
def test_compressed_files_patterns_and_directories(address: str) -> None:
    """
    And the parts in which a file went on.
    """
    Path("runs").mkdir()
    Path("runs/a.jsonl.gz").write_bytes(gzip.compress(line(0)) + gzip.compress(line(1)))
    Path("runs/a.1.jsonl.gz").write_bytes(gzip.compress(line(2)))

    assert ["0", "1", "2"] == ids(mttp.mist.receive(f"mttp+file://{address}"))


def test_a_compressed_file_that_is_cut_is_one_error() -> None:
    """
    What stands before that was received.
    """
    Path("a.jsonl.gz").write_bytes(gzip.compress(line(0) + line(1)) + gzip.compress(line(2) * 9)[:-9])
    receiver = mttp.mist.receive("mttp+file://a.jsonl.gz")

    assert ["0", "1"] == ids(receiver)[:2]
    assert {"envelope": 1} == dict(receiver.stats.errors)


def test_the_end_is_between_two_messages() -> None:
    """
    A file can be opened and read again.
    """
    Path("a.jsonl").write_bytes(line(0) + line(1))
    receiver = mttp.mist.receive("mttp+file://a.jsonl")
    assert "0" == next(receiver).id
    receiver.close()
    receiver.close()

    assert [] == ids(receiver)
    assert ["0", "1"] == ids(mttp.mist.receive("mttp+file://a.jsonl"))


def test_files_that_are_not_there() -> None:
    """
    Are errors at once, unless they are waited for.
    """
    with pytest.raises(ReadError, match="does not exist"):
        mttp.mist.receive("mttp+file://nowhere.jsonl")
    with pytest.raises(TransportError, match="no path"):
        mttp.mist.receive("mttp+file://")
    with pytest.raises(TransportError, match="unknown option 'tail'; known are follow"):
        mttp.mist.receive("mttp+file://a", tail=True)
    with pytest.raises(TransportError, match="expected true or false"):
        mttp.mist.receive("mttp+file://a?follow=perhaps")


# A file that grows.


@pytest.fixture
def followed() -> Iterator[SimpleNamespace]:
    """A file that is followed, and what was received so far; nothing is there yet."""
    receiver = mttp.mist.receive("mttp+file://a.jsonl", follow=True)
    found: list[str] = []

    def go_on() -> None:
        for message in receiver:
            found.append(message.id)

    with ThreadPoolExecutor(1) as pool:
        done: Future[None] = pool.submit(go_on)
        try:
            yield SimpleNamespace(receiver=receiver, found=found, done=done)
        finally:
            receiver.close()
            done.result(SECONDS)


def append(content: bytes) -> None:
    """Write more."""
    with Path("a.jsonl").open("ab") as file:
        file.write(content)


def test_what_is_appended_is_received(followed: SimpleNamespace) -> None:
    """
    From a file that was not there at first; half a line is none until the rest of it has come.
    """
    append(line(0) + line(1)[:30])
    assert eventually(lambda: followed.found == ["0"])
    append(line(1)[30:] + b"{}\n" + line(2)[:-1])
    assert eventually(lambda: dict(followed.receiver.stats.errors) == {"envelope": 1})
    assert ["0", "1"] == followed.found
    append(b"\n")

    assert eventually(lambda: followed.found == ["0", "1", "2"])


def test_a_half_line_is_an_error_at_the_end_alone(followed: SimpleNamespace) -> None:
    """
    When no reader waits for the rest.
    """
    append(line(0) + line(1)[:30])
    assert eventually(lambda: followed.found == ["0"])
    assert {} == dict(followed.receiver.stats.errors)
    followed.receiver.close()
    followed.done.result(SECONDS)

    assert {"envelope": 1} == dict(followed.receiver.stats.errors)


def test_a_whole_line_without_its_end_is_a_message_at_the_end(followed: SimpleNamespace) -> None:
    """
    A writer may have left out the end of the last line.
    """
    append(line(0) + line(1)[:-1])
    assert eventually(lambda: followed.found == ["0"])
    followed.receiver.close()
    followed.done.result(SECONDS)

    assert ["0", "1"] == followed.found


def test_a_file_that_was_replaced_is_read_anew(followed: SimpleNamespace) -> None:
    """
    After what was still to be read of the old one; and so is one that was written anew.
    """
    append(line(0))
    assert eventually(lambda: followed.found == ["0"])
    append(line(1))
    Path("b.jsonl").write_bytes(line(2) + line(3))
    Path("b.jsonl").replace("a.jsonl")
    assert eventually(lambda: followed.found == ["0", "1", "2", "3"])
    Path("a.jsonl").write_bytes(line(4))

    assert eventually(lambda: followed.found == ["0", "1", "2", "3", "4"])


def test_a_line_that_is_too_long_is_one_error(followed: SimpleNamespace) -> None:
    """
    And is never held whole.
    """
    append(b"x" * (MAX_SIZE + 10))
    append(b"x" * 100 + b"\n" + line(0))

    assert eventually(lambda: followed.found == ["0"])
    assert {"envelope": 1} == dict(followed.receiver.stats.errors)


def test_what_can_not_be_followed() -> None:
    """
    Is an error at once.
    """
    Path("a.jsonl.gz").write_bytes(gzip.compress(line(0)))
    for path in (".", "a.jsonl.gz"):
        with pytest.raises(TransportError, match="only a plain file can be followed"):
            mttp.mist.receive(f"mttp+file://{path}?follow=true")


def test_a_session_may_be_followed(followed: SimpleNamespace) -> None:
    """
    While it records.
    """
    with mttp.configure("mttp+file://a.jsonl") as session:
        for _ in range(3):
            with mttp.episode():
                pass
            session.flush()
        assert eventually(lambda: len(followed.found) >= 3)

    assert eventually(lambda: len(followed.found) == session.stats.recorded)


# Standard input.


def given(monkeypatch: pytest.MonkeyPatch, content: bytes) -> mttp.mist.Receiver:
    """A receiver of what stands on standard input."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    return mttp.mist.receive("mttp+stdio://")


def test_standard_input_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Line by line, as files are.
    """
    receiver = given(monkeypatch, line(0) + b"\n{}\n" + line(1)[:-1])

    assert ["0", "1"] == ids(receiver)
    assert {"envelope": 1} == dict(receiver.stats.errors)
    assert "mttp+stdio://" == receiver.address


def test_standard_input_may_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Before its end.
    """
    receiver = given(monkeypatch, line(0) + line(1))
    next(receiver)
    receiver.close()

    assert [] == ids(receiver)


def test_standard_input_that_gives_no_bytes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And so is a path.
    """
    with pytest.raises(TransportError, match="has no path"):
        mttp.mist.receive("mttp+stdio://a")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(TransportError, match="stream without a binary buffer"):
        mttp.mist.receive("mttp+stdio://")

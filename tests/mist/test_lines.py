"""Streams of messages, line by line."""

from __future__ import annotations

import io

import pytest
from vectors import LINES

from mttp.errors import ChecksumError, EnvelopeError, VersionError
from mttp.mist.messages import MAX_SIZE, Message, MessageLine, read_lines, received

PING = LINES["health_ping"]


def lines(stream: bytes) -> list[MessageLine]:
    """The lines of a stream."""
    return list(read_lines(io.BytesIO(stream)))


def test_a_broken_line_is_one_error_and_the_rest_goes_on():
    """
    Empty and cut lines, other versions, wrong checksums.
    """
    wrong = PING.replace(b"mist-cli", b"mist-clj")
    stream = b"\n".join([PING, b"", b"{", PING.replace(b'"1"', b'"2"', 1), wrong, PING + b"\r", PING[:40]])
    found = lines(stream)

    assert [1, 2, 3, 4, 5, 6, 7] == [line.number for line in found]
    assert [True, False, False, False, False, True, False] == [line.message is not None for line in found]
    assert [
        type(None),
        EnvelopeError,
        EnvelopeError,
        VersionError,
        ChecksumError,
        type(None),
        EnvelopeError,
    ] == [type(line.error) for line in found]
    assert [len(PING), 0, 1] == [line.size for line in found[:3]]
    assert Message.from_bytes(PING) == found[0].get() == found[5].get()
    with pytest.raises(VersionError):
        found[3].get()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_too_long_is_one_error(end: bytes):
    """
    However long it is, and with whatever end.
    """
    room = MAX_SIZE - len(PING) - 1
    longest = PING[:-1] + b" " * room + b" }"
    stream = longest + b"\n" + longest[:-1] + b" }" + b"\n" + b"x" * (3 * MAX_SIZE) + b"\n" + PING + end
    found = lines(stream)

    assert [MAX_SIZE, MAX_SIZE + 1, 3 * MAX_SIZE, len(PING)] == [line.size for line in found]
    assert [None, "too large", "too large", None] == [
        line.error and line.error.reason.partition(":")[0] for line in found
    ]


def test_no_lines_in_nothing():
    """
    An end without anything before it is none either.
    """
    assert [] == lines(b"")
    assert [1] == [line.number for line in lines(PING + b"\n")]


def test_what_is_received_may_be_trusted():
    """
    To read a message regardless of its version and checksum, use `Message.from_bytes`.
    """
    assert Message.from_bytes(PING) == received(PING)
    with pytest.raises(VersionError):
        received(PING.replace(b'"1"', b'"1.0"', 1))
    with pytest.raises(ChecksumError):
        received(PING.replace(b"915934159", b"915934158"))

"""Messages line by line: a line that is none is one error, and the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from mttp.errors import DecodeError, EnvelopeError
from mttp.mist.messages.envelope import MAX_SIZE, Message
from mttp.mist.messages.versions import check_version

__all__ = ["LONGEST_LINE", "MessageLine", "as_line", "read_lines", "received"]

LONGEST_LINE = 1_048_575
"""Bytes of a line, without its end, that the stack's own readers of files and standard input take."""
_AT_MOST = MAX_SIZE + 2  # with its end


@dataclass(frozen=True, slots=True)
class MessageLine:
    """One line of a stream: a message, or what is wrong with it."""

    number: int
    """Its place in the stream, from 1."""
    size: int
    """Its bytes, without its end."""
    message: Message | None = None
    error: DecodeError | None = None
    source: str = ""
    """What it is a line of, where that is known: a file, or the address of who sent it."""

    def __str__(self) -> str:
        """Where it stands."""
        return f"{self.source}:{self.number}" if self.source else str(self.number)

    @property
    def is_long(self) -> bool:
        """Whether the reference's readers of files and standard input would refuse it."""
        return self.size > LONGEST_LINE

    def get(self) -> Message:
        """The message; raises what is wrong with it."""
        if self.message is None:
            raise self.error or EnvelopeError("no message")
        return self.message


def read_lines(stream: IO[bytes]) -> Iterator[MessageLine]:
    """The messages of a stream, as `received` takes them; more than a message may have is never held."""
    number = 0
    while piece := stream.readline(_AT_MOST):
        number += 1
        size = len(piece)
        while not piece.endswith(b"\n") and (more := stream.readline(_AT_MOST)):
            size += len(more)
            piece = more
        content = piece.removesuffix(b"\n").removesuffix(b"\r")
        yield as_line(content, number=number, size=size - len(piece) + len(content))


def received(raw: bytes) -> Message:
    """
    The message that these bytes are, if it may be trusted.

    Raises EnvelopeError where it is none, VersionError where it follows another version of the protocol,
    ChecksumError where its payload is not what was sent.
    """
    message = Message.from_bytes(raw)
    check_version(message.version)
    message.verify_checksum()
    return message


def as_line(content: bytes, *, number: int, size: int | None = None, source: str = "") -> MessageLine:
    """A line without its end, as `received` takes it; `size` where there were more bytes than are given."""
    size = len(content) if size is None else size
    try:
        if size > len(content):
            raise EnvelopeError(f"too large: {size:,} bytes, at most {MAX_SIZE:,} are allowed")
        return MessageLine(number, size, message=received(content), source=source)
    except DecodeError as error:
        return MessageLine(number, size, error=error, source=source)

"""Reads messages line by line; an invalid line is one error, and reading continues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from mttp.errors import DecodeError, EnvelopeError
from mttp.mist.messages.envelope import MAX_SIZE, Message
from mttp.mist.messages.versions import check_version

LONGEST_LINE = 1_048_575
"""Longest line, without its end, that the stack's own readers of files and standard input accept."""
_AT_MOST = MAX_SIZE + 2  # with its end


@dataclass(frozen=True, slots=True)
class MessageLine:
    """One line of a stream: a message or an error."""

    number: int
    """The number of the line in the stream, from 1."""
    size: int
    """The number of bytes, without the line end."""
    message: Message | None = None
    error: DecodeError | None = None
    source: str = ""
    """The file, or the address of the sender; empty if unknown."""

    def __str__(self) -> str:
        """Return the source and the number of the line."""
        return f"{self.source}:{self.number}" if self.source else str(self.number)

    @property
    def is_long(self) -> bool:
        """Whether the line is too long for the stack's own readers of files and standard input."""
        return self.size > LONGEST_LINE

    def get(self) -> Message:
        """Return the message; raises the error of an invalid line."""
        if self.message is None:
            raise self.error or EnvelopeError("no message")
        return self.message


def read_lines(stream: IO[bytes]) -> Iterator[MessageLine]:
    """Iterate over verified lines of a stream; oversized lines are not held in memory."""
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
    Parse a message, and verify its protocol version and its checksum.

    Raises EnvelopeError for an invalid message, VersionError for another version of the protocol, and
    ChecksumError if the payload does not match the checksum.
    """
    message = Message.from_bytes(raw)
    check_version(message.version)
    message.verify_checksum()
    return message


def as_line(content: bytes, *, number: int, size: int | None = None, source: str = "") -> MessageLine:
    """Parse a line without its end; `size` is its full size if `content` is only a part of it."""
    size = len(content) if size is None else size
    try:
        if size > len(content):
            raise EnvelopeError(f"too large: {size:,} bytes, at most {MAX_SIZE:,} are allowed")
        return MessageLine(number, size, message=received(content), source=source)
    except DecodeError as error:
        return MessageLine(number, size, error=error, source=source)

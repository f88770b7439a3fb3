"""Receives messages from standard input, line by line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import IO, ClassVar

from mttp.errors import TransportError
from mttp.mist.messages import MessageLine, read_lines
from mttp.transports.options import path_of, take


class StdioOrigin:
    """Reads a stream to its end; `close` does not interrupt a read that waits for a line."""

    address: str = "mttp+stdio://"
    pending: ClassVar[int] = 0

    def __init__(self, stream: IO[bytes]) -> None:
        self.refused: Counter[str] = Counter()
        self._stream = stream
        self._closed = False

    def lines(self) -> Iterator[MessageLine]:
        """Iterate over messages as their lines arrive; empty lines are skipped."""
        for line in read_lines(self._stream):
            if self._closed:
                return
            if line.size:
                yield line

    def close(self) -> None:
        """Stop after the current line."""
        self._closed = True


def open(address: str, options: Mapping[str, object]) -> StdioOrigin:
    """Open the current standard input."""
    take(options, StdioOrigin)
    if path := path_of(address):
        raise TransportError(f"standard input has no path, but {path!r} was given; write mttp+stdio://")
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise TransportError("standard input was replaced by a stream without a binary buffer")
    return StdioOrigin(stream)

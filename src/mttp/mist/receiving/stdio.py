"""Messages from standard input, line by line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import IO, ClassVar

from mttp.errors import TransportError
from mttp.mist.messages import MessageLine, read_lines
from mttp.transports.options import path_of, take

__all__ = ["StdioOrigin", "open"]


class StdioOrigin:
    """Reads to the end; a line that is being waited for ends only with its stream."""

    address: str = "mttp+stdio://"
    pending: ClassVar[int] = 0

    def __init__(self, stream: IO[bytes]) -> None:
        self.refused: Counter[str] = Counter()
        self._stream = stream
        self._closed = False

    def lines(self) -> Iterator[MessageLine]:
        """Messages as their lines come in; empty lines are left out."""
        for line in read_lines(self._stream):
            if self._closed:
                return
            if line.size:
                yield line

    def close(self) -> None:
        """Stop with the next line."""
        self._closed = True


def open(address: str, options: Mapping[str, object]) -> StdioOrigin:
    """Standard input as it is now."""
    take(options, StdioOrigin)
    if path := path_of(address):
        raise TransportError(f"standard input has no path, not even {path!r}; write mttp+stdio://")
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise TransportError("standard input was replaced by something that gives no bytes")
    return StdioOrigin(stream)

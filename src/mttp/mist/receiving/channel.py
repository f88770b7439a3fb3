"""Receives messages from a channel of this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from mttp.errors import TransportError
from mttp.mist.channels import ChannelReader, open_reader
from mttp.mist.messages import MessageLine
from mttp.transports.options import Positive, path_of, take


class ChannelOrigin:
    """Reads a channel, until it is empty and all of its writers are closed."""

    def __init__(self, address: str, end: ChannelReader) -> None:
        self.address = address
        self.refused: Counter[str] = Counter()
        self._end = end

    @property
    def pending(self) -> int:
        """Number of messages in the channel."""
        return self._end.pending

    def lines(self) -> Iterator[MessageLine]:
        """Iterate over messages as they are written; payloads are not copied."""
        while line := self._end.get():
            yield line

    def close(self) -> None:
        """Stop reading."""
        self._end.close()


def open(address: str, options: Mapping[str, object]) -> ChannelOrigin:
    """Open a reader of a channel; the first writer or reader sets its `capacity`."""
    name = unquote(path_of(address))
    if not name:
        raise TransportError("no name; write chan://NAME, as at the other end")
    return ChannelOrigin(address, _end(name, **take(options, _end)))


def _end(name: str, *, capacity: Positive | None = None) -> ChannelReader:
    return open_reader(name, capacity=capacity)

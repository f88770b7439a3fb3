"""Messages from a channel of this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from mttp.errors import TransportError
from mttp.mist.channels import ChannelReader, leave
from mttp.mist.messages import MessageLine
from mttp.transports.options import Positive, path_of, take

__all__ = ["ChannelOrigin", "open"]


class ChannelOrigin:
    """One end of a channel; it comes to its end when all senders have closed theirs, and it is empty."""

    def __init__(self, address: str, end: ChannelReader) -> None:
        self.address = address
        self.refused: Counter[str] = Counter()
        self._end = end

    @property
    def pending(self) -> int:
        """Messages that wait in the channel."""
        return self._end.pending

    def lines(self) -> Iterator[MessageLine]:
        """Messages as they are put in; nothing is copied."""
        while line := self._end.get():
            yield line

    def close(self) -> None:
        """Take nothing more out."""
        self._end.close()


def open(address: str, options: Mapping[str, object]) -> ChannelOrigin:
    """The receiving end of a channel; whichever end comes first says its `capacity`."""
    name = unquote(path_of(address))
    if not name:
        raise TransportError("no name; write chan://NAME, as at the other end")
    return ChannelOrigin(address, _end(name, **take(options, _end)))


def _end(name: str, *, capacity: Positive | None = None) -> ChannelReader:
    return leave(name, capacity=capacity)

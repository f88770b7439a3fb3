"""
Named queues of messages within the process: two ends that say the same name meet, whichever comes first.

A channel is bounded, in messages and in bytes.
Messages that were not taken stay after all ends have closed, for the next end.
"""

from __future__ import annotations

import os
import threading
from collections import deque

from mttp.errors import SendError, TransportError
from mttp.mist.messages import Message, MessageLine

__all__ = ["CAPACITY", "MAX_BYTES", "Channel", "ChannelWriter", "ChannelReader", "enter", "leave"]

CAPACITY = 256
"""Messages that wait in a channel, at most."""
MAX_BYTES = 64 * 2**20
"""Bytes of payloads that wait in it, at most; a single message may be larger."""


class Channel:
    """A queue with any number of ends, each of which is opened, used and closed."""

    def __init__(self, capacity: int | None = None, *, name: str = "") -> None:
        self.name = name
        self.capacity = capacity or CAPACITY
        self.changed = threading.Condition()
        self.waiting: deque[MessageLine] = deque()
        self.entrances = 0
        self.exits = 0
        self.was_entered = False
        self.count = 0
        """Messages that were ever put in."""
        self._bytes = 0

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes: there were entrances, and all of them are closed."""
        return self.was_entered and not self.entrances

    @property
    def is_idle(self) -> bool:
        """Whether it has no ends and no messages."""
        return not (self.entrances or self.exits or self.waiting)

    def fits(self, line: MessageLine) -> bool:
        """Whether there is space for one more."""
        has_bytes = self._bytes + line.size <= MAX_BYTES or not self.waiting
        return len(self.waiting) < self.capacity and has_bytes

    def add(self, line: MessageLine) -> None:
        """Put one in; called with `changed` held."""
        self.waiting.append(line)
        self._bytes += line.size
        self.changed.notify_all()

    def take(self) -> MessageLine:
        """Take the first out; called with `changed` held."""
        line = self.waiting.popleft()
        self._bytes -= line.size
        self.changed.notify_all()
        return line

    def number(self) -> int:
        """The number of the next message; called with `changed` held."""
        self.count += 1
        return self.count


class ChannelWriter:
    """An end that puts messages in; with `wait`, a full channel blocks."""

    def __init__(self, channel: Channel, *, wait: bool = True) -> None:
        self._channel = channel
        self._wait = wait
        self._closed = False
        with channel.changed:
            channel.entrances += 1
            channel.was_entered = True

    def put(self, message: Message) -> None:
        """Put a message in; raises SendError if the channel is full and does not block, or is closed."""
        with self._channel.changed:
            self.put_line(MessageLine(self._channel.number(), len(message.payload), message=message))

    def put_line(self, line: MessageLine) -> None:
        """The same for what was received as a line, perhaps a broken one."""
        channel = self._channel
        with channel.changed:
            if self._wait:
                channel.changed.wait_for(lambda: channel.fits(line) or self._closed)
            if self._closed:
                raise SendError(f"this end of the channel {channel.name!r} is closed", cause="closed")
            if not channel.fits(line):
                full = f"{len(channel.waiting)} messages of {channel.capacity} wait in it"
                raise SendError(f"the channel {channel.name!r} is full: {full}", cause="channel_full")
            channel.add(line)

    def close(self) -> None:
        """Close this end and wake its waiting callers. A second call does nothing."""
        with self._channel.changed:
            self._channel.entrances -= not self._closed
            self._closed = True
            self._channel.changed.notify_all()
        _forget(self._channel)


class ChannelReader:
    """An end that takes messages out, each of them for this end alone."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._closed = False
        with channel.changed:
            channel.exits += 1

    @property
    def pending(self) -> int:
        """Messages that wait."""
        return len(self._channel.waiting)

    def get(self) -> MessageLine | None:
        """The next message, once there is one; None where none comes any more, or this end is closed."""
        channel = self._channel
        with channel.changed:
            channel.changed.wait_for(lambda: channel.waiting or channel.has_ended or self._closed)
            return channel.take() if channel.waiting and not self._closed else None

    def close(self) -> None:
        """Take nothing more out: what waits is left for others. A second call does nothing."""
        with self._channel.changed:
            self._channel.exits -= not self._closed
            self._closed = True
            self._channel.changed.notify_all()
        _forget(self._channel)


_named: dict[str, Channel] = {}
_lock = threading.Lock()


def enter(name: str, *, capacity: int | None = None, wait: bool = True) -> ChannelWriter:
    """An end of the channel of this name; raises TransportError where it holds another number of messages."""
    with _lock:
        return ChannelWriter(_found(name, capacity), wait=wait)


def leave(name: str, *, capacity: int | None = None) -> ChannelReader:
    """The other end, likewise."""
    with _lock:
        return ChannelReader(_found(name, capacity))


def _found(name: str, capacity: int | None) -> Channel:
    channel = _named.setdefault(name, Channel(capacity, name=name))
    if capacity and channel.capacity != capacity:
        raise TransportError(f"the channel {name!r} is there already, and holds {channel.capacity} messages")
    return channel


def _forget(channel: Channel) -> None:
    with _lock, channel.changed:
        if channel.is_idle and _named.get(channel.name) is channel:
            del _named[channel.name]


def _alone() -> None:
    """In a forked child: the other ends are the parent's."""
    global _lock
    _lock = threading.Lock()
    _named.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)

"""
Named queues of messages within one process; the first writer or reader of a name creates its queue.

A channel is bounded in messages and in bytes.
Messages that were not read stay in the channel after all of its ends are closed, for the next reader.
"""

from __future__ import annotations

import os
import threading
from collections import deque

from mttp.errors import SendError, TransportError
from mttp.mist.messages import Message, MessageLine

CAPACITY = 256
"""Default maximum number of messages in a channel."""
MAX_BYTES = 64 * 2**20
"""Maximum bytes of payloads in a channel; a single message may be larger."""


class Channel:
    """A queue of messages with any number of writers and readers."""

    def __init__(self, capacity: int | None = None, *, name: str = "") -> None:
        self.name = name
        self.capacity = capacity or CAPACITY
        self.changed = threading.Condition()
        self.waiting: deque[MessageLine] = deque()
        self.writers = 0
        self.readers = 0
        self.had_writer = False
        self.count = 0
        """Number of messages ever written."""
        self._bytes = 0

    @property
    def has_ended(self) -> bool:
        """Whether there were writers, and all of them are closed."""
        return self.had_writer and not self.writers

    @property
    def is_idle(self) -> bool:
        """Whether it has no writers, no readers and no messages."""
        return not (self.writers or self.readers or self.waiting)

    def fits(self, line: MessageLine) -> bool:
        """Whether there is space for this message."""
        has_bytes = self._bytes + line.size <= MAX_BYTES or not self.waiting
        return len(self.waiting) < self.capacity and has_bytes

    def add(self, line: MessageLine) -> None:
        """Append a message. Called with `changed` held."""
        self.waiting.append(line)
        self._bytes += line.size
        self.changed.notify_all()

    def take(self) -> MessageLine:
        """Remove and return the first message. Called with `changed` held."""
        line = self.waiting.popleft()
        self._bytes -= line.size
        self.changed.notify_all()
        return line

    def number(self) -> int:
        """Return the number of the next message. Called with `changed` held."""
        self.count += 1
        return self.count


class ChannelWriter:
    """Writes messages to a channel; with `wait`, `put` blocks while the channel is full."""

    def __init__(self, channel: Channel, *, wait: bool = True) -> None:
        self._channel = channel
        self._wait = wait
        self._closed = False
        with channel.changed:
            channel.writers += 1
            channel.had_writer = True

    def put(self, message: Message) -> None:
        """Write a message; raises SendError if this writer is closed, or the channel stays full."""
        with self._channel.changed:
            self.put_line(MessageLine(self._channel.number(), len(message.payload), message=message))

    def put_line(self, line: MessageLine) -> None:
        """Write a received line, which may be invalid; raises SendError as `put`."""
        channel = self._channel
        with channel.changed:
            if self._wait:
                channel.changed.wait_for(lambda: channel.fits(line) or self._closed)
            if self._closed:
                raise SendError(f"this end of the channel {channel.name!r} is closed", cause="closed")
            if not channel.fits(line):
                full = f"it holds {len(channel.waiting)} of {channel.capacity} messages"
                raise SendError(f"the channel {channel.name!r} is full: {full}", cause="channel_full")
            channel.add(line)

    def close(self) -> None:
        """Close this writer and wake callers that wait for space; further calls do nothing."""
        with self._channel.changed:
            self._channel.writers -= not self._closed
            self._closed = True
            self._channel.changed.notify_all()
        _forget(self._channel)


class ChannelReader:
    """Reads messages from a channel; each message goes to one reader."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._closed = False
        with channel.changed:
            channel.readers += 1

    @property
    def pending(self) -> int:
        """Number of messages in the channel."""
        return len(self._channel.waiting)

    def get(self) -> MessageLine | None:
        """Wait for the next message and return it; None if all writers or this reader are closed."""
        channel = self._channel
        with channel.changed:
            channel.changed.wait_for(lambda: channel.waiting or channel.has_ended or self._closed)
            return channel.take() if channel.waiting and not self._closed else None

    def close(self) -> None:
        """Close this reader; remaining messages stay in the channel. Further calls do nothing."""
        with self._channel.changed:
            self._channel.readers -= not self._closed
            self._closed = True
            self._channel.changed.notify_all()
        _forget(self._channel)


_named: dict[str, Channel] = {}
_lock = threading.Lock()


def open_writer(name: str, *, capacity: int | None = None, wait: bool = True) -> ChannelWriter:
    """Open a writer to a named channel; raises TransportError if it has another capacity."""
    with _lock:
        return ChannelWriter(_found(name, capacity), wait=wait)


def open_reader(name: str, *, capacity: int | None = None) -> ChannelReader:
    """Open a reader of a named channel; raises TransportError if it has another capacity."""
    with _lock:
        return ChannelReader(_found(name, capacity))


def _found(name: str, capacity: int | None) -> Channel:
    channel = _named.setdefault(name, Channel(capacity, name=name))
    if capacity and channel.capacity != capacity:
        raise TransportError(f"the channel {name!r} already exists with capacity={channel.capacity}")
    return channel


def _forget(channel: Channel) -> None:
    with _lock, channel.changed:
        if channel.is_idle and _named.get(channel.name) is channel:
            del _named[channel.name]


def _clear() -> None:
    """Drop all channels in a forked child: their other ends are in the parent."""
    global _lock
    _lock = threading.Lock()
    _named.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clear)

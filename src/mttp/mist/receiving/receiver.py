"""Receives messages at an address."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol

from typing_extensions import Self

from mttp.codec.secrets import without_secrets
from mttp.errors import ConfigureError, DecodeError, TransportError
from mttp.mist import span_messages
from mttp.mist.messages import Message, MessageLine
from mttp.model.log import log
from mttp.model.spans import SpanRecord
from mttp.transports.options import open_at

ORIGINS: Mapping[str, str] = {
    "mttp+http": "listener",
    "mttp+file": "files",
    "mttp+stdio": "stdio",
    "chan": "channel",
}
"""Module of this package by scheme; its `open(address, options)` returns a `MessageSource`."""


class MessageSource(Protocol):
    """A source of messages."""

    address: str
    """Its address, to which senders can send."""
    refused: Counter[str]
    """Number of requests rejected before a message was read, by answer: http_404, http_413, http_503, …"""

    @property
    def pending(self) -> int:
        """Number of received messages that were not read yet."""

    def lines(self) -> Iterator[MessageLine]:
        """Iterate over messages and errors in order, until the source ends."""

    def close(self) -> None:
        """Stop receiving, from any thread; received messages can still be read."""


@dataclass(slots=True)
class ReceiverStats:
    """Counters of a receiver."""

    received: int = 0
    """Number of valid messages that were read."""
    errors: Counter[str] = field(default_factory=Counter)
    """
    Number of invalid messages by kind of error: envelope, version or checksum.

    If spans are read, also payload.
    """
    refused: Counter[str] = field(default_factory=Counter)
    """Number of HTTP requests rejected for another reason, by answer: http_404, http_503, …"""


class Receiver:
    """
    Iterates over received messages until it is closed; a context manager that closes it.

    Several threads may iterate: each message goes to one thread.
    """

    def __init__(
        self,
        origin: MessageSource,
        *,
        on_error: Callable[[MessageLine], object] | None = None,
        strict: bool = False,
    ) -> None:
        self.stats = ReceiverStats(refused=origin.refused)
        self._origin = origin
        self._lines = origin.lines()
        self._on_error = on_error
        self._strict = strict
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The address; for port 0 it has the port that was chosen."""
        return self._origin.address

    @property
    def pending(self) -> int:
        """Number of received messages that were not read yet."""
        return self._origin.pending

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        """Wait for the next valid message and return it."""
        while True:
            with self._lock:
                line = next(self._lines)
                if line.message is not None:
                    self.stats.received += 1
                    return line.message
                self._report(line)

    def records(self) -> Iterator[SpanRecord]:
        """
        Iterate over the spans of received messages, as `mttp.read(receiver)` does.

        A listener waits for more messages until it is closed.
        """
        for place, message in enumerate(self, start=1):
            try:
                yield from span_messages.records(message) or ()
            except DecodeError as error:
                with self._lock:
                    self._report(MessageLine(place, len(message.payload), error=error, source=message.source))

    def close(self) -> None:
        """
        Stop receiving, from any thread; further calls do nothing.

        Messages received before can still be read; those of a channel stay there for its next receiver.
        """
        self._origin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<mttp.mist.Receiver at {self.address}>"

    def _report(self, line: MessageLine) -> None:
        error = line.error or DecodeError("no message")
        kind = type(error).__name__.removesuffix("Error").lower()
        self.stats.errors[kind] += 1
        if self._strict:
            raise error
        if self._on_error is not None:
            self._on_error(line)
        elif self.stats.errors[kind] == 1:
            log.warning("mttp: %s: invalid message %s was skipped and counted: %s", self.address, line, error)


def receive(
    url: str,
    *,
    on_error: Callable[[MessageLine], object] | None = None,
    strict: bool = False,
    **options: Any,
) -> Receiver:
    """
    Return a `Receiver` of messages; it verifies their envelope, protocol version and checksum.

    `mttp+http://127.0.0.1:8700` listens; the default host is the loopback interface, port 0 a free port.
    `mttp+file://PATH` reads existing files, and with `follow=True` also lines that are appended later.
    `mttp+stdio://` reads standard input, and `chan://NAME` a channel of this process.

    An invalid message is skipped and counted in `stats.errors`. `on_error` is called with its line; without
    `on_error` the first of each kind is logged. With `strict` the error is raised.
    Further keyword arguments are options of the address.
    Raises TransportError if the address or an option is invalid or can't be opened, ConfigureError if
    `on_error` is not a function, and ReadError if a file does not exist.
    """
    if on_error is not None and not callable(on_error):
        raise ConfigureError(f"on_error={on_error!r} is not a function; give a function of a MessageLine")
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in ORIGINS:
        known = ", ".join(f"{name}://" for name in ORIGINS)
        raise TransportError(f"can't receive at {without_secrets(url)!r}; supported are {known}")
    module = import_module(f"mttp.mist.receiving.{ORIGINS[scheme]}")
    return Receiver(open_at(url, options, module.open, "receiving at"), on_error=on_error, strict=strict)

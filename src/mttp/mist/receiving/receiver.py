"""The receiving end for users, whatever the messages come by."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import TracebackType
from typing import Any

from typing_extensions import Self

from mttp.codec.secrets import without_secrets
from mttp.errors import ConfigureError, DecodeError, TransportError
from mttp.mist import span_messages
from mttp.mist.messages import Message, MessageLine
from mttp.mist.receiving.origins import MessageSource
from mttp.model.spans import SpanRecord
from mttp.transports.options import open_at

__all__ = ["Receiver", "ReceiverStats", "receive"]

_log = logging.getLogger("mttp")

ORIGINS: Mapping[str, str] = {
    "mttp+http": "listener",
    "mttp+file": "files",
    "mttp+stdio": "stdio",
    "chan": "channel",
}
"""Scheme to the module here whose `open(address, options)` makes the origin."""


@dataclass(slots=True)
class ReceiverStats:
    """What came in so far."""

    received: int = 0
    """Messages that were handed out."""
    errors: Counter[str] = field(default_factory=Counter)
    """
    Those that were none, or may not be trusted, by kind: envelope, version or checksum.

    Where spans are read, payload too: those whose payload is none.
    """
    refused: Counter[str] = field(default_factory=Counter)
    """Over HTTP, requests that were turned down for another reason, by answer: http_404, http_503, …"""


class Receiver:
    """
    Iterates over the messages that come in; `close`, or the end of its block, ends that.

    Several threads may iterate: each message goes to one of them.
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
        """Where it receives, with the port that was free where the port 0 was asked for."""
        return self._origin.address

    @property
    def pending(self) -> int:
        """Messages that were received and not taken yet."""
        return self._origin.pending

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        """The next message that may be trusted; waits for it."""
        while True:
            with self._lock:
                line = next(self._lines)
                if line.message is not None:
                    self.stats.received += 1
                    return line.message
                self._note(line)

    def records(self) -> Iterator[SpanRecord]:
        """
        The spans of the messages that come in, until no more do: `mttp.read(receiver)` reads them.

        A listener that is not closed waits for more.
        """
        for place, message in enumerate(self, start=1):
            try:
                yield from span_messages.records(message) or ()
            except DecodeError as error:
                with self._lock:
                    self._note(MessageLine(place, len(message.payload), error=error, source=message.source))

    def close(self) -> None:
        """
        Take nothing more in, from any thread.

        What had come in is still iterated over; a channel keeps it for its next receiver.
        A second call does nothing.
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

    def _note(self, line: MessageLine) -> None:
        error = line.error or DecodeError("no message")
        kind = type(error).__name__.removesuffix("Error").lower()
        self.stats.errors[kind] += 1
        if self._strict:
            raise error
        if self._on_error is not None:
            self._on_error(line)
        elif self.stats.errors[kind] == 1:
            _log.warning("mttp: %s: message %s is left out, and counted: %s", self.address, line, error)


def receive(
    url: str,
    *,
    on_error: Callable[[MessageLine], object] | None = None,
    strict: bool = False,
    **options: Any,
) -> Receiver:
    """
    Receive messages at an address, verified: envelope, version of the protocol, and checksum.

    `mttp+http://127.0.0.1:8700` listens; without a host on the loopback interface, and port 0 is a free one.
    `mttp+file://PATH` reads what is there, and with `follow=True` what is appended later.
    `mttp+stdio://` reads standard input, and `chan://NAME` is the other end of that channel.

    A message that is none, or may not be trusted, is left out and counted in `stats.errors`; `on_error` is
    called with its line, else the first of its kind is logged. With `strict` it is raised instead.
    Further arguments are the options of the address.
    Raises TransportError where the address is wrong or can't be had, ReadError where a file does not exist.
    """
    if on_error is not None and not callable(on_error):
        raise ConfigureError(f"on_error={on_error!r} is no function; give one of a line")
    scheme, found, _ = url.partition("://")
    if not found or scheme not in ORIGINS:
        known = ", ".join(f"{name}://" for name in ORIGINS)
        raise TransportError(f"can't receive at {without_secrets(url)!r}; what can be received at is {known}")
    module = import_module(f"mttp.mist.receiving.{ORIGINS[scheme]}")
    return Receiver(open_at(url, options, module.open, "receiving at"), on_error=on_error, strict=strict)

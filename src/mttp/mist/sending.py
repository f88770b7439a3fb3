"""Sends single messages to an address."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from typing_extensions import Self

from mttp.codec.secrets import without_secrets
from mttp.errors import SendError, TransportError
from mttp.mist import transport
from mttp.mist.messages import Message
from mttp.mist.transport.outlets import Outlet
from mttp.model import clock
from mttp.transports import backoff
from mttp.transports.options import open_at

MAX_RETRY_SECONDS = 30.0
"""Default duration of retries after temporary failures, in seconds."""


class Sender:
    """Sends messages one by one, from any thread; a context manager that closes its connection."""

    def __init__(self, outlet: Outlet, *, max_retry_seconds: float = MAX_RETRY_SECONDS) -> None:
        self._outlet = outlet
        self._max_retry_seconds = max_retry_seconds

    @property
    def address(self) -> str:
        """The address of the receiver."""
        return self._outlet.address or repr(self._outlet)

    def send(self, message: Message) -> None:
        """
        Send a message, and return when the receiver has accepted it.

        Temporary failures (refused connections, no answer, a busy receiver, a server error) are retried with
        exponential backoff for up to `max_retry_seconds`.
        Raises SendError if the message is not accepted, and OSError if a file or pipe can't be written.
        """
        deadline, failures = clock.seconds() + self._max_retry_seconds, 0
        while True:
            try:
                self._outlet.send([message])
                return
            except SendError as error:
                failures += 1
                wait = backoff.wait(failures, error.retry_after)
                if not error.may_pass or clock.seconds() + wait > deadline:
                    raise
            clock.sleep(wait)

    def close(self) -> None:
        """Close the connection or file; further calls do nothing."""
        self._outlet.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<mttp.mist.Sender to {self._outlet!r}>"


def dial(url: str, *, max_retry_seconds: float = MAX_RETRY_SECONDS, **options: Any) -> Sender:
    """
    Return a Sender for `mttp+http://HOST:PORT`, `mttp+file://PATH`, `mttp+stdio://` or `chan://NAME`.

    `max_retry_seconds` is how long `send` retries temporary failures before it raises SendError.
    Further keyword arguments are options of the address, as for a transport.
    Raises TransportError if the address or an option is invalid, or the file can't be opened.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in transport.OUTLETS:
        known = ", ".join(f"{name}://" for name in transport.OUTLETS)
        raise TransportError(f"can't send messages to {without_secrets(url)!r}; supported are {known}")
    return Sender(open_at(url, options, transport.outlet, "sending to"), max_retry_seconds=max_retry_seconds)

"""The sending end of an address for single messages, whatever they say."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from typing_extensions import Self

from mttp.codec.secrets import without_secrets
from mttp.errors import SendError, TransportError
from mttp.mist import transport
from mttp.mist.messages import Message
from mttp.mist.transport.outlets import Outlet
from mttp.transports import backoff
from mttp.transports.options import open_at

__all__ = ["Sender", "dial"]

PATIENCE = 30.0
"""Seconds for which a message is sent again that may be taken later."""


class Sender:
    """Sends messages one by one, from any thread; `close`, or the end of its block, ends that."""

    def __init__(self, outlet: Outlet, *, patience: float = PATIENCE) -> None:
        self._outlet = outlet
        self._patience = patience

    @property
    def address(self) -> str:
        """Where it sends to."""
        return self._outlet.address or repr(self._outlet)

    def send(self, message: Message) -> None:
        """
        Send a message, and wait until it was taken.

        Temporary failures (refused connections, no answer, a busy receiver, a server error) are tried again
        for up to `patience` seconds, after waits that grow.
        Raises SendError where it was not taken, and OSError where the system refuses.
        """
        deadline, failures = time.monotonic() + self._patience, 0
        while True:
            try:
                self._outlet.send([message])
                return
            except SendError as error:
                failures += 1
                wait = backoff.wait(failures, error.retry_after)
                if not error.may_pass or time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)

    def close(self) -> None:
        """Release what is held; a second call does nothing."""
        self._outlet.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<mttp.mist.Sender to {self._outlet!r}>"


def dial(url: str, *, patience: float = PATIENCE, **options: Any) -> Sender:
    """
    Send messages to an address: `mttp+http://HOST:PORT`, `mttp+file://PATH`, `mttp+stdio://`, `chan://NAME`.

    Further arguments are the options of the address, as a transport has them.
    Raises TransportError where the address is wrong or can't be had.
    """
    scheme, found, _ = url.partition("://")
    if not found or scheme not in transport.OUTLETS:
        known = ", ".join(f"{name}://" for name in transport.OUTLETS)
        raise TransportError(f"can't send messages to {without_secrets(url)!r}; known are {known}")
    return Sender(open_at(url, options, transport.outlet, "sending to"), patience=patience)

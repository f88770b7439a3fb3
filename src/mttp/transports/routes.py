"""Routes: a transport with the content that a session sends to it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from mttp import transports
from mttp.codec.plain import scalar_text
from mttp.errors import ConfigureError
from mttp.model.interrupts import raise_interrupt
from mttp.model.switches import check_switches
from mttp.transports.export_target import ExportTarget, Transport

__all__ = ["Destination", "Route", "check"]


class Route:
    """
    A destination of episodes and the content that is sent to it.

    `to` is an address, a path, or an object that exports spans; `options` are those of its address.
    `content` (bool) sends texts, observations, actions and other content.
    It defaults to True for memory and files, and to False for a collector.
    `token_ids` (bool) sends token ids, which a tokenizer turns into text; it defaults to `content`.
    `redact(key, value)` is called for each content attribute and returns its replacement; None withholds it.
    The attribute `mttp.omissions` names withheld attributes.
    """

    def __init__(
        self,
        to: str | os.PathLike[str] | Transport,
        *,
        content: bool | None = None,
        token_ids: bool | None = None,
        redact: Callable[[str, Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self.to = to
        self.content = content
        self.token_ids = token_ids
        self.redact = redact
        self.options = options

    def __repr__(self) -> str:
        return f"Route({self.to!r})"  # options may hold secrets

    def open(
        self,
        *,
        content: bool | None = None,
        token_ids: bool | None = None,
        redact: Callable[[str, Any], Any] | None = None,
        close_timeout: float | None = None,
    ) -> ExportTarget:
        """
        Open the transport; arguments are defaults for what the route does not set.

        Raises ConfigureError or TransportError for a wrong option or a transport that can't be opened.
        """
        content = content if self.content is None else self.content
        token_ids = token_ids if self.token_ids is None else self.token_ids
        redact = redact if self.redact is None else self.redact
        check({"content": content, "token_ids": token_ids}, redact, close_timeout)
        return ExportTarget.of(
            self._transport(),
            content=content,
            token_ids=token_ids,
            redact=redact,
            close_timeout=close_timeout,
        )

    def with_profile(self, profile: str) -> Route:
        """Return the route with `profile`, if it leads to an OTLP receiver and names no profile."""
        if not self._is_receiver or self.has_profile:
            return self
        terms: dict[str, Any] = {
            "content": self.content,
            "token_ids": self.token_ids,
            "redact": self.redact,
        }
        return Route(self.to, **terms, **self.options, profile=profile)

    @property
    def has_profile(self) -> bool:
        """Whether it leads to a receiver whose profile is named."""
        if isinstance(self.to, str):
            return self._is_receiver and ("profile" in self.options or "profile" in _query(self.to))
        return getattr(self.to, "profile", None) is not None

    @property
    def _is_receiver(self) -> bool:
        return isinstance(self.to, str) and self.to.startswith(transports.RECEIVERS)

    @property
    def is_address(self) -> bool:
        """Whether the route opens the transport itself."""
        return isinstance(self.to, (str, os.PathLike))

    def _transport(self) -> Transport:
        address = f"file://{quote(_path(self.to))}" if isinstance(self.to, os.PathLike) else self.to
        if isinstance(address, str):
            return transports.open(address, **self.options)
        if isinstance(address, type) or not callable(getattr(address, "export", None)):
            raise ConfigureError(
                f"transport {scalar_text(address):.80} is neither an address nor an object that exports "
                "spans; write 'file://runs/a.jsonl', or pass an exporter"
            )
        if self.options:
            names = ", ".join(sorted(self.options))
            raise ConfigureError(f"{scalar_text(address):.200} is already open and takes no options: {names}")
        return address


def _query(address: str) -> dict[str, str]:
    return dict(parse_qsl(address.partition("?")[2], keep_blank_values=True))


_MAX_BITS = 64
"""The size of an integer of seconds that can be waited for."""


def check(switches: Mapping[str, object], redact: object, close_timeout: object = None) -> None:
    """Raise ConfigureError for an invalid value."""
    check_switches(ConfigureError, switches)
    if redact is not None and not callable(redact):
        reason = "is not a function; give a function of key and value"
        raise ConfigureError(f"redact={scalar_text(redact):.80} {reason}")
    if close_timeout is None:
        return
    is_number = isinstance(close_timeout, (int, float)) and 0 <= close_timeout <= math.inf
    if not is_number or (type(close_timeout) is int and close_timeout.bit_length() > _MAX_BITS):
        raise ConfigureError(f"close_timeout={scalar_text(close_timeout):.80} is not a number of seconds")


Destination = str | os.PathLike[str] | Transport | Route


def _path(path: os.PathLike[str]) -> str:
    """Return a path as text; raises ConfigureError if the object can't give it."""
    try:
        return os.fsdecode(path)
    except Exception as error:
        raise_interrupt(error)
        raise ConfigureError(f"transport: {type(path).__name__} gives no path: {error!r}") from error

"""
The transports, by the scheme of their address: MTTP's channel and file.

    memory://                       kept in this process, for tests and notebooks
    memory://?max_episodes=1000     the newest thousand
    file://runs/a.jsonl             one file, appended to; .gz and .zst compress
    file://runs/                    a directory: one file per process
    file:///data/runs/?max_bytes=256MB&fsync=segment
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from urllib.parse import parse_qsl, unquote

from mttp.errors import TransportError
from mttp.lane import Transport

__all__ = ["SCHEMES", "open"]

SCHEMES: Mapping[str, str] = {"memory": "mttp.transports.memory", "file": "mttp.transports.file"}
"""Scheme to the module whose `open(path, options)` makes the transport."""


def open(url: str) -> Transport:
    """
    The transport at an address.

    Raises TransportError when the address is wrong or what it names can't be opened.
    """
    scheme, colon, rest = url.partition("://")
    if not colon and url in ("memory", "memory:"):
        scheme = "memory"
    elif not colon:
        raise TransportError(f"transport {url!r} has no scheme; for a file write 'file://{url}'")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise TransportError(f"transport {url!r}: unknown scheme {scheme!r}; known are {known}")
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    factory: Callable[..., Transport] = import_module(SCHEMES[scheme]).open
    try:
        return factory(unquote(path), options)
    except TransportError as error:
        raise TransportError(f"transport {url!r}: {error}") from error.__cause__

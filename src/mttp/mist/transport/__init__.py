"""
Transports that send spans as messages, for the tools of the MIST stack and for `mttp.mist.receive`.

    mttp+file://runs/a.mttp.jsonl       lines appended to a file; a directory has one file per process
    mttp+http://localhost:8700          one POST per message, to /mist by default; mttp+https:// with TLS
    mttp+stdio://                       lines on standard output
    chan://name                         to the receiver of a channel in this process
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from mttp.mist.transport.outlets import Outlet
from mttp.mist.transport.transport import NativeTransport, RemoteTransport
from mttp.transports.options import parse, path_of, text

__all__ = ["OUTLETS", "NativeTransport", "open", "outlet"]

OUTLETS: Mapping[str, str] = {
    "mttp+file": "file",
    "mttp+http": "http",
    "mttp+https": "http",
    "mttp+stdio": "stdio",
    "chan": "channel",
}
"""Module of this package by scheme; its `open(address, options)` returns an `Outlet`."""


def open(address: str, options: Mapping[str, Any]) -> NativeTransport:
    """Open a transport; the option `source` is the name of the program in its messages."""
    rest = dict(options)
    named = rest.pop("source", None)
    source = "" if named is None else parse(text, named, "option source")
    opened = outlet(address, rest)
    return (RemoteTransport if opened.is_remote else NativeTransport)(opened, source=source)


def outlet(address: str, options: Mapping[str, Any]) -> Outlet:
    """Open the outlet at an address; raises TransportError if it is invalid or can't be opened."""
    scheme = address.removesuffix(path_of(address)).removesuffix("://")
    module = import_module(f"mttp.mist.transport.{OUTLETS[scheme]}")
    factory: Callable[..., Outlet] = module.open
    return factory(address, options)

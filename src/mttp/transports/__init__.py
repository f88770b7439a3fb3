"""
The transports, by the scheme of their address: MTTP's channel, file and HTTP.

    memory://                       kept in this process, for tests and notebooks
    memory://?max_episodes=1000     the newest thousand
    file://runs/a.jsonl             one file, appended to; .gz and .zst compress
    file://runs/                    a directory: one file per process
    file:///data/runs/?max_bytes=256MB&fsync=segment
    http://localhost:4318           an OTLP receiver, such as a collector; https:// with TLS
    grpc://localhost:4317           the same over gRPC; grpcs:// with TLS
    http://tempo:4318?profile=tempo what a store does not keep is left out, and said
    mttp+file://runs/a.jsonl        messages of the MIST stack, line by line
    mttp+http://localhost:8700      the same, one POST each; mttp+https:// with TLS
    mttp+stdio://                   the same on standard output
    chan://name                     the same to the other end of a channel in this process
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from mttp.codec.secrets import without_secrets
from mttp.errors import TransportError
from mttp.transports.export_target import Transport
from mttp.transports.options import known_are, open_at

__all__ = ["RECEIVERS", "SCHEMES", "open"]

SCHEMES: Mapping[str, str] = {
    "memory": "mttp.transports.memory",
    "file": "mttp.transports.file",
    "http": "mttp.transports.otlp",
    "https": "mttp.transports.otlp",
    "grpc": "mttp.transports.otlp",
    "grpcs": "mttp.transports.otlp",
    "mttp+file": "mttp.mist.transport",
    "mttp+http": "mttp.mist.transport",
    "mttp+https": "mttp.mist.transport",
    "mttp+stdio": "mttp.mist.transport",
    "chan": "mttp.mist.transport",
}
"""Scheme to the module whose `open(address, options)` makes the transport."""
RECEIVERS = ("http://", "https://", "grpc://", "grpcs://")
"""How the address of an OTLP receiver begins, which may have a profile."""


def open(url: str, **options: object) -> Transport:
    """
    The transport at an address; options that are given here precede those of the address's query.

    Raises TransportError when anything of that is wrong or what it names can't be opened.
    """
    url = "memory://" if url in ("memory", "memory:") else url
    scheme, colon, _ = url.partition("://")
    shown = without_secrets(url)
    if not colon:
        raise TransportError(f"transport {shown!r} has no scheme; for a file write 'file://{shown}'")
    if scheme not in SCHEMES:
        known = known_are(scheme, SCHEMES, ending="://")
        raise TransportError(f"transport {shown!r}: unknown scheme {scheme!r}{known}")
    factory: Callable[..., Transport] = import_module(SCHEMES[scheme]).open
    return open_at(url, options, factory, "transport")

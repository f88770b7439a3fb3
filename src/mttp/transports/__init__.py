"""
Opens transports by the scheme of their address.

    memory://                       the memory of this process, for tests and notebooks
    memory://?max_episodes=1000     the newest thousand episodes
    file://runs/a.jsonl             one file, appended to; .gz and .zst compress
    file://runs/                    a directory: one file per process
    file:///data/runs/?max_bytes=256MB&fsync=segment
    http://localhost:4318           an OTLP receiver, such as a collector; https:// with TLS
    grpc://localhost:4317           an OTLP receiver over gRPC; grpcs:// with TLS
    http://tempo:4318?profile=tempo omits the attributes that the store does not keep
    mttp+file://runs/a.jsonl        messages of the MIST stack, line by line
    mttp+http://localhost:8700      one POST per message; mttp+https:// with TLS
    mttp+stdio://                   messages on standard output
    chan://name                     messages to a channel of this process
    tensorboard://runs/tb           curves as event files of TensorBoard
    wandb://project                 curves as runs of Weights & Biases
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
    "tensorboard": "mttp.workflows.tensorboard",
    "wandb": "mttp.workflows.wandb",
}
"""Module by scheme; its `open(address, options)` opens the transport."""
RECEIVERS = ("http://", "https://", "grpc://", "grpcs://")
"""Prefixes of the addresses of OTLP receivers, which may have a profile."""


def open(url: str, **options: object) -> Transport:
    """
    Open the transport at an address; `options` take precedence over those of the address's query.

    Raises TransportError if the address or an option is invalid, or the transport can't be opened.
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

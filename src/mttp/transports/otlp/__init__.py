"""
Exports to OTLP receivers.

Addresses are `http://HOST:PORT` and `grpc://HOST:PORT`, and with TLS `https://` and `grpcs://`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mttp.transports.otlp.settings import TRACES_PATH
from mttp.transports.otlp.transport import OtlpTransport

__all__ = ["OtlpTransport", "open"]


def open(address: str, options: Mapping[str, Any]) -> OtlpTransport:
    """Open a transport to a receiver; /v1/traces is appended to an HTTP address without it."""
    url = address.rstrip("/")
    if url.startswith("http") and not url.endswith(TRACES_PATH):
        url += TRACES_PATH
    return OtlpTransport(url, **options)

"""The exporter of OTLP over gRPC for any tracer provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import grpc

from mttp.transports.environment import grpc_url
from mttp.transports.exporters.retrying import RetryingExporter
from mttp.transports.options import escaped_headers, parse
from mttp.transports.otlp.grpc import COMPRESSIONS, GrpcSender
from mttp.transports.otlp.settings import resolve, variable

__all__ = ["GrpcSpanExporter", "OTLPSpanExporter"]

_NAMES = {compression: name for name, compression in COMPRESSIONS.items()}


class GrpcSpanExporter(RetryingExporter):
    """
    Takes the arguments and variables of the official exporter, and sends the same bytes.

    Raises TransportError if an argument or a variable is invalid, or a file can't be used.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        insecure: bool | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        headers: Sequence[tuple[str, str]] | Mapping[str, str] | str | None = None,
        timeout: float | None = None,
        compression: grpc.Compression | None = None,
        channel_options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        by_name = (
            parse(escaped_headers, headers, "option headers")
            if isinstance(headers, str)
            else dict(headers or {})
        )
        options = {
            "headers": by_name,
            "timeout": timeout,
            "compression": None if compression is None else _NAMES[compression],
            "profile": "collector",
        }
        address = grpc_url(endpoint or variable("ENDPOINT")[1], insecure)
        settings = resolve(address, options)
        sender = GrpcSender(settings, credentials=credentials, channel=channel_options or ())
        super().__init__(sender, address, settings.timeout, 0)


OTLPSpanExporter = GrpcSpanExporter
"""The name of the official exporter, so that a program changes only an import."""

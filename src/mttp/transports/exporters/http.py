"""The exporter of OTLP over HTTP for any tracer provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mttp.transports.environment import http_url
from mttp.transports.exporters.retrying import RetryingExporter
from mttp.transports.otlp.http import HttpSender
from mttp.transports.otlp.settings import resolve, variable

__all__ = ["HttpSpanExporter", "OTLPSpanExporter"]


class HttpSpanExporter(RetryingExporter):
    """
    Takes the arguments and variables of the official exporter, and sends the same bytes.

    Raises TransportError if an argument or a variable is invalid, or a file can't be used.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        certificate_file: str | None = None,
        client_key_file: str | None = None,
        client_certificate_file: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        compression: Any = None,
        *,
        max_request_size: int | None = None,
    ) -> None:
        options = {
            "certificate": certificate_file,
            "client_key": client_key_file,
            "client_certificate": client_certificate_file,
            "headers": headers,
            "timeout": timeout,
            "compression": getattr(compression, "value", compression),  # the official enumeration, or a word
            "profile": "collector",
        }
        settings = resolve(endpoint or http_url(*variable("ENDPOINT")), options)
        super().__init__(HttpSender(settings), settings.endpoint, settings.timeout, max_request_size)


OTLPSpanExporter = HttpSpanExporter
"""The name of the official exporter, so that a program changes only an import."""

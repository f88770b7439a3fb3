"""Settings of an OTLP transport, from its options and the OTEL_EXPORTER_OTLP variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ssl import SSLContext
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from mttp.errors import TransportError
from mttp.otlp.tls import tls_context
from mttp.transports.options import (
    ByteCount,
    Directory,
    Headers,
    ReadableFile,
    Seconds,
    byte_count,
    escaped_headers,
    parse,
    parsers,
    take,
)
from mttp.transports.otlp.profiles import Profile, guessed, named

__all__ = ["TRACES_PATH", "VARIABLES", "Settings", "parse_variable", "resolve", "variable"]

TRACES_PATH = "/v1/traces"
"""Path for traces of an OTLP receiver over HTTP."""

_MAX_BYTES = {"http": 20 * 2**20 - 2**16, "grpc": 4 * 2**20 - 2**14}
"""The default limits of the Collector, less a margin."""
_MOST_BYTES = 64 * 2**20
"""The largest request of the official exporters."""
VARIABLES = ("headers", "compression", "timeout", "certificate", "client_key", "client_certificate")
"""Options that OpenTelemetry's variables can set."""


def _request_bytes(value: object) -> int:
    count = byte_count(value)
    if count > _MOST_BYTES:
        raise ValueError("expected at most 64MiB")
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an OTLP connection; annotated fields are options."""

    protocol: str
    """http or grpc."""
    endpoint: str
    """The URL for HTTP, host and port for gRPC."""
    secure: bool
    """Whether the connection uses TLS."""
    headers: Headers
    """Headers of every request, with names in lower case."""
    compression: Literal["none", "gzip", "deflate"] = "none"
    """The compression of requests; deflate only over HTTP."""
    timeout: Seconds = 10.0
    """Maximum seconds of one request."""
    certificate: ReadableFile | None = None
    """File of trusted certificates; the default is those of the system."""
    client_key: ReadableFile | None = None
    """File of the client's private key."""
    client_certificate: ReadableFile | None = None
    """File of the client's certificate."""
    max_bytes: Annotated[int, _request_bytes]
    """Maximum bytes of one request, uncompressed."""
    profile: Annotated[Profile, named]
    """The limits of the receiver."""
    names: Literal["kind", "outcome"] = "kind"
    """Whether names of spans also say an episode's outcome and a step's index, for lists of traces."""
    spool: Directory | None = None
    """The directory where spans wait that the receiver does not accept now."""
    spool_bytes: ByteCount = 2**30
    """Maximum bytes of that directory."""

    def tls(self) -> SSLContext:
        """Return the TLS context for HTTP; raises TransportError if a file can't be used."""
        return tls_context(self.certificate, self.client_certificate, self.client_key)


def variable(name: str) -> tuple[str, str]:
    """Return name and value of the variable for traces, else of the general one; empty if neither is set."""
    for full in (f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"):
        if value := os.environ.get(full, "").strip():
            return full, value
    return "", ""


def resolve(url: str, options: Mapping[str, object]) -> Settings:
    """
    Return the settings for an address; options take precedence over variables.

    Raises TransportError if the address, an option or a variable is invalid, or a file can't be read.
    """
    parts = _split(url)
    protocol = "grpc" if parts.scheme.startswith("grpc") else "http"
    from_options = take(options, Settings)
    profile = from_options.get("profile") or guessed(url)
    from_variables = _from_variables()
    headers = {**profile.headers, **from_variables.get("headers", {}), **from_options.get("headers", {})}
    usual = {"max_bytes": min(_MAX_BYTES[protocol], profile.max_bytes or _MOST_BYTES)}
    settings = Settings(
        protocol=protocol,
        endpoint=parts.netloc if protocol == "grpc" else url,
        secure=parts.scheme in ("https", "grpcs"),
        **{**usual, **from_variables, **from_options, "headers": headers, "profile": profile},
    )
    if settings.client_key and not settings.client_certificate:
        raise TransportError("client_key is given without client_certificate")
    if protocol == "grpc" and settings.compression == "deflate":
        raise TransportError("compression=deflate is for HTTP: receivers over gRPC take gzip or none")
    settings.tls()
    return settings


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise TransportError(f"{error}; write {url.partition('://')[0]}://HOST:PORT") from error
    if not parts.hostname:
        raise TransportError(f"no host; write {parts.scheme}://HOST:PORT")
    if "@" in parts.netloc:
        raise TransportError("an address can't contain credentials; give them as headers")
    if parts.scheme.startswith("grpc") and (port is None or parts.path.strip("/")):
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        raise TransportError(
            f"a gRPC address has a host and a port, and no path; write {parts.scheme}://{host}:4317"
        )
    return parts


def _from_variables() -> dict[str, Any]:
    variables = {name: variable(name.upper()) for name in VARIABLES}
    return {name: parse_variable(name, value, full) for name, (full, value) in variables.items() if full}


def parse_variable(option: str, value: str, full: str) -> Any:
    """Parse the value of the variable `full`, which sets an option; raises TransportError."""
    parser = escaped_headers if option == "headers" else parsers(Settings)[option]
    return parse(parser, value, full)

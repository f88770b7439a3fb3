"""What an OTLP transport is told: by its options, else by the OTEL_EXPORTER_OTLP variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any
from urllib.parse import SplitResult, urlsplit

from opentelemetry.util.re import parse_env_headers

from mttp.errors import TransportError
from mttp.transports.options import byte_count, checked_headers, headers, one_of, readable, seconds, take
from mttp.transports.otlp.profiles import Profile, guessed, named
from mttp.wire.tls import tls_context

__all__ = ["TRACES_PATH", "Settings", "resolve", "variable"]

TRACES_PATH = "/v1/traces"
"""Where an OTLP receiver takes traces over HTTP."""

_MAX_BYTES = {"http": 20 * 2**20 - 2**16, "grpc": 4 * 2**20 - 2**14}
"""What receivers take by default, less a margin."""
_MOST_BYTES = 64 * 2**20
"""The official exporters send no larger request."""
_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that there is to know ahead of sending."""

    protocol: str
    """http or grpc."""
    endpoint: str
    """The whole URL over HTTP, host and port over gRPC."""
    secure: bool
    """Whether the connection uses TLS."""
    headers: Mapping[str, str]
    """Sent with every request, names in lower case."""
    compression: str
    """none, gzip or deflate."""
    timeout: float
    """Seconds that one request may take."""
    certificate: str | None
    """File of the certificates that the receiver's is checked against; by default those of the system."""
    client_key: str | None
    """File of this side's private key."""
    client_certificate: str | None
    """File of this side's certificate."""
    max_bytes: int
    """The most bytes of one request, uncompressed."""
    profile: Profile
    """What listens there keeps of what it is sent."""

    def tls(self) -> SSLContext:
        """How HTTP uses TLS; raises TransportError where a file can't be used."""
        return tls_context(self.certificate, self.client_certificate, self.client_key)


def variable(name: str) -> tuple[str, str]:
    """Name and value of the variable that is set, the one for traces first; empty where none is."""
    for full in (f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"):
        if found := os.environ.get(full, "").strip():
            return full, found
    return "", ""


def resolve(url: str, options: Mapping[str, object]) -> Settings:
    """
    The settings for an address; options precede variables.

    Raises TransportError where anything is wrong or a file can't be read.
    """
    parts = _split(url)
    protocol = "grpc" if parts.scheme.startswith("grpc") else "http"
    chosen = options.get("profile")
    profile = guessed(url) if chosen is None else named(chosen)
    given = {name: value for name, value in options.items() if name not in ("headers", "profile")}
    found = _from_variables() | take(given, **_KNOWN)
    settings = Settings(
        protocol=protocol,
        endpoint=parts.netloc if protocol == "grpc" else url,
        secure=parts.scheme in ("https", "grpcs"),
        headers={**profile.headers, **_headers_of_variable(), **headers(options.get("headers"))},
        compression=found.get("compression", "none"),
        timeout=found.get("timeout", _TIMEOUT),
        certificate=found.get("certificate"),
        client_key=found.get("client_key"),
        client_certificate=found.get("client_certificate"),
        max_bytes=found.get("max_bytes", min(_MAX_BYTES[protocol], profile.max_bytes or _MOST_BYTES)),
        profile=profile,
    )
    if settings.client_key and not settings.client_certificate:
        raise TransportError("client_key is given without client_certificate")
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
        raise TransportError("an address holds no credentials; give them as headers")
    if parts.scheme.startswith("grpc") and (port is None or parts.path.strip("/")):
        raise TransportError(f"gRPC needs host and port alone; write {parts.scheme}://{parts.hostname}:4317")
    return parts


def _request_bytes(value: object) -> int:
    count = byte_count(value)
    if count > _MOST_BYTES:
        raise ValueError("expected at most 64MiB")
    return count


_KNOWN: Mapping[str, Callable[[Any], object]] = {
    "compression": one_of("none", "gzip", "deflate"),
    "timeout": seconds,
    "certificate": readable,
    "client_key": readable,
    "client_certificate": readable,
    "max_bytes": _request_bytes,
}


def _from_variables() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("compression", "timeout", "certificate", "client_key", "client_certificate"):
        full, value = variable(name.upper())
        if full:
            try:
                found[name] = _KNOWN[name](value.lower() if name == "compression" else value)
            except ValueError as error:
                raise TransportError(f"{full}={value!r}: {error}") from error
    return found


def _headers_of_variable() -> dict[str, str]:
    full, value = variable("HEADERS")
    return checked_headers(parse_env_headers(value, liberal=True), full)

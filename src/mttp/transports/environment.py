"""The transports that OpenTelemetry's own variables ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from mttp.errors import TransportError
from mttp.lane import Transport
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.settings import TRACES_PATH, variable

__all__ = ["from_environment", "grpc_url", "http_url"]

EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
_GROUP = "opentelemetry_traces_exporter"
_HTTP, _GRPC = "http/protobuf", "grpc"


def from_environment(profile: str | None = None) -> list[Transport] | None:
    """
    What OTEL_TRACES_EXPORTER names, or an OTLP transport where an endpoint alone is set; None without both.

    `none` is no transport at all; `profile` is that of each OTLP transport.
    Raises TransportError for a name or a protocol that nobody knows, or where a transport can't be opened.
    """
    named = os.environ.get(EXPORTER_VARIABLE, "").strip()
    if not named:
        return [_otlp(profile=profile)] if variable("ENDPOINT")[0] else None
    if named.lower() == "none":
        return []
    return [_opened(name.strip(), profile) for name in named.split(",") if name.strip()]


def _opened(name: str, profile: str | None) -> Transport:
    ours: dict[str, Callable[[], Transport]] = {
        "otlp": lambda: _otlp(profile=profile),
        "otlp_proto_http": lambda: _otlp(_HTTP, profile=profile),
        "otlp_proto_grpc": lambda: _otlp(_GRPC, profile=profile),
    }
    try:
        return ours[name]() if name in ours else _installed(name)
    except TransportError:
        raise
    except Exception as error:  # whatever an exporter of somebody's raises when it is made
        raise TransportError(f"{EXPORTER_VARIABLE} names {name!r}, which can't be made: {error!r}") from error


def _installed(name: str) -> Transport:
    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        known = ", ".join(sorted({"none", *(point.name for point in entry_points(group=_GROUP))}))
        raise TransportError(f"{EXPORTER_VARIABLE} names {name!r}; known are {known}")
    exporter: Transport = found[0].load()()
    return exporter


def _otlp(protocol: str = "", *, profile: str | None = None) -> OtlpTransport:
    full, endpoint = variable("ENDPOINT")
    protocol = protocol or _protocol(full, endpoint)
    url = http_url(full, endpoint) if protocol == _HTTP else grpc_url(endpoint)
    try:
        return OtlpTransport(url, profile=profile)
    except TransportError as error:
        where = f"{full}={endpoint!r}: " if full else ""
        raise TransportError(f"{where}{error}") from error.__cause__


def _protocol(full: str, endpoint: str) -> str:
    """What a variable says, else what the endpoint looks like, else the SDK's default."""
    name, protocol = variable("PROTOCOL")
    if name and protocol not in (_HTTP, _GRPC):
        raise TransportError(f"{name}={protocol!r}: expected {_HTTP} or {_GRPC}")
    if name:
        return protocol
    try:
        parts = urlsplit(endpoint)
        looks_like_http = parts.scheme in ("http", "https") and (parts.port == 4318 or parts.path.strip("/"))
    except ValueError as error:
        raise TransportError(f"{full}={endpoint!r}: {error}; write http://HOST:PORT") from error
    return _HTTP if looks_like_http else _GRPC


def http_url(full: str, endpoint: str) -> str:
    """The URL of an endpoint: that of the variable for traces is whole, the general one is its beginning."""
    if not endpoint:
        return f"http://localhost:4318{TRACES_PATH}"
    if not endpoint.startswith(("http://", "https://")):
        raise TransportError(f"{full}={endpoint!r}: expected http://HOST:PORT or https://HOST:PORT")
    return endpoint if "TRACES" in full else endpoint.rstrip("/") + TRACES_PATH


def grpc_url(endpoint: str, insecure: bool | None = None) -> str:
    """The scheme https means TLS; else `insecure` decides, then its variable, then the scheme http."""
    scheme, _, rest = (endpoint or "http://localhost:4317").rpartition("://")
    said = variable("INSECURE")[1].lower()
    if insecure is None:
        insecure = said == "true" if said else scheme == "http"
    is_insecure = scheme != "https" and insecure
    host = rest.rstrip("/")
    port = "" if re.search(r":\d+$", host) or "/" in host else ":443"  # gRPC's own default
    return f"{'grpc' if is_insecure else 'grpcs'}://{host}{port}"

"""Transports from OpenTelemetry's environment variables."""

from __future__ import annotations

import os
import re
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from mttp.codec.secrets import without_secrets
from mttp.errors import TransportError
from mttp.model.interrupts import raise_interrupt
from mttp.transports.export_target import Transport
from mttp.transports.options import known_are, one_of, parse
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.settings import TRACES_PATH, variable

__all__ = ["from_environment", "grpc_url", "http_url"]

EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
_GROUP = "opentelemetry_traces_exporter"
_HTTP, _GRPC = "http/protobuf", "grpc"
_PROTOCOLS = {"otlp": "", "otlp_proto_http": _HTTP, "otlp_proto_grpc": _GRPC}


def from_environment(profile: str | None = None) -> list[Transport] | None:
    """
    Return the transports of OTEL_TRACES_EXPORTER, or an OTLP transport if only an endpoint is set.

    The result is None without either variable, and empty for `none`. `profile` applies to OTLP transports.
    Raises TransportError for an unknown name or protocol, or if a transport can't be opened.
    """
    named = os.environ.get(EXPORTER_VARIABLE, "").strip()
    if not named:
        return [_otlp(profile=profile)] if variable("ENDPOINT")[0] else None
    if named.lower() == "none":
        return []
    return [_opened(name.strip(), profile) for name in named.split(",") if name.strip()]


def _opened(name: str, profile: str | None) -> Transport:
    if name in _PROTOCOLS:
        return _otlp(_PROTOCOLS[name], profile=profile)
    points = list(entry_points(group=_GROUP, name=name))
    if not points:
        known = sorted({"none", *(point.name for point in entry_points(group=_GROUP))})
        raise TransportError(f"{EXPORTER_VARIABLE} names {name!r}{known_are(name, known)}")
    try:
        exporter: Transport = points[0].load()()
    except Exception as error:  # an exporter of another library may raise any error
        raise_interrupt(error)
        raise TransportError(
            f"{EXPORTER_VARIABLE} names {name!r}, which can't be created: {error!r}"
        ) from error
    return exporter


def _otlp(protocol: str = "", *, profile: str | None) -> OtlpTransport:
    full, endpoint = variable("ENDPOINT")
    name, value = variable("PROTOCOL")
    if name and not protocol:
        protocol = parse(one_of(_HTTP, _GRPC), value, name)
    is_http = protocol == _HTTP if protocol else _looks_like_http(endpoint)
    url = http_url(full, endpoint) if is_http else grpc_url(endpoint)
    try:
        return OtlpTransport(url, profile=profile)
    except TransportError as error:
        where = f"{full}={without_secrets(endpoint)!r}: " if full else ""
        raise TransportError(f"{where}{error}") from error.__cause__


def _looks_like_http(endpoint: str) -> bool:
    """Whether an endpoint has the port of OTLP over HTTP, or a path; the default is gRPC, as in the SDK."""
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and (parts.port == 4318 or bool(parts.path.strip("/")))
    except ValueError:  # an invalid port, which is reported on opening
        return True


def http_url(full: str, endpoint: str) -> str:
    """Return the URL of an endpoint; the path is added unless the variable `full` is the one for traces."""
    endpoint = endpoint or "http://localhost:4318"
    if not endpoint.startswith(("http://", "https://")):
        shown = f"{full}={without_secrets(endpoint)!r}"
        raise TransportError(f"{shown}: expected http://HOST:PORT or https://HOST:PORT")
    return endpoint if "TRACES" in full else endpoint.rstrip("/") + TRACES_PATH


def grpc_url(endpoint: str, insecure: bool | None = None) -> str:
    """Return a gRPC address; TLS depends on the scheme https, then `insecure`, its variable, the scheme."""
    scheme, _, rest = (endpoint or "http://localhost:4317").rpartition("://")
    value = variable("INSECURE")[1].lower()
    if insecure is None:
        insecure = value == "true" if value else scheme == "http"
    is_insecure = scheme != "https" and insecure
    host = rest.rstrip("/")
    port = "" if re.search(r":\d+$", host) or "/" in host else ":443"  # gRPC's own default
    return f"{'grpc' if is_insecure else 'grpcs'}://{host}{port}"

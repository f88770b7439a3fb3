"""Profiles of trace stores: the attributes and sizes that each accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from mttp.codec.plain import scalar_text
from mttp.codec.withholding import Withholding
from mttp.errors import TransportError
from mttp.transports.options import known_are

__all__ = ["DEFAULT", "PROFILES", "Profile", "guessed", "named"]

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The limits of one trace store."""

    name: str
    """Its name in `profile=`."""
    withholding: Withholding
    """The attributes withheld from every span; each omission is named on the span."""
    max_bytes: int | None = None
    """Maximum bytes of one request, if it is less than a collector's limit."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Default headers of each request."""
    close_seconds: float = 10.0
    """Seconds that a closing session waits for the last spans."""


DEFAULT: Final = Profile(  # its JSON can't represent NaN, and no list that has one is shown
    name="jaeger",
    withholding=Withholding(content=False, max_elements=4096, max_episode_bytes=_MIB, non_finite=False),
)
"""The profile for an address that says nothing of its store, behind which there may be a Jaeger."""
_COLLECTOR = Profile(
    name="collector",
    withholding=Withholding(content=False, max_elements=4096, max_episode_bytes=_MIB),
)
_ALL = Profile(name="all", withholding=Withholding(content=False))
_TEMPO = Profile(  # truncates text at 2,048 bytes, and drops spans beyond 5 MB of a trace
    name="tempo",
    withholding=Withholding(content=False, max_elements=4096, max_text_bytes=2048, max_trace_bytes=4_500_000),
    max_bytes=4 * _MIB - 2**14,
)
_PHOENIX = Profile(  # loses spans with bytes and attributes with NaN, and flattens maps
    name="phoenix",
    withholding=Withholding(
        content=False,
        max_elements=4096,
        max_episode_bytes=_MIB,
        binary=False,
        non_finite=False,
        nested=False,
    ),
    close_seconds=60.0,  # it writes tens of spans a second
)
_MLFLOW = Profile(
    # Rejects requests without an experiment, of which 0 always exists; stores the repr of bytes;
    # parses text that is JSON, and then can't return the trace if an integer in it is too large.
    name="mlflow",
    withholding=Withholding(
        content=False,
        max_elements=4096,
        max_episode_bytes=_MIB,
        binary=False,
        huge_integers=False,
    ),
    headers={"x-mlflow-experiment-id": "0"},
    close_seconds=60.0,  # 608 spans took it 8 seconds
)
_STRICT = Profile(  # the strictest limits of all stores, such as VictoriaTraces' two megabytes per trace
    name="strict",
    withholding=Withholding(
        content=False,
        max_elements=1000,
        max_text_bytes=1024,
        binary=False,
        non_finite=False,
        nested=False,
        huge_integers=False,
        max_trace_bytes=1_800_000,
    ),
    max_bytes=_MIB,
)

PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile for profile in (DEFAULT, _COLLECTOR, _TEMPO, _PHOENIX, _MLFLOW, _STRICT, _ALL)
}
"""The profiles by name."""

_PORTS: Final = {6006: "phoenix", 5000: "mlflow", 10428: "strict"}
_HOSTS: Final = {"jaeger": "jaeger", "tempo": "tempo", "phoenix": "phoenix", "mlflow": "mlflow"}
_VICTORIA_TRACES: Final = "/insert/opentelemetry"


def named(name: object) -> Profile:
    """Return the profile with this name; raises TransportError if there is none."""
    if not isinstance(name, str) or name not in PROFILES:
        shown = scalar_text(name)[:80]
        raise TransportError(f"unknown profile {shown}{known_are(shown, PROFILES)}")
    return PROFILES[name]


def guessed(url: str) -> Profile:
    """Return the profile for the host name, path or port of an address, else `DEFAULT`."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    for word, name in _HOSTS.items():
        if word in host:
            return PROFILES[name]
    if parts.path.startswith(_VICTORIA_TRACES):
        return _STRICT
    return PROFILES[_PORTS.get(parts.port or 0, DEFAULT.name)]

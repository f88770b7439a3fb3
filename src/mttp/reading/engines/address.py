"""Addresses of partitioned datasets, and which of their episodes are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import parse_qsl, unquote, urlsplit

from mttp.errors import ReadError

__all__ = ["DatasetAddress", "Selection"]

_SELECTING = ("run", "env", "task", "split", "slice", "trace", "since", "until")
_OWN = {
    "s3": ("endpoint", "region"),
    "spark": ("path",),
    "clickhouse": ("table", "tls"),
    "file": (),
}
_TIMEOUT = 60.0
_CLUSTER_TIMEOUT = 600.0
_NO_CREDENTIALS = (
    "credentials are not allowed in the address; "
    "set the environment variables or files of the store's own tools"
)
_SPACED_OFFSET = re.compile(r"(?<=:\d\d) (\d\d:\d\d)$")
"""An offset of a time whose plus sign became a space, as usual in addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """
    Which episodes are read; of each field, any value may match.

    All are facts that are known when an episode starts, and that later facts don't change.
    """

    run: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    slice: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    since: int | None = None
    """Earliest start, nanoseconds since the Unix epoch."""
    until: int | None = None
    """Starts are before it, nanoseconds since the Unix epoch."""

    @property
    def is_everything(self) -> bool:
        """Whether all episodes match."""
        return self == Selection()

    @property
    def has_whole_runs(self) -> bool:
        """Whether all episodes of a run match, or none."""
        return self == Selection(run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetAddress:
    """The parsed address of a dataset."""

    scheme: str
    """file, s3, spark or clickhouse."""
    place: str
    """The address without options: a path, or SCHEME://HOST/PATH."""
    selection: Selection = Selection()
    timeout: float = _TIMEOUT
    """Seconds to wait for one answer of the object storage, or for one query of a cluster."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of this scheme only."""
    query: str = ""
    """The options as they were given."""

    def __str__(self) -> str:
        return f"{self.place}?{self.query}" if self.query else self.place

    @property
    def has_whole_runs(self) -> bool:
        """Whether all episodes of a run are read, or none."""
        return self.selection.has_whole_runs

    @classmethod
    def parse(cls, given: str) -> DatasetAddress:
        """Parse an address; raises ReadError if it is invalid."""
        place, _, query = given.partition("?")
        scheme, separator, rest = place.partition("://")
        if not separator:
            return cls(scheme="file", place=given)
        host = rest.partition("/")[0]
        if "@" in host:
            raise ReadError(f"{scheme}://…: {_NO_CREDENTIALS}")
        if not rest or (scheme != "file" and not host):
            raise ReadError(f"{place}: nothing follows {scheme}://; write {_example(scheme)}")
        options = _options(place, query, (*_SELECTING, "timeout", *_OWN[scheme]))
        for name in _OWN[scheme]:
            if any("@" in urlsplit(value).netloc for value in options.get(name, ())):
                raise ReadError(f"{place}: option {name}: {_NO_CREDENTIALS}")
        return cls(
            scheme=scheme,
            place=unquote(rest) if scheme == "file" else place.rstrip("/"),
            selection=_selection(place, options),
            timeout=_seconds(
                place, options.get("timeout", []), _CLUSTER_TIMEOUT if scheme == "spark" else _TIMEOUT
            ),
            options={name: options[name][-1] for name in _OWN[scheme] if name in options},
            query=query,
        )


def _example(scheme: str) -> str:
    if scheme == "spark":
        return "spark://HOST:7077?path=s3a://BUCKET/PATH"
    if scheme == "clickhouse":
        return "clickhouse://HOST:8123/DATABASE"
    return f"{scheme}:///PATH" if scheme == "file" else f"{scheme}://BUCKET/PATH"


def _options(place: str, query: str, known: tuple[str, ...]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ReadError(f"{place}: unknown option {name!r}; known are {', '.join(known)}")
        options.setdefault(name, []).append(value)
    return options


def _selection(place: str, options: Mapping[str, list[str]]) -> Selection:
    texts = {name: tuple(options.get(name, ())) for name in ("run", "env", "task", "split", "slice", "trace")}
    times = {name: _time(place, name, options[name]) for name in ("since", "until") if name in options}
    return Selection(**texts, **times)  # type: ignore[arg-type]  # texts and times have fields of their own


def _time(place: str, name: str, values: list[str]) -> int:
    """A date or time of ISO 8601 in nanoseconds since the Unix epoch; UTC unless it names its offset."""
    if len(values) > 1:
        raise ReadError(f"{place}: option {name} is given {len(values)} times; give one time")
    (text,) = values
    try:
        time = datetime.fromisoformat(_SPACED_OFFSET.sub(r"+\1", text.replace("Z", "+00:00")))
    except ValueError as error:
        advice = "expected a date or time, such as 2026-01-31 or 2026-01-31T12:00:00Z"
        raise ReadError(f"{place}: option {name}={text!r}: {advice}") from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    elapsed = time - epoch
    return (elapsed.days * 86_400 + elapsed.seconds) * 10**9 + elapsed.microseconds * 1000


def _seconds(place: str, values: list[str], default: float) -> float:
    try:
        seconds = float(values[-1]) if values else default
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ReadError(f"{place}: option timeout={values[-1]!r}: expected a number above zero")
    return seconds

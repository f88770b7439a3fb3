"""Addresses of trace stores and their options."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from mttp.errors import ReadError

__all__ = ["Address"]

_LIMIT = 1000
_PORTS = {"jaeger": 16686, "tempo": 3200, "phoenix": 6006, "mlflow": 5000}
_OWN = {
    "jaeger": ("service", "tags", "start", "end", "wait"),
    "tempo": ("q", "start", "end", "wait"),
    "phoenix": ("project",),
    "mlflow": ("experiment",),
}
_WAITS = {"jaeger": 5, "tempo": 45}
"""Seconds for which stores are searched again that find traces only some time after they accept them."""
_NARROWING = frozenset({"q", "tags", "start", "end"})
"""Options that select some of a run's episodes."""
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_COMMON = ("run", "trace", "limit", "timeout", "tls", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The parsed address of a trace store, with its options."""

    scheme: str
    """Kind of store: jaeger, tempo, phoenix or mlflow."""
    url: str
    """Base URL of the query API, without a trailing slash."""
    run: str | None = None
    """Id of the run whose traces are read; None for all runs."""
    traces: tuple[str, ...] = ()
    """Ids of the traces to read; empty to search."""
    limit: int = _LIMIT
    """Largest number of traces to request."""
    timeout: float = 30.0
    """Seconds to wait for one response."""
    wait: float = 0.0
    """Seconds to repeat the search for an incomplete run."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of every request."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of this kind of store only."""

    def __str__(self) -> str:
        return self.url

    @property
    def has_whole_runs(self) -> bool:
        """Whether all episodes of a run are requested, or none."""
        return not self.traces and _NARROWING.isdisjoint(self.options)

    @classmethod
    def parse(cls, given: str) -> Address:
        """Parse an address; raises ReadError if it is invalid."""
        place, _, query = given.partition("?")
        parts = _parts(place)
        options = _options(query)
        known = (*_COMMON, *_OWN[parts.scheme])
        for name in options:
            if name not in known:
                raise ReadError(f"{place}: unknown option {name!r}; known are {', '.join(known)}")
        _check_tags(place, options.get("tags", "{}"))
        for name in ("start", "end"):
            _number(place, name, options.get(name) or "1", most=1e17)
        port = parts.port or _PORTS[parts.scheme]
        secure = options.get("tls", "false").lower() in ("true", "1", "yes")
        return cls(
            scheme=parts.scheme,
            url=f"{'https' if secure else 'http'}://{_host(parts.hostname)}:{port}{parts.path.rstrip('/')}",
            run=options.get("run") or None,
            traces=tuple(_trace_ids(place, options.get("trace", ""))),
            limit=int(_number(place, "limit", options.get("limit", str(_LIMIT)))),
            timeout=_number(place, "timeout", options.get("timeout", "30")),
            wait=_number(place, "wait", options.get("wait", str(_WAITS.get(parts.scheme, 0))), least=0.0),
            headers=_headers(place, options.get("headers", "")),
            options={name: options[name] for name in _OWN[parts.scheme] if name in options},
        )


def _parts(place: str):  # type: ignore[no-untyped-def]  # urllib's own type is generic in text and bytes
    scheme = place.partition("://")[0]
    try:
        parts = urlsplit(place)
        _ = parts.port
    except ValueError as error:
        raise ReadError(f"{place}: {error}; write {scheme}://HOST:{_PORTS[scheme]}") from error
    if not parts.hostname:
        raise ReadError(f"{place}: no host; write {scheme}://HOST:{_PORTS[scheme]}")
    if "@" in parts.netloc:
        raise ReadError(
            f"{scheme}://…: credentials are not allowed in the address; give them as headers=NAME=VALUE"
        )
    return parts


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _options(query: str) -> dict[str, str]:
    """The options; a TraceQL query in braces ends at its last brace."""
    query_option: dict[str, str] = {}
    begin = query.find("q={")
    if begin >= 0 and (begin == 0 or query[begin - 1] == "&"):
        end = query.rfind("}") + 1
        query_option["q"] = query[begin + 2 : end]
        query = query[:begin] + query[end:]
    return {**dict(parse_qsl(query.strip("&"), keep_blank_values=True)), **query_option}


def _trace_ids(place: str, ids: str) -> list[str]:
    trace_ids = [item.strip().lower().zfill(32) for item in ids.split(",") if item.strip()]
    for trace_id in trace_ids:
        if not _TRACE_ID.fullmatch(trace_id):
            raise ReadError(f"{place}: option trace={ids!r}: expected ids of traces, 32 hex digits each")
    return trace_ids


def _check_tags(place: str, tags: str) -> None:
    try:
        is_object = isinstance(json.loads(tags), dict)
    except ValueError:
        is_object = False
    if not is_object:
        raise ReadError(f'{place}: option tags={tags!r}: expected a JSON object, e.g. {{"error":"true"}}')


def _number(place: str, name: str, text: str, *, least: float | None = None, most: float = 1e9) -> float:
    """The number, which must be above zero or, if given, at least `least`."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0 if least is None else number >= least) or number >= most:
        expected = "above zero" if least is None else f"of {least:g} or more"
        raise ReadError(f"{place}: option {name}={text!r}: expected a number {expected}")
    return number


def _headers(place: str, headers: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in headers.split(",") if item.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise ReadError(f"{place}: option headers: expected name=value, separated by commas")
    return {name.strip(): value.strip() for name, _, value in pairs}

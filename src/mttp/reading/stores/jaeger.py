"""Jaeger and stores with its API: searched by the older API, read by the newer one if available."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from mttp.errors import ReadError
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.reading.stores import otlp
from mttp.reading.stores.address import Address
from mttp.reading.stores.query import StoreNotFound, UnknownPath, ask
from mttp.reading.stores.store import Store
from mttp.reading.stores.texts import EMPTY, TEXTS, StringLosses, typed
from mttp.semconv import attributes as a
from mttp.semconv.registry import KINDS

__all__ = ["Jaeger", "open"]

_OF_TOOLS = ("jaeger", "mttp-probe")
"""Beginnings of names of services whose traces are read on request only: Jaeger's own, and `mttp probe`'s."""
_PAUSE_SECONDS = 0.2
_TOO_MANY = "search depth must be"
"""In the error of a store whose memory holds fewer traces than the limit of a search."""
_RAW = {"raw": "true"}
"""Asks for spans as they were sent; without it, times are moved and warnings added."""
_EMPTY = (
    f"this store returns {EMPTY!r} for an empty string: empty strings and {EMPTY!r} can't be distinguished"
)
_OLDER = (
    "this store has Jaeger's older API only: times have microseconds, flags are lost, "
    "and maps and lists of mixed types are strings"
)


def open(address: Address) -> Store:
    """The Jaeger at an address."""
    return Jaeger(address)


class Jaeger(Store):
    """Searches by `/api/traces`, and reads each trace as OTLP by `/api/v3/traces`."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._found: dict[str, Any] = {}
        """Traces from the search, in Jaeger's JSON."""
        self._decoded: dict[str, list[SpanRecord]] = {}
        """Traces from a search by the newer API."""
        self._has_newer = True
        self._limit = address.limit
        """Largest number of traces that one search of the store may return."""
        self._cut: list[str] = []
        """Services of which the last search returned as many traces as it may."""
        self._strings = StringLosses()

    def search(self) -> Iterator[str]:
        """Search by service, and by run if given; repeat until a run is complete, then yield its traces."""
        trace_ids: dict[str, None] = {}
        for _ in self._rounds(_PAUSE_SECONDS):
            self._cut.clear()
            for service in self._services():
                trace_ids |= dict.fromkeys(self._search(service))
            for trace_id in trace_ids if self._is_awaited else ():
                for span in self._decoded.get(trace_id) or _spans(self._found[trace_id]):
                    self._count(span)
            if self._cut:
                break
        if len(trace_ids) < self.address.limit and not self._is_whole:
            self.losses += (
                f"{self._limit:,} traces of service {service} were found, and the store returns no more at "
                "once; start=N and end=N, in microseconds since 1970, select others"
                for service in self._cut
            )
        yield from trace_ids
        self._note_missing_end(trace_ids)

    def _search(self, service: str) -> list[str]:
        try:
            data = self._asked("/api/traces", self._query(service), "limit").get("data") or ()
        except ReadError as error:  # the older API fails if any trace has a NaN
            return self._search_newer(service, error)
        traces = {trace["traceID"].zfill(32): trace for trace in data}
        self._note_cut(service, traces)
        self._found |= traces
        return [*traces]

    def _search_newer(self, service: str, error: ReadError) -> list[str]:
        """The traces of a service by the newer API, which can't search attributes; raises `error`."""
        query = {
            "query.service_name": service,
            "query.start_time_min": self._moment("start"),
            "query.start_time_max": self._moment("end"),
            "query.raw_traces": "true",
        }
        try:
            answer = self._asked("/api/v3/traces", query, "query.num_traces", "query.search_depth")
        except StoreNotFound:
            return []
        except ReadError:
            raise error from None
        traces: dict[str, list[SpanRecord]] = {}
        for span in self._spans(self.address.url, answer):
            traces.setdefault(span.trace_id, []).append(span)
        self._note_cut(service, traces)
        matching = {key: spans for key, spans in traces.items() if self._is_wanted(spans)}
        self._decoded |= matching
        return [*matching]

    def _asked(self, path: str, query: Mapping[str, Any], *limits: str) -> Any:
        """The response to a search with the limit in these parameters, halved until the store takes it."""
        while True:
            try:
                return ask(self.address, path, {**query, **dict.fromkeys(limits, self._limit)})
            except ReadError as error:
                if _TOO_MANY not in str(error) or self._limit == 1:
                    raise
                self._limit //= 2

    def _note_cut(self, service: str, traces: Collection[str]) -> None:
        if len(traces) >= self._limit:
            self._cut.append(service)

    def _is_wanted(self, spans: list[SpanRecord]) -> bool:
        run = self.address.run
        return run is None or any(span.attributes.get(a.RUN_ID) == run for span in spans)

    def _moment(self, name: str) -> str:
        microseconds = int(self.address.options.get(name, _ALL_TIME[name]))
        return datetime.fromtimestamp(microseconds / 1e6, timezone.utc).isoformat().replace("+00:00", "Z")

    def _services(self) -> list[str]:
        if service := self.address.options.get("service"):
            return [service]
        services = ask(self.address, "/api/services").get("data") or []
        return sorted(name for name in services if not name.startswith(_OF_TOOLS))

    def _query(self, service: str) -> dict[str, Any]:
        options = self.address.options
        query: dict[str, Any] = {"service": service, **_RAW}
        tags = json.loads(options["tags"]) if "tags" in options else {}
        if self.address.run:
            tags[a.RUN_ID] = self.address.run
        if tags:
            query["tags"] = json.dumps(tags)
        query |= {name: options[name] for name in ("start", "end") if name in options}
        return query if {"start", "end"} & query.keys() else {**query, "lookback": "custom", **_ALL_TIME}

    def trace(self, trace_id: str) -> list[SpanRecord]:
        """The trace by the newer API, as OTLP, else by the older one."""
        if trace_id in self._decoded:
            return self._decoded.pop(trace_id)
        if self._has_newer:
            try:
                path = f"/api/v3/traces/{trace_id}"
                answer = ask(self.address, path, {"raw_traces": "true"})
                self._found.pop(trace_id, None)
                return self._spans(f"{self.address.url}{path}", answer)
            except StoreNotFound:
                return []
            except UnknownPath:
                self._has_newer = False
                self.losses.append(_OLDER)
        return self._by_older(trace_id)

    def _spans(self, where: str, answer: Mapping[str, Any]) -> list[SpanRecord]:
        """The spans of an OTLP response, with the types of the convention."""
        return self._typed(otlp.spans(where, answer.get("result", answer)))

    def _typed(self, records: Sequence[SpanRecord]) -> list[SpanRecord]:
        """The spans with the types of the convention; attributes of unknown type are listed as losses."""
        if TEXTS not in self.losses and _keeps_text(records):
            self.losses.append(TEXTS)
        spans = [replace(span, attributes=typed(_recorded(span.attributes))) for span in records]
        if TEXTS in self.losses:
            for span in spans:
                self.losses += self._strings.of(span.attributes)
                if _EMPTY not in self.losses and EMPTY in span.attributes.values():
                    self.losses.append(_EMPTY)
        return spans

    def doubt(self, trace_id: str) -> str:
        """Why the interface can't show the trace: it uses the older API, which can't represent NaN."""
        try:
            ask(self.address, f"/api/traces/{trace_id}")
        except ReadError as error:
            return f"Jaeger's user interface can't show it: {error}"
        return ""

    def _by_older(self, trace_id: str) -> list[SpanRecord]:
        trace = self._found.pop(trace_id, None)
        if trace is None:
            try:
                data = ask(self.address, f"/api/traces/{trace_id}", _RAW).get("data") or []
            except StoreNotFound:
                return []
            trace = next(iter(data), None)
        return [] if trace is None else self._typed(_spans(trace))


def _keeps_text(spans: Sequence[SpanRecord]) -> bool:
    """Whether a number of the convention came as text."""
    return any(type(span.attributes.get(key)) is str for span in spans for key in _NUMBERS)


def _recorded(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes without what Jaeger added, such as its warnings."""
    return {key: value for key, value in attributes.items() if not key.startswith("@jaeger@")}


_NUMBERS = (a.EPISODE_STEP_COUNT, a.STEP_INDEX)
_ALL_TIME = {"start": 0, "end": 4_102_444_800_000_000}
"""In microseconds, to the year 2100; Jaeger looks two days back otherwise."""


def _spans(trace: Mapping[str, Any]) -> list[SpanRecord]:
    """The spans of a trace in Jaeger's JSON."""
    resources = {key: _resource(process) for key, process in (trace.get("processes") or {}).items()}
    return [_span(span, resources.get(span.get("processID"), {})) for span in trace.get("spans") or ()]


def _resource(process: Mapping[str, Any]) -> dict[str, Any]:
    return {a.SERVICE_NAME: process.get("serviceName", ""), **_values(process.get("tags"))}


def _span(span: Mapping[str, Any], resource: dict[str, Any]) -> SpanRecord:
    values = _values(span.get("tags"))
    start = int(span["startTime"]) * 1000
    code = {"OK": 1, "ERROR": 2}.get(str(values.pop("otel.status_code", "")), 0)
    if values.pop("error", None) is True:
        code = 2
    scope = Scope(
        name=str(values.pop("otel.scope.name", values.pop("otel.library.name", ""))),
        version=str(values.pop("otel.scope.version", values.pop("otel.library.version", ""))),
        resource=resource,
    )
    values.pop("internal.span.format", None)
    trace_id, references = span["traceID"].zfill(32), span.get("references") or ()
    parents = [ref for ref in references if ref["refType"] == "CHILD_OF" and _is_of(ref, trace_id)]
    return SpanRecord(
        trace_id=trace_id,
        span_id=span["spanID"].zfill(16),
        parent_id=parents[0]["spanID"].zfill(16) if parents else "",
        name=span.get("operationName", ""),
        kind=KINDS.get(str(values.pop("span.kind", "internal")), 0),
        start_time=start,
        end_time=start + int(span.get("duration", 0)) * 1000,
        status_code=code,
        status_message=str(values.pop(a.OTEL_STATUS_DESCRIPTION, "")),
        trace_state=str(values.pop("w3c.tracestate", "")),
        attributes=values,
        events=[_event(log) for log in span.get("logs") or ()],
        links=[
            Link(ref["traceID"].zfill(32), ref["spanID"].zfill(16), {})
            for ref in references
            if ref not in parents[:1]
        ],
        scope=scope,
    )


def _is_of(reference: Mapping[str, Any], trace_id: str) -> bool:
    return str(reference["traceID"]).zfill(32) == trace_id


def _event(log: Mapping[str, Any]) -> SpanEvent:
    values = _values(log.get("fields"))
    return SpanEvent(str(values.pop("event", "")), int(log["timestamp"]) * 1000, values)


def _values(tags: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {tag["key"]: _value(tag) for tag in tags or ()}


def _value(tag: Mapping[str, Any]) -> Any:
    kind, value = tag["type"], tag["value"]
    if kind == "int64":
        return int(value)  # beyond 2**53 it is a string
    if kind == "float64":
        return float(value)
    return base64.b64decode(value) if kind == "binary" else value

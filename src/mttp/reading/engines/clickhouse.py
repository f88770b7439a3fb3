"""
Reads spans from the table that the Collector's exporter for ClickHouse fills.

The table keeps a row per span, and every attribute as text. ClickHouse selects episodes and attributes;
only their rows come back, with the types of the convention.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Set
from functools import cached_property, lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import KEPT_LISTS, Link, Scope, SpanEvent, SpanRecord
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.failures import readable
from mttp.reading.engines.selecting import FACTS, LISTS, one_of, texts, traces_of, translated
from mttp.reading.stores.texts import TEXTS, StringLosses, typed
from mttp.semconv import attributes as a
from mttp.semconv import registry

__all__ = ["SpanTable"]

TABLE = "otel_traces"
"""The exporter's own name of the table."""
PASSWORD = "CLICKHOUSE_PASSWORD"
"""The variable of the password."""
_BATCH_ROWS = 2_000
_PLAIN: Final = {
    "TraceId": "TraceId",
    "SpanId": "SpanId",
    "ParentSpanId": "ParentSpanId",
    "TraceState": "TraceState",
    "SpanName": "SpanName",
    "SpanKind": "SpanKind",
    "ScopeName": "ScopeName",
    "ScopeVersion": "ScopeVersion",
    "StatusCode": "StatusCode",
    "StatusMessage": "StatusMessage",
    "Timestamp": "toUnixTimestamp64Nano(Timestamp)",
    "Duration": "toInt64(Duration)",
    "ResourceAttributes": "toJSONString(ResourceAttributes)",
    "SpanAttributes": "SpanAttributes",
}
"""What is asked of each column of the exporter's table."""
_NESTED: Final = {
    "Events.Timestamp": "arrayMap(time -> toUnixTimestamp64Nano(time), Events.Timestamp)",
    "Events.Name": "Events.Name",
    "Events.Attributes": "Events.Attributes",
    "Links.TraceId": "Links.TraceId",
    "Links.SpanId": "Links.SpanId",
    "Links.Attributes": "Links.Attributes",
}
"""The same of the columns that are asked for with arrays only."""
_STATUSES = {"ok": 1, "error": 2}
_ARRAYS = frozenset(
    key
    for key, definition in registry.attributes().items()
    if not (definition.is_template or registry.is_scalar(key))
    and key not in {*KEPT_LISTS, a.ANNOTATION_VALUE}
)
"""Attributes that are not fetched where no arrays are wanted."""


class SpanTable:
    """The selected spans of a table; ClickHouse is asked when they are iterated over."""

    def __init__(self, address: DatasetAddress) -> None:
        self.address = address
        self.losses: list[str] = [TEXTS]
        """Descriptions of what the table does not give back."""
        parts = urlsplit(address.place)
        self._database = parts.path.strip("/") or "default"
        self._name = address.options.get("table", TABLE)

    def __repr__(self) -> str:
        return str(self.address)

    def records(self, *, arrays: bool = True, traces: Set[str] | None = None) -> Iterator[SpanRecord]:
        """
        Yield the spans of the selected episodes and what is about them, in the order of their starts.

        With `traces`, only the spans of these. Raises ReadError if ClickHouse can't be asked or has none.
        """
        with readable(self, secret=os.environ.get(PASSWORD, "")):
            is_empty, strings = True, StringLosses()
            for row in self._rows(self._query(arrays=arrays, traces=traces)):
                is_empty = False
                record = _record(row)
                self.losses += strings.of(record.attributes)
                yield record
            if is_empty and traces is None:
                raise ReadError(f"{self}: nothing was found; check the table and the options of the address")

    def check(self) -> None:
        """Raise ReadError unless the table can be read."""
        with readable(self, secret=os.environ.get(PASSWORD, "")):
            self._check_columns()

    @cached_property
    def _client(self) -> Any:
        try:
            import clickhouse_connect
            import pyarrow  # noqa: F401
        except ImportError as error:
            package, purpose = str(error.name).replace("_", "-"), f"reading {self.address}"
            raise MissingExtra(package=package, extra="clickhouse", purpose=purpose) from error
        parts = urlsplit(self.address.place)
        is_secure = self.address.options.get("tls", "false").lower() in ("true", "1", "yes")
        return clickhouse_connect.get_client(
            host=parts.hostname,
            port=parts.port or (8443 if is_secure else 8123),
            database=self._database,
            username=os.environ.get("CLICKHOUSE_USER") or "default",
            password=os.environ.get(PASSWORD, ""),
            secure=is_secure,
            connect_timeout=self.address.timeout,
            send_receive_timeout=self.address.timeout,
            autogenerate_session_id=False,
        )

    def _check_columns(self) -> Set[str]:
        """Return the names of the table's columns."""
        place = f"database = {_text(self._database)} AND table = {_text(self._name)}"
        answer = self._client.query_arrow(f"SELECT name FROM system.columns WHERE {place}")
        columns = {*answer.column("name").to_pylist()}
        missing = [column for column in (*_PLAIN, *_NESTED) if column not in columns]
        if missing:
            raise ReadError(
                f"{self}: {self._name!r} is not a table of the Collector's exporter: it lacks {missing[0]!r}"
            )
        return columns

    def _rows(self, query: str) -> Iterator[dict[str, Any]]:
        with self._client.query_arrow_stream(query) as blocks:
            for block in blocks:
                for start in range(0, len(block), _BATCH_ROWS):
                    yield from block.slice(start, _BATCH_ROWS).to_pylist()

    def _query(self, *, arrays: bool, traces: Set[str] | None) -> str:
        """Return the query for the spans that are wanted, in ClickHouse's SQL."""
        columns = self._check_columns()
        wanted = dict(_PLAIN)
        if arrays:
            wanted |= _NESTED
        else:
            wanted["SpanAttributes"] = (
                f"mapFilter((key, value) -> key NOT IN ({texts(_ARRAYS)}), SpanAttributes)"
            )
        cells = ", ".join(f"{cell} AS `{name.lower()}`" for name, cell in wanted.items())
        table = f"{_name(self._database)}.{_name(self._name)}"
        view, condition = "", ""
        if traces is not None:
            condition = f"WHERE {translated(one_of('TraceId', sorted(traces)), 'clickhouse')}"
        elif not self.address.selection.is_everything:
            selected = translated(traces_of(self.address.selection), "clickhouse")
            view = f"WITH spans AS ({_facts(columns, table)}) "
            condition = f"WHERE TraceId IN (SELECT trace_id FROM ({selected}))"
        return f"{view}SELECT {cells} FROM {table} {condition} ORDER BY `timestamp`, `spanid`"


def _facts(columns: Set[str], table: str) -> str:
    """Return the query for what selects traces."""
    run = "run_id" if "run_id" in columns else f"SpanAttributes[{_text(a.RUN_ID)}]"
    facts = [f"nullIf(SpanAttributes[{_text(key)}], '') AS {_name(key)}" for key in FACTS]
    lists = [f"JSONExtract(SpanAttributes[{_text(key)}], 'Array(String)') AS {_name(key)}" for key in LISTS]
    start = "toUnixTimestamp64Nano(Timestamp) AS start_time"
    return f"SELECT TraceId AS trace_id, {run} AS run, {', '.join((start, *facts, *lists))} FROM {table}"


def _name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _text(text: str) -> str:
    return translated(texts([text]), "clickhouse")


def _record(row: Mapping[str, Any]) -> SpanRecord:
    start = int(row["timestamp"])
    return SpanRecord(
        trace_id=row["traceid"],
        span_id=row["spanid"],
        parent_id=row["parentspanid"],
        name=row["spanname"],
        kind=registry.KINDS.get(_word(row["spankind"]), 0),
        start_time=start,
        end_time=start + int(row["duration"]),
        status_code=_STATUSES.get(_word(row["statuscode"]), 0),
        status_message=row["statusmessage"],
        trace_state=row["tracestate"],
        attributes=typed(dict(row["spanattributes"])),
        events=_events(row) if "events.name" in row else (),
        links=_links(row) if "events.name" in row else (),
        scope=_scope(row["scopename"], row["scopeversion"], row["resourceattributes"]),
    )


def _word(text: str) -> str:
    """Return the word of a kind or status: `Internal`, or `SPAN_KIND_INTERNAL` by older exporters."""
    return text.rpartition("_")[2].lower()


@lru_cache(maxsize=1024)
def _scope(name: str, version: str, resource: str) -> Scope:
    """Return one object per scope and resource, by which readers compare."""
    return Scope(name=name, version=version, resource=typed(json.loads(resource)))


def _events(row: Mapping[str, Any]) -> list[SpanEvent]:
    rows = zip(row["events.name"], row["events.timestamp"], row["events.attributes"], strict=True)
    return [SpanEvent(name, int(time), typed(dict(values))) for name, time, values in rows]


def _links(row: Mapping[str, Any]) -> list[Link]:
    rows = zip(row["links.traceid"], row["links.spanid"], row["links.attributes"], strict=True)
    return [Link(trace_id, span_id, typed(dict(values))) for trace_id, span_id, values in rows]

"""
Reads spans from the table that the Collector's exporter for ClickHouse fills.

The table keeps a row per span, and every attribute as text. ClickHouse selects spans, gives attributes the
types of the convention, and returns the columns that a Parquet file of spans has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import KEPT_LISTS, SpanRecord, without_arrays
from mttp.reading.column_types import ATTRIBUTES, TEMPLATES
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
_MOST_TRACES: Final = 5_000
"""Largest number of trace ids in a query; a server takes 256 KiB by default."""
_COLUMNS: Final = (
    "Timestamp",
    "TraceId",
    "SpanId",
    "ParentSpanId",
    "TraceState",
    "SpanName",
    "SpanKind",
    "ResourceAttributes",
    "ScopeName",
    "ScopeVersion",
    "SpanAttributes",
    "Duration",
    "StatusCode",
    "StatusMessage",
    "Events.Timestamp",
    "Events.Name",
    "Events.Attributes",
    "Links.TraceId",
    "Links.SpanId",
    "Links.Attributes",
)
_NUMBERS: Final = {"unset": 0, "ok": 1, "error": 2, **registry.KINDS}
_VALUES: Final = {
    "string": "toNullable({0})",
    "int": "toInt64OrNull({0})",
    "double": "toFloat64OrNull(replaceOne({0}, 'json: unsupported value: ', ''))",
    "boolean": "multiIf({0} = 'true', true, {0} = 'false', false, NULL)",
    "string[]": "JSONExtract({0}, 'Array(String)')",
}
"""Values of text by their types in the convention; null for a text that is none."""
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
        self._database = urlsplit(address.place).path.strip("/") or "default"
        self._name = address.options.get("table", TABLE)

    def __repr__(self) -> str:
        return str(self.address)

    def records(self, *, arrays: bool = True, traces: Set[str] | None = None) -> Iterator[SpanRecord]:
        """
        Yield the spans of the selected episodes and what is about them, in the order of their starts.

        With `traces`, only the spans of these, unless they are too many for a query.
        Raises ReadError if ClickHouse can't be asked or has none.
        """
        for batch in self.batches(arrays=arrays, traces=traces):
            with readable(self):
                yield from self.records_of(batch, arrays=arrays)

    def batches(self, *, arrays: bool, traces: Set[str] | None = None) -> Iterator[Any]:
        """Yield these spans as Arrow batches with the columns of a Parquet file of spans."""
        from mttp.reading import parquet

        with readable(self, secret=os.environ.get(PASSWORD, "")):
            place, condition = self._place(traces)
            values = self._examples(place, condition, arrays=arrays)
            if not values and traces is None:
                raise ReadError(f"{self}: nothing was found; check the table and the options of the address")
            self.losses += StringLosses().of(values)
            cells = ", ".join(
                f"{cell} AS {_name(name)}" for name, cell in _cells(values, arrays=arrays).items()
            )
            query = f"SELECT {cells} FROM {place} {condition} ORDER BY start_time, span_id"
            with self._client.query_arrow_stream(query) as blocks:
                for block in blocks:
                    for start in range(0, len(block), _BATCH_ROWS):
                        yield parquet.checked(_without_empty_lists(block.slice(start, _BATCH_ROWS)))

    def records_of(self, batch: Any, *, arrays: bool) -> Iterator[SpanRecord]:
        """Yield the spans of a batch."""
        from mttp.reading import parquet

        for record in parquet.spans_of(batch, arrays=arrays):
            events = [replace(event, attributes=typed(event.attributes or {})) for event in record.events]
            links = [replace(link, attributes=typed(link.attributes or {})) for link in record.links]
            span = replace(record, attributes=typed(record.attributes), events=events, links=links)
            yield span if arrays else without_arrays(span)

    def check(self) -> None:
        """Raise ReadError unless the table can be read."""
        with readable(self, secret=os.environ.get(PASSWORD, "")):
            self._columns()

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

    def _columns(self) -> Set[str]:
        """Return the names of the table's columns."""
        place = f"database = {_text(self._database)} AND table = {_text(self._name)}"
        answer = self._client.query_arrow(f"SELECT name FROM system.columns WHERE {place}")
        columns = {*answer.column("name").to_pylist()}
        missing = [column for column in _COLUMNS if column not in columns]
        if missing:
            raise ReadError(
                f"{self}: {self._name!r} is not a table of the Collector's exporter: it lacks {missing[0]!r}"
            )
        return columns

    def _place(self, traces: Set[str] | None) -> tuple[str, str]:
        """Return the table, and the condition by which spans are wanted."""
        columns = self._columns()
        place = f"{_name(self._database)}.{_name(self._name)}"
        if traces is not None:
            if len(traces) > _MOST_TRACES:
                return place, ""
            return place, f"WHERE {translated(one_of('TraceId', sorted(traces)), 'clickhouse')}"
        if self.address.selection.is_everything:
            return place, ""
        selected = translated(traces_of(self.address.selection), "clickhouse")
        spans = f"WITH spans AS ({_facts(columns, place)})"
        return place, f"WHERE TraceId IN ({spans} SELECT trace_id FROM ({selected}))"

    def _examples(self, place: str, condition: str, *, arrays: bool) -> dict[str, str]:
        """
        Return the attributes of the spans that are wanted, each with a value that is JSON of no text, if any.

        Of those whose types the convention or the span tells, the value is empty.
        """
        hidden = texts([] if arrays else sorted(_ARRAYS)) or "''"
        not_bytes = texts(key for key in ATTRIBUTES if ATTRIBUTES[key] != "bytes")
        is_json = f"key NOT IN ({not_bytes}) AND NOT startsWith(value, '\"') AND isValidJSON(value)"
        is_told = (
            f"position(SpanAttributes[{_text(a.OMISSIONS)}], concat('\"', key, ': ')) > 0 "
            "OR endsWith(key, '.value') AND mapContains(SpanAttributes, replaceOne(key, '.value', '.dtype'))"
        )
        pairs = (
            "SELECT arrayJoin(SpanAttributes) AS pair, pair.1 AS key, pair.2 AS value, "
            f"{is_told} AS is_told FROM {place} {condition}"
        )
        answer = self._client.query_arrow(
            f"SELECT toString(key) AS name, anyIf(value, NOT is_told AND {is_json}) AS example "
            f"FROM ({pairs}) WHERE key NOT IN ({hidden}) GROUP BY key ORDER BY name"
        )
        return dict(zip(answer.column("name").to_pylist(), answer.column("example").to_pylist(), strict=True))


def _facts(columns: Set[str], place: str) -> str:
    """Return the query for what selects traces."""
    run = "run_id" if "run_id" in columns else f"SpanAttributes[{_text(a.RUN_ID)}]"
    facts = [f"nullIf(SpanAttributes[{_text(key)}], '') AS {_name(key)}" for key in FACTS]
    lists = [f"JSONExtract(SpanAttributes[{_text(key)}], 'Array(String)') AS {_name(key)}" for key in LISTS]
    start = "toUnixTimestamp64Nano(Timestamp) AS start_time"
    return f"SELECT TraceId AS trace_id, {run} AS run, {', '.join((start, *facts, *lists))} FROM {place}"


def _cells(names: Mapping[str, object], *, arrays: bool) -> dict[str, str]:
    """Return the columns of spans that have these attributes, with their expressions."""
    cells = {
        "trace_id": "TraceId",
        "span_id": "SpanId",
        "parent_id": "ParentSpanId",
        "name": "toString(SpanName)",
        "kind": _number("SpanKind"),
        "start_time": "toUnixTimestamp64Nano(Timestamp)",
        "end_time": "toUnixTimestamp64Nano(Timestamp) + toInt64(Duration)",
        "status_code": _number("StatusCode"),
        "status_message": "StatusMessage",
        "trace_state": "TraceState",
        "flags": "toInt64(0)",
        "scope": "toJSONString(map('name', ScopeName, 'version', ScopeVersion))",
        "resource": f"concat('{{\"attributes\":', {_otlp('ResourceAttributes')}, '}}')",
    }
    if arrays:
        cells["events"] = _otlp_list(
            'concat(\'{"timeUnixNano":"\', toString(toUnixTimestamp64Nano(time)), \'","name":\', '
            f"toJSONString(name), ',\"attributes\":', {_otlp('attributes')}, '}}')",
            ("time", "name", "attributes"),
            ("Events.Timestamp", "Events.Name", "Events.Attributes"),
        )
        cells["links"] = _otlp_list(
            'concat(\'{"traceId":"\', trace, \'","spanId":"\', span, \'","attributes":\', '
            f"{_otlp('attributes')}, '}}')",
            ("trace", "span", "attributes"),
            ("Links.TraceId", "Links.SpanId", "Links.Attributes"),
        )
    columns = {key: ATTRIBUTES[key] for key in names if ATTRIBUTES.get(key) in _VALUES}
    conditions = ["false"] if arrays else [f"key IN ({texts(sorted(_ARRAYS))})"]
    for key, type_ in columns.items():
        value = f"SpanAttributes[{_text(key)}]"
        cells[key] = _VALUES[type_].format(value)
        if not type_.endswith("[]"):
            cells[key] = f"if(mapContains(SpanAttributes, {_text(key)}), {cells[key]}, NULL)"
    for type_ in {*columns.values()}:
        keys = texts(key for key, other in columns.items() if other == type_)
        is_valid = (
            "startsWith(value, '[')"
            if type_.endswith("[]")
            else f"isNotNull({_VALUES[type_].format('value')})"
        )
        conditions.append(f"key IN ({keys}) AND {is_valid}")
    for prefix in sorted({key.rpartition(".")[0] for key in names} & TEMPLATES.keys()):
        value, begin = _VALUES[TEMPLATES[prefix]].format("value"), len(prefix) + 2
        condition = f"startsWith(key, '{prefix}.') AND position(key, '.', {begin}) = 0 AND isNotNull({value})"
        conditions.append(condition)
        items = f"mapFilter((key, value) -> {condition}, SpanAttributes)"
        cells[prefix] = (
            f"mapApply((key, value) -> (substring(key, {begin}), assumeNotNull({value})), {items})"
        )
    rest = f"mapFilter((key, value) -> NOT ({' OR '.join(conditions)}), SpanAttributes)"
    return cells | {"attributes": f"nullIf({_otlp(rest)}, '[]')"}


def _number(column: str) -> str:
    """Return the number of a kind or status: `Internal`, or `SPAN_KIND_INTERNAL` by older exporters."""
    word = f"lower(splitByChar('_', toString({column}))[-1])"
    return f"toInt64(transform({word}, [{texts(_NUMBERS)}], {[*_NUMBERS.values()]}, 0))"


def _otlp(attributes: str) -> str:
    """Return a map as attributes in OTLP JSON."""
    pair = "concat('{\"key\":', toJSONString(key), ',\"value\":{\"stringValue\":', toJSONString(value), '}}')"
    return _otlp_list(pair, ("key", "value"), (f"mapKeys({attributes})", f"mapValues({attributes})"))


def _otlp_list(item: str, names: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """Return lists of equal length as one list in JSON; `item` is that of the items with these names."""
    items = f"arrayMap(({', '.join(names)}) -> {item}, {', '.join(columns)})"
    return f"concat('[', arrayStringConcat({items}, ','), ']')"


def _without_empty_lists(batch: Any) -> Any:
    """Return a batch with null for each empty list: ClickHouse has no null in its place."""
    import pyarrow as pa
    from pyarrow import compute, types

    columns = [
        compute.if_else(
            compute.equal(compute.list_value_length(column), 0), pa.scalar(None, column.type), column
        )
        if types.is_list(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _text(text: str) -> str:
    return translated(texts([text]), "clickhouse")

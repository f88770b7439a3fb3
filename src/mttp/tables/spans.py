"""The table of spans: a row a span, a typed column an attribute, from any source that can be scanned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from mttp.codec import blocks, kinds
from mttp.codec.duplicates import fullness
from mttp.model.spans import SpanRecord
from mttp.reading.jsonable import jsonable
from mttp.semconv import attributes as a
from mttp.semconv import registry
from mttp.semconv import spans as names

__all__ = ["NUMBER", "SPAN_COLUMNS", "batches", "column_type", "needs_arrays"]

NUMBER: Final = ".number"
"""Ends the name of the second column of an attribute of any type: its value if that is a number."""
_ROWS: Final = 10_000
"""Spans in a batch."""
_TYPES: Final = {
    "string": "VARCHAR",
    "int": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string[]": "VARCHAR[]",
    "int[]": "BIGINT[]",
    "double[]": "DOUBLE[]",
    "any": "VARCHAR",
}

SPAN_COLUMNS: Final[dict[str, tuple[str, Callable[[SpanRecord], Any]]]] = {
    "trace_id": ("VARCHAR", lambda record: record.trace_id),
    "span_id": ("VARCHAR", lambda record: record.span_id),
    "parent_id": ("VARCHAR", lambda record: record.parent_id),
    "name": ("VARCHAR", lambda record: record.name),
    "type": ("VARCHAR", kinds.kind),
    "start_time": ("BIGINT", lambda record: record.start_time),
    "end_time": ("BIGINT", lambda record: record.end_time),
    "status_code": ("BIGINT", lambda record: record.status_code),
    "status_message": ("VARCHAR", lambda record: record.status_message),
    "omitted": ("BIGINT", lambda record: -fullness(record)[0]),
    "size": ("BIGINT", lambda record: fullness(record)[1]),
}
"""
Columns that every span has: their type, and what gives the value of a span.

`type` is that of the convention, such as `episode` or `step`; empty for spans that are not of it.
Times are in nanoseconds since the Unix epoch. `omitted` is the number of attributes that a transport left
out, `size` that of the attributes, events and links that are there.
"""


def column_type(column: str) -> str:
    """Return the SQL type of an attribute's column; raises KeyError for one that is not registered."""
    attributes = registry.attributes()
    if column.endswith(NUMBER) and _is_any(column.removesuffix(NUMBER)):
        return "DOUBLE"
    definition = attributes[column]
    type_ = _TYPES.get(definition.type, "VARCHAR")
    return f"MAP(VARCHAR, {type_})" if definition.is_template else type_


def _is_any(key: str) -> bool:
    definition = registry.attributes().get(key)
    return definition is not None and definition.type == "any" and not definition.is_template


def needs_arrays(columns: Iterable[str]) -> bool:
    """Return whether some of these columns hold what a scan without arrays leaves out."""
    return any(
        column_type(column).endswith("[]") or _is_any(column.removesuffix(NUMBER)) for column in columns
    )


def batches(records: Iterable[SpanRecord], columns: Sequence[str], *, unpack: bool) -> Iterator[Any]:
    """
    Yield Arrow tables of spans with the columns of `SPAN_COLUMNS` and those of these attributes.

    With `unpack`, a span of steps in columns is followed by a row for each of its steps, as if each had a
    span: its type is `step`, and its id tells segment, agent and index.
    """
    import pyarrow as pa

    fixed = {name: (_arrow(pa, type_), value) for name, (type_, value) in SPAN_COLUMNS.items()}
    cells = {name: (_arrow(pa, column_type(name)), _cell(name)) for name in columns}
    rows = _unpacked(records) if unpack else iter(records)
    while batch := list(islice(rows, _ROWS)):
        yield pa.table(
            {
                **{name: pa.array(map(value, batch), type_) for name, (type_, value) in fixed.items()},
                **{
                    name: pa.array([value(record.attributes) for record in batch], type_)
                    for name, (type_, value) in cells.items()
                },
            }
        )


def _unpacked(records: Iterable[SpanRecord]) -> Iterator[SpanRecord]:
    for record in records:
        yield record
        if a.STEPS_COUNT in record.attributes and kinds.kind(record) == names.STEPS:
            yield from blocks.spans(record)


def _cell(column: str) -> Callable[[Any], Any]:
    """Return the function that gives the value of a column from the attributes of a span."""
    if column.endswith(NUMBER) and _is_any(column.removesuffix(NUMBER)):
        key = column.removesuffix(NUMBER)
        return lambda attributes: _number(attributes.get(key))
    is_any = _is_any(column)
    if registry.attributes()[column].is_template:
        return _map(f"{column}.", _text if is_any else lambda value: value)
    return lambda attributes: _text(attributes.get(column)) if is_any else attributes.get(column)


def _map(prefix: str, value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def items(attributes: Any) -> list[tuple[str, Any]] | None:
        found = [(key[len(prefix) :], value(attributes[key])) for key in attributes if key.startswith(prefix)]
        return found or None

    return items


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(jsonable(value), ensure_ascii=False)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _arrow(pa: Any, type_: str) -> Any:
    scalars = {
        "VARCHAR": pa.string(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
    }
    if type_.endswith("[]"):
        return pa.list_(scalars[type_.removesuffix("[]")])
    if type_.startswith("MAP("):
        key, value = type_.removeprefix("MAP(").removesuffix(")").split(", ")
        return pa.map_(scalars[key], scalars[value])
    return scalars[type_]

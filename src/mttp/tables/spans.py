"""The table of spans: a row a span, a typed column an attribute, from any source that can be scanned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Final

from mttp.codec import annotations as annotation_codec
from mttp.codec import (
    blocks,
    components,
    content,
    evals,
    groups,
    kinds,
    steps,
    templates,
    updates,
)
from mttp.codec.duplicates import copy_key, fullness
from mttp.model.nesting import from_json
from mttp.model.spans import SpanRecord
from mttp.reading.jsonable import jsonable, to_json
from mttp.semconv import attributes as a
from mttp.semconv import registry
from mttp.semconv import spans as names

__all__ = ["DERIVED", "JSON", "NUMBER", "SPAN_COLUMNS", "batches", "column_type", "needs_arrays"]

NUMBER: Final = ".number"
"""Ends the name of the second column of an attribute of any type: its value if that is a number."""
JSON: Final = ".json"
"""
Ends the name of a column with an attribute as JSON: content as it is decoded, and all items of a template.

That of `EXTRA` has the attributes that this version of the convention does not know.
"""
EXTRA: Final = "mttp.extra"
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
    "copy_of": ("VARCHAR", lambda record: _copy_of(record)),
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
Times are in nanoseconds since the Unix epoch. `copy_of` tells which steps a block of steps has, since the
ids of its copies differ; null for other spans. `omitted` is the number of attributes that a transport left
out, `size` that of the attributes, events and links that are there.
"""


def _copy_of(record: SpanRecord) -> str | None:
    key = copy_key(record)
    return None if isinstance(key, str) else str(key)


DERIVED: Final[dict[str, tuple[str, Callable[[SpanRecord], Any]]]] = {
    "scores": ("MAP(VARCHAR, DOUBLE)", lambda record: _items(components.scores(record.attributes)[0])),
    "score_statuses": (
        "MAP(VARCHAR, VARCHAR)",
        lambda record: _items(components.scores(record.attributes)[1]),
    ),
    "weights": (
        "MAP(VARCHAR, DOUBLE)",
        lambda record: _items(components.decode(a.REWARD_WEIGHT, record.attributes)),
    ),
}
"""
Columns that are computed from several attributes of a span: their type, and what gives the value of a span.

`scores` are those of components by exact name; `score_statuses` has the statuses of components without a
score, and `weights` the weights.
"""


def _items(values: Mapping[str, Any]) -> list[tuple[str, Any]] | None:
    return [*values.items()] or None


def column_type(column: str) -> str:
    """Return the SQL type of an attribute's column; raises KeyError for one that is not registered."""
    if column in DERIVED:
        return DERIVED[column][0]
    key = column.removesuffix(JSON)
    if key != column and (key == EXTRA or _is_any(key) or _is_text(key)):
        return "VARCHAR"
    if column.endswith(NUMBER) and _is_any(column.removesuffix(NUMBER)):
        return "DOUBLE"
    definition = registry.attributes()[column]
    type_ = _TYPES.get(definition.type, "VARCHAR")
    return f"MAP(VARCHAR, {type_})" if definition.is_template else type_


def _is_any(key: str) -> bool:
    definition = registry.attributes().get(key)
    return definition is not None and definition.type == "any"


def _is_text(key: str) -> bool:
    definition = registry.attributes().get(key)
    return definition is not None and definition.type == "string"


def _is_template(key: str) -> bool:
    definition = registry.attributes().get(key)
    return definition is not None and definition.is_template


def needs_arrays(columns: Iterable[str]) -> bool:
    """Return whether some of these columns hold what a scan without arrays leaves out."""
    return any(
        column_type(column).endswith("[]")
        or column.endswith(JSON)
        or (_is_any(column.removesuffix(NUMBER)) and not _is_template(column))
        for column in columns
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
        present = set().union(*(record.attributes for record in batch))
        found = fixed | {
            name: (type_, value if _is_present(name, present) else _nothing)
            for name, (type_, value) in cells.items()
        }
        yield pa.table({name: pa.array(map(value, batch), type_) for name, (type_, value) in found.items()})


def _is_present(column: str, present: Set[str]) -> bool:
    """Return whether a column may have values where spans have these attributes."""
    key = column.removesuffix(NUMBER).removesuffix(JSON)
    if _is_template(key):
        return any(name.startswith(f"{key}.") for name in present)
    return key in present or column in DERIVED or key == EXTRA


def _nothing(_: SpanRecord) -> None:
    """Return the value of a column that no span of a batch has."""


def _unpacked(records: Iterable[SpanRecord]) -> Iterator[SpanRecord]:
    for record in records:
        yield record
        if a.STEPS_COUNT in record.attributes:
            kind = kinds.kind(record)
            if kind == names.STEPS:
                yield from blocks.spans(record)
            elif kind == names.ANNOTATE:
                yield from annotation_codec.spans(record)


def _cell(column: str) -> Callable[[SpanRecord], Any]:
    """Return the function that gives the value of a column from a span."""
    if column in DERIVED:
        return DERIVED[column][1]
    if column.endswith(JSON):
        return _document(column.removesuffix(JSON))
    if column.endswith(NUMBER) and _is_any(column.removesuffix(NUMBER)):
        key = column.removesuffix(NUMBER)
        return lambda record: _number(record.attributes.get(key))
    if _is_template(column):
        return _map(f"{column}.", _text if _is_any(column) else lambda value: value)
    if _is_any(column):
        return lambda record: _text(record.attributes.get(column))
    if column_type(column).endswith("[]"):
        return lambda record: _listed(record.attributes.get(column))
    return lambda record: record.attributes.get(column)


def _map(prefix: str, value: Callable[[Any], Any]) -> Callable[[SpanRecord], Any]:
    def items(record: SpanRecord) -> list[tuple[str, Any]] | None:
        attributes = record.attributes
        found = [(key[len(prefix) :], value(attributes[key])) for key in attributes if key.startswith(prefix)]
        return found or None

    return items


def _document(key: str) -> Callable[[SpanRecord], str | None]:
    """Return the function that gives an attribute, the items of a template or `EXTRA` as JSON."""
    if key == EXTRA:
        return lambda record: _json(_extra(record) or None)
    if _is_template(key):
        return lambda record: _json(templates.decode(key, record.attributes) or None)
    if key in content.BY_VALUE:
        keys = content.BY_VALUE[key]
        return lambda record: _json(content.decode(keys, record.attributes))
    if _is_text(key):
        return lambda record: _json(_parsed(record.attributes.get(key)))
    return lambda record: _json(_message(record, key))


def _json(value: object) -> str | None:
    return None if value is None else to_json(value)


def _parsed(value: object) -> object:
    return from_json(value) if isinstance(value, str) else value


def _message(record: SpanRecord, key: str) -> object:
    """Return an attribute of any type; other libraries write messages as JSON."""
    value = record.attributes.get(key)
    is_message = key in (a.GEN_AI_INPUT_MESSAGES, a.GEN_AI_OUTPUT_MESSAGES)
    return _parsed(value) if is_message and a.RUN_ID not in record.attributes else value


_KNOWN: Final[dict[str, tuple[frozenset[str], tuple[str, ...]]]] = {
    names.STEP: (steps.KEYS, steps.TEMPLATES),
    names.GROUP: (groups.KEYS, (a.METRIC, a.METADATA)),
    names.UPDATE: (updates.KEYS, updates.TEMPLATES),
    names.EVAL_RESULT: (evals.RESULT_KEYS, ()),
}
"""Attributes and templates that the convention has for a type of spans."""


def _extra(record: SpanRecord) -> dict[str, Any]:
    known = _KNOWN.get(kinds.kind(record))
    return {} if known is None else templates.unknown(record.attributes, *known)


def _listed(value: object) -> Any:
    return [value] if isinstance(value, str) else value


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

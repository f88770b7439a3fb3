"""
Spans in columns, as Parquet files have them, as rows of the table of spans.

Most become rows column by column. Spans that reading changes or reports, whose values stand in other columns,
or that are several rows become records first, as those of every other source do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from mttp.codec import kinds, shares
from mttp.codec.conformity import Conformity
from mttp.model.declarations import DOCUMENTS
from mttp.model.nesting import MAX_DEPTH
from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.json_decode import decode_attributes
from mttp.reading.column_types import ATTRIBUTES, TEMPLATES
from mttp.reading.columns import SPAN, URLS
from mttp.reading.worker import Rows, is_apart
from mttp.semconv import attributes as a
from mttp.semconv import registry
from mttp.semconv.registry import INT64, NO_SCALAR
from mttp.tables.arrow import Column, arrow_type, as_arrow, encode
from mttp.tables.spans import SPAN_COLUMNS, SpanRows, column_type, labels

__all__ = ["BatchRows"]

_Records: TypeAlias = Callable[[Any], Iterable[SpanRecord]]
_OTHERS: Final = "attributes"
"""The column of the attributes that have no column of their own, OTLP JSON."""
_SCOPES: Final = ("scope", "resource", *URLS)
_NO_ATTRIBUTES: Final = frozenset({*SPAN, *_SCOPES})
_KNOWN: Final = {_OTHERS} | ATTRIBUTES.keys() | TEMPLATES.keys()
_RECORDS: Final = frozenset(
    {a.OMISSIONS, a.FAULTS, a.STEPS_COUNT, a.GAP_SPANS, a.SPEC_DOCUMENTS, a.REWARD_COMPONENT_NAME}
)
"""Columns; a span with a value in one of them becomes a record, and so does one with a column not known."""
_DTYPES: Final = {
    a.OBSERVATION_VALUE: a.OBSERVATION_DTYPE,
    a.ACTION_VALUE: a.ACTION_DTYPE,
    a.EPISODE_FINAL_OBSERVATION_VALUE: a.EPISODE_FINAL_OBSERVATION_DTYPE,
}
_TELLING: Final = (a.SPAN_TYPE, *_DTYPES.values())
"""Attributes whose values, and not only their presence, say what becomes of a span."""
_ANY: Final = frozenset(
    key
    for key, definition in registry.attributes().items()
    if definition.type == "any" and not definition.is_template and key != a.ANNOTATION_VALUE
)
_METADATA: Final = f"{a.METADATA}."
_LABELS: Final = "labels"
_MAPS: Final = {
    "scores": a.REWARD_SCORE,
    "score_statuses": a.REWARD_SCORE_STATUS,
    "weights": a.REWARD_WEIGHT,
}
"""Columns of rows that are columns of a batch where the keys of components are their names."""
_KEY: Final = '{"key":"'
_SCALAR: Final = "|".join(
    [
        r'stringValue":"(?:[^"\\]|\\.)*"',
        r'intValue":"-?\d{1,18}"',
        r'doubleValue":-?\d[-+.\dEe]*',
        r'boolValue":(?:true|false)',
    ]
)
"""A pattern of scalars in OTLP JSON."""
_INVALID: Final = (ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class _Shape(NamedTuple):
    """What spans with the same attributes and a name of the same kind have in common."""

    kind: str
    is_plain: bool
    """Whether such a span becomes a row at once, as far as its attributes say."""


class BatchRows:
    """Makes rows of batches of spans, with the columns that `SpanRows` makes of records."""

    def __init__(self, columns: Sequence[str], unpack: bool) -> None:
        self._records = SpanRows(columns, unpack)
        self._types = SPAN_COLUMNS | {name: column_type(name) for name in columns}
        self._scopes: dict[tuple[str | None, ...], bool] = {}
        """Whether reading neither changes nor reports a scope."""
        self._needless: dict[str, bool] = {}
        """Whether an attribute without a column of its own is needed for labels at most."""
        keys = "|".join(re.escape(key) for key in sorted(_ANY) if not self._records.columns_of(key))
        self._simple = rf'^\[(?:{{"key":"(?:{keys})","value":{{"(?:{_SCALAR})}}}},?)*\]$'

    def items(
        self,
        batch: Any,
        *,
        records: _Records,
        conforming: Callable[[Iterable[SpanRecord]], Iterable[SpanRecord]],
    ) -> Iterator[SpanRecord | Rows]:
        """
        Yield the spans of a batch in their order: rows, and records that the reader has to see.

        `records` returns the records of a batch, and `conforming` those without invalid values.
        """
        columns, is_plain = self._plain(batch, records)
        order, apart, places = np.flatnonzero(is_plain), [], []
        others = np.flatnonzero(~is_plain).tolist()
        read = conforming(records(batch.filter(_booleans(~is_plain)))) if others else ()
        for place, record in zip(others, read, strict=True):
            if is_apart(record, is_first=True):
                apart.append((place, record))
                continue
            count = len(self._records)
            self._records.add(record)
            places += [place] * (len(self._records) - count)
        if places:
            columns, order = _merged(columns, order, self._records.columns(), places)
        start = 0
        for place, record in apart:
            stop = int(np.searchsorted(order, place))
            yield from _rows(columns, start, stop)
            yield record
            start = stop
        yield from _rows(columns, start, len(order))

    def _plain(self, batch: Any, records: _Records) -> tuple[dict[str, Any], Any]:
        """Return the columns of the spans that become rows at once, and which of all spans these are."""
        count = len(batch)
        named = zip(batch.schema.names, batch.columns, strict=True)
        present = {name: column for name, column in named if name in SPAN or column.null_count < count}
        has = {name: _lengths(column) for name, column in present.items() if name not in _NO_ATTRIBUTES}
        shapes, which = _shapes(present, has)
        is_plain = np.array([shape.is_plain for shape in shapes], np.bool_)[which]
        is_plain &= self._is_in_plain_scope(batch, records)
        for name in DOCUMENTS & present.keys():
            is_plain &= ~_may_be_deep(present[name])
        marks: list[Any] = [None] * count
        for place, attributes in self._others(present, has, is_plain):
            has[_OTHERS][place] = len(attributes)
            marks[place] = labels(attributes)
        size = sum(has.values(), np.zeros(count, np.int64))
        of_rows = present | {name: present[key] for name, key in _MAPS.items() if key in present}
        of_rows |= {
            "type": as_arrow(encode([shapes[number].kind for number in which.tolist()], "VARCHAR")),
            "omitted": _integers(np.zeros(count, np.int64)),
            "size": _integers(size),
            "share": _shares(present["trace_state"]),
            _LABELS: as_arrow(encode(marks, column_type(_LABELS))),
        }
        rows = _booleans(is_plain)
        return {
            name: column.filter(rows).cast(arrow_type(self._types[name]))
            for name, column in of_rows.items()
            if name in self._types
        }, is_plain

    def _is_in_plain_scope(self, batch: Any, records: _Records) -> Any:
        """Return for each span whether reading neither changes nor reports its scope."""
        columns = [batch.column(name) for name in _SCOPES if name in batch.schema.names]
        texts, codes = _distinct(len(batch), *columns)
        _, firsts = np.unique(codes, return_index=True)
        for first in firsts.tolist():
            key = texts[codes[first]]
            if key not in self._scopes:
                (record,) = records(batch.slice(first, 1))
                self._scopes[key] = _is_plain_scope(record.scope)
        return np.array([self._scopes[text] for text in texts], np.bool_)[codes]

    def _others(
        self, present: Mapping[str, Any], has: Mapping[str, Any], is_plain: Any
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """
        Yield the attributes without columns of spans that may need them, with the places of these spans.

        Of the other spans, `has` gets their number. A span that has to be a record is no longer plain.
        """
        from pyarrow import compute

        if _OTHERS not in present:
            return
        having = is_plain & (has[_OTHERS] > 0)
        simple = having & (_numbers(compute.match_substring_regex(present[_OTHERS], self._simple)) > 0)
        dtypes = {key: has[dtype] for key, dtype in _DTYPES.items() if dtype in has}
        for numbers in dtypes.values():
            simple &= numbers == 0
        has[_OTHERS][:] = simple * _numbers(compute.count_substring(present[_OTHERS], pattern=_KEY))
        rest = having & ~simple
        texts = present[_OTHERS].filter(_booleans(rest)).to_pylist()
        for place, text in zip(np.flatnonzero(rest).tolist(), texts, strict=True):
            try:
                attributes = decode_attributes(text, arrays=False)
            except _INVALID:
                attributes = {"": NO_SCALAR}
            is_plain[place] = all(map(self._is_other, attributes, attributes.values())) and not any(
                dtypes[key][place] for key in dtypes.keys() & attributes.keys()
            )
            if is_plain[place]:
                yield place, attributes

    def _is_other(self, key: str, value: Any) -> bool:
        """Return whether a span with that attribute becomes a row at once."""
        if key not in self._needless:
            is_any = key in _ANY or key.startswith(_METADATA)
            self._needless[key] = is_any and self._records.columns_of(key) <= {_LABELS}
        return self._needless[key] and value is not NO_SCALAR and (type(value) is not int or value in INT64)


def _rows(columns: Mapping[str, Any], start: int, stop: int) -> Iterator[Rows]:
    if stop > start:
        yield Rows(columns, start, stop)


def _merged(
    columns: Mapping[str, Any], order: Any, others: Mapping[str, Column], places: Sequence[int]
) -> tuple[dict[str, Any], Any]:
    """Return rows and other rows together in the order of their places, and these places."""
    import pyarrow as pa

    encoded = {name: as_arrow(column) for name, column in others.items()}
    tables = [pa.Table.from_arrays([*each.values()], [*each]) for each in (columns, encoded)]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    order = np.concatenate([order, np.array(places, np.int64)])
    arranged = np.argsort(order, kind="stable")
    table = table.take(_integers(arranged)).combine_chunks()
    merged = {name: table.column(name).chunk(0) for name in table.column_names}
    return merged, order[arranged]


def _shapes(present: Mapping[str, Any], has: Mapping[str, Any]) -> tuple[list[_Shape], Any]:
    """Return the different shapes of spans, and which of them each span has."""
    from pyarrow import compute

    is_root = _numbers(compute.binary_length(present["parent_id"])) == 0
    telling = [name for name in ("name", *_TELLING) if name in present]
    texts, codes = _distinct(len(is_root), *(present[name] for name in telling))
    bits = np.packbits(np.column_stack([is_root, *(lengths > 0 for lengths in has.values())]), axis=1)
    seen = np.column_stack([bits, codes.astype("<i4").view(np.uint8).reshape(-1, 4)])
    alike = np.ascontiguousarray(seen).view(f"V{seen.shape[1]}").ravel()
    _, firsts, which = np.unique(alike, return_index=True, return_inverse=True)
    shapes = []
    for first in firsts.tolist():
        values = dict(zip(telling, texts[codes[first]], strict=True))
        attributes = {name: values.get(name, True) for name, lengths in has.items() if lengths[first]}
        shapes.append(_shape(str(values["name"]), attributes, is_root=bool(is_root[first])))
    return shapes, which.ravel()


def _shape(name: str, attributes: Mapping[str, Any], *, is_root: bool) -> _Shape:
    """Return the shape of spans with that name and these attributes; the values are those that tell."""
    kind = kinds.of(name, attributes, is_root=is_root)
    parent_id = "" if is_root else "of another span"
    like = SpanRecord(trace_id="", span_id="", parent_id=parent_id, name=name, attributes=attributes)
    telling = {a.RUN_ID: ""} | {key: attributes[key] for key in _TELLING if key in attributes}
    _, misfits = Conformity().examine(SpanRecord(trace_id="", span_id="", name="", attributes=telling))
    is_plain = (
        a.RUN_ID in attributes
        and attributes.keys() <= _KNOWN
        and attributes.keys().isdisjoint(_RECORDS)
        and not misfits
        and not is_apart(like, is_first=False)
    )
    return _Shape(kind, is_plain)


def _is_plain_scope(scope: Scope) -> bool:
    record = SpanRecord(trace_id="", span_id="", name="", scope=scope)
    conforming, misfits = Conformity().examine(record)
    return conforming is record and not misfits and not is_apart(record, is_first=True)


def _distinct(count: int, *columns: Any) -> tuple[list[tuple[str | None, ...]], Any]:
    """Return the different rows of columns of texts, and which of them each row is."""
    texts: list[tuple[str | None, ...]] = [()]
    codes = np.zeros(count, np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        values = [*encoded.dictionary.to_pylist(), None]
        which = np.where(_numbers(column.is_valid()), _numbers(encoded.indices), len(values) - 1)
        alike, codes = np.unique(codes * len(values) + which, return_inverse=True)
        texts = [(*texts[code // len(values)], values[code % len(values)]) for code in alike.tolist()]
    return texts, codes


def _lengths(column: Any) -> Any:
    """Return the number of attributes that each row has in a column."""
    from pyarrow import types

    is_map = types.is_map(column.type)
    return np.diff(_numbers(column.offsets)) if is_map else _numbers(column.is_valid()).astype(np.int64)


def _may_be_deep(column: Any) -> Any:
    """Return for each text whether it has so many brackets that it may be nested too deeply."""
    from pyarrow import compute

    return sum(_numbers(compute.count_substring(column, pattern=bracket)) for bracket in "[{") > MAX_DEPTH


def _shares(column: Any) -> Any:
    """Return the shares that trace states state."""
    states, codes = _distinct(len(column), column)
    shared = [shares.of_state(state or "") for (state,) in states]
    return as_arrow(encode([shared[code] for code in codes.tolist()], "DOUBLE"))


def _numbers(array: Any) -> Any:
    """Return integers or booleans as a numpy array; `pyarrow`'s own way imports pandas."""
    from pyarrow import types

    _, buffer = array.buffers()
    stop = array.offset + len(array)
    if types.is_boolean(array.type):
        return np.unpackbits(np.frombuffer(buffer, np.uint8), count=stop, bitorder="little")[array.offset :]
    return np.frombuffer(buffer, f"i{array.type.bit_width // 8}", stop)[array.offset :]


def _integers(values: Any) -> Any:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values.astype(np.int64))])


def _booleans(values: Any) -> Any:
    import pyarrow as pa

    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])

"""
Spans in columns, as Parquet files have them and lines of JSON become them, as rows of the table of spans.

Most become rows column by column. Spans that reading changes or reports, whose values stand in other columns,
or that are several rows become records first, as those of every other source do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from mttp.codec import kinds, shares
from mttp.codec.conformity import Conformity
from mttp.model.declarations import DOCUMENTS
from mttp.model.nesting import MAX_DEPTH
from mttp.model.spans import KEPT_LISTS, Scope, SpanRecord
from mttp.otlp.json_decode import LineError
from mttp.reading.column_types import ATTRIBUTES, TEMPLATES
from mttp.reading.columns import SPAN, URLS
from mttp.reading.lines import Rows
from mttp.reading.worker import is_apart
from mttp.semconv import attributes as a
from mttp.semconv import registry
from mttp.semconv.registry import is_scalar
from mttp.tables.arrow import arrow_type, booleans, encode, integers, lengths, numbers, scalar
from mttp.tables.attribute_lists import WITHOUT_SCALAR, AttributeLists, list_type, parsed
from mttp.tables.lines import PLACE, LineBatch
from mttp.tables.spans import SPAN_COLUMNS, SpanRows, column_type, labels

__all__ = ["BatchRows"]

_Records: TypeAlias = Callable[[Any], Iterable[SpanRecord]]
_OTHERS: Final = "attributes"
"""The column of the attributes that have no column of their own, OTLP JSON."""
_SCOPES: Final = ("scope", "resource", *URLS)
_NO_ATTRIBUTES: Final = frozenset({*SPAN, *_SCOPES, PLACE})
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
        keys = "|".join(re.escape(key) for key in sorted(_ANY) if not self._records.columns_of(key))
        self._simple = rf'^\[(?:{{"key":"(?:{keys})","value":{{"(?:{_SCALAR})}}}},?)*\]$'

    def items(
        self,
        batch: Any,
        *,
        records: _Records,
        conforming: _Records,
        others: AttributeLists | None = None,
    ) -> Iterator[SpanRecord | Rows]:
        """
        Yield the spans of a batch in their order: rows, and records that the reader has to see.

        `records` returns the records of a batch, and `conforming` those without invalid values.
        `others` are the attributes without columns, by default those of the column of OTLP JSON.
        """
        plain, is_plain = self._plain(batch, records, others)
        order, apart, places = np.flatnonzero(is_plain), [], []
        rest = np.flatnonzero(~is_plain).tolist()
        read = conforming(batch.filter(booleans(~is_plain))) if rest else ()
        for place, record in zip(rest, read, strict=True):
            if is_apart(record, is_first=True):
                apart.append((place, record))
                continue
            count = len(self._records)
            self._records.add(record)
            places += [place] * (len(self._records) - count)
        for (others_rows,) in self._records.rows():
            plain, order = _merged(plain, order, others_rows, places)
        start = 0
        for place, record in apart:
            stop = int(np.searchsorted(order, place))
            yield from _rows(plain, start, stop)
            yield record
            start = stop
        yield from _rows(plain, start, len(order))

    def of_lines(
        self, lines: Sequence[bytes], *, examined: Callable[[SpanRecord, int], SpanRecord]
    ) -> list[SpanRecord | Rows] | None:
        """
        Return the spans of lines of OTLP JSON like `items`; None unless all lines are written as ours are.

        `examined` returns a record of the line with that number, from 0, without invalid values.
        """

        def conforming(batch: Any) -> Iterator[SpanRecord]:
            if len(batch) == len(read.batch):
                raise ValueError("no span becomes a row at once")
            return map(examined, read.records(batch), read.numbers(batch))

        try:
            read = LineBatch(lines)
            items = self.items(read.batch, records=read.records, conforming=conforming, others=read.others)
            return [*items]
        except (ValueError, OverflowError, RecursionError, LineError):
            return None

    def _plain(self, batch: Any, records: _Records, others: AttributeLists | None) -> tuple[Any, Any]:
        """Return the columns of the spans that become rows at once, and which of all spans these are."""
        import pyarrow as pa

        count = len(batch)
        named = zip(batch.schema.names, batch.columns, strict=True)
        present = {name: column for name, column in named if name in SPAN or column.null_count < count}
        has = {name: _lengths(column) for name, column in present.items() if name not in _NO_ATTRIBUTES}
        shapes, which = _shapes(present, has)
        is_plain = np.array([shape.is_plain for shape in shapes], np.bool_)[which]
        is_plain &= self._is_in_plain_scope(batch, records)
        for name in DOCUMENTS & present.keys():
            is_plain &= ~_may_be_deep(present[name])
        if _OTHERS in present:
            others = self._parsed(present[_OTHERS], has, is_plain)
        marks = self._others(others, has, is_plain) if others is not None else [None] * count
        size = sum(has.values(), np.zeros(count, np.int64))
        of_rows = present | {name: present[key] for name, key in _MAPS.items() if key in present}
        of_rows |= {
            "type": encode([shapes[number].kind for number in which.tolist()], "VARCHAR"),
            "omitted": integers(np.zeros(count, np.int64)),
            "size": integers(size),
            "share": _shares(present["trace_state"]),
            _LABELS: encode(marks, column_type(_LABELS)),
        }
        rows = booleans(is_plain)
        columns = {
            name: column.filter(rows).cast(arrow_type(self._types[name]))
            for name, column in of_rows.items()
            if name in self._types
        }
        return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns]), is_plain

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

    def _parsed(self, texts: Any, has: dict[str, Any], is_plain: Any) -> AttributeLists | None:
        """
        Return attributes without columns, in OTLP JSON; None if no span needs them, and only their number.

        Spans whose attributes are not written as ours are have to be records.
        """
        from pyarrow import compute

        texts = texts.fill_null(scalar("", "VARCHAR"))
        simple = numbers(compute.match_substring_regex(texts, self._simple)) > 0
        for dtype in has.keys() & {*_DTYPES.values()}:
            simple &= has[dtype] == 0
        simple |= has[_OTHERS] == 0
        counts = numbers(compute.count_substring(texts, pattern=_KEY))
        has[_OTHERS] = simple * counts
        if np.all(simple):
            return None
        before, null, after, nothing = (
            scalar(text, "VARCHAR") for text in ('{"attributes":', "null", "}\n", "")
        )
        rest = compute.if_else(booleans(simple), null, texts)
        *_, lines = compute.binary_join_element_wise(before, rest, after, nothing).buffers()
        try:
            lists = parsed(lines, _OTHERS, list_type())
            return AttributeLists.of(lists)
        except ValueError:
            is_plain &= simple
            return None

    def _others(self, others: AttributeLists, has: dict[str, Any], is_plain: Any) -> list[Any]:
        """
        Return the labels of each span, and note how many attributes without columns it has.

        A span that has to be a record because of one of them is no longer plain.
        """
        has_scalar = others.types >= 0
        has[_OTHERS] = has.get(_OTHERS, 0) + np.bincount(others.rows[has_scalar], minlength=others.number)
        needless = np.array([self._is_needless(key) for key in others.keys], np.bool_)[others.codes]
        ignored = np.array([_is_ignored(key) for key in others.keys], np.bool_)[others.codes]
        fits = np.where(has_scalar, needless, ignored & (others.types == WITHOUT_SCALAR))
        for key, dtype in _DTYPES.items():
            if key in others.keys and dtype in has:
                fits &= (
                    (others.codes != others.keys.index(key)) | ~has_scalar | (has[dtype][others.rows] == 0)
                )
        is_plain[others.rows[~fits]] = False
        is_label = np.array([key.startswith(_METADATA) for key in others.keys], np.bool_)[others.codes]
        values: dict[int, dict[str, Any]] = {}
        for number in np.flatnonzero(is_label & has_scalar).tolist():
            of_span = values.setdefault(int(others.rows[number]), {})
            of_span[others.keys[others.codes[number]]] = others.value(number)
        return [labels(values[row]) if row in values else None for row in range(others.number)]

    def _is_needless(self, key: str) -> bool:
        """Return whether a scalar without a column of its own is needed for labels at most."""
        is_any = key in _ANY or key.startswith(_METADATA)
        return is_any and self._records.columns_of(key) <= {_LABELS}


def _is_ignored(key: str) -> bool:
    """Return whether reading without arrays leaves out an attribute that is no scalar."""
    return not is_scalar(key) and key not in KEPT_LISTS and not key.startswith(f"{a.STEPS_COLUMN}.")


def _rows(batch: Any, start: int, stop: int) -> Iterator[Rows]:
    if stop > start:
        yield Rows(batch.slice(start, stop - start))


def _merged(plain: Any, order: Any, others: Any, places: Sequence[int]) -> tuple[Any, Any]:
    """Return rows and other rows together in the order of their places, and these places."""
    import pyarrow as pa

    tables = [pa.Table.from_batches([batch]) for batch in (plain, others)]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    order = np.concatenate([order, np.array(places, np.int64)])
    arranged = np.argsort(order, kind="stable")
    (merged,) = table.take(integers(arranged)).combine_chunks().to_batches()
    return merged, order[arranged]


def _shapes(present: Mapping[str, Any], has: Mapping[str, Any]) -> tuple[list[_Shape], Any]:
    """Return the different shapes of spans, and which of them each span has."""
    from pyarrow import compute

    is_root = numbers(compute.binary_length(present["parent_id"])) == 0
    telling = [name for name in ("name", *_TELLING) if name in present]
    texts, codes = _distinct(len(is_root), *(present[name] for name in telling))
    bits = np.packbits(np.column_stack([is_root, *(counts > 0 for counts in has.values())]), axis=1)
    seen = np.column_stack([bits, codes.astype("<i4").view(np.uint8).reshape(-1, 4)])
    alike = np.ascontiguousarray(seen).view(f"V{seen.shape[1]}").ravel()
    _, firsts, which = np.unique(alike, return_index=True, return_inverse=True)
    shapes = []
    for first in firsts.tolist():
        values = dict(zip(telling, texts[codes[first]], strict=True))
        attributes = {name: values.get(name, True) for name, counts in has.items() if counts[first]}
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
        which = np.where(numbers(column.is_valid()), numbers(encoded.indices), len(values) - 1)
        alike, codes = np.unique(codes * len(values) + which, return_inverse=True)
        texts = [(*texts[code // len(values)], values[code % len(values)]) for code in alike.tolist()]
    return texts, codes


def _lengths(column: Any) -> Any:
    """Return the number of attributes that each row has in a column."""
    from pyarrow import types

    is_map = types.is_map(column.type)
    return lengths(column) if is_map else numbers(column.is_valid()).astype(np.int64)


def _may_be_deep(column: Any) -> Any:
    """Return for each text whether it has so many brackets that it may be nested too deeply."""
    from pyarrow import compute

    return sum(numbers(compute.count_substring(column, pattern=bracket)) for bracket in "[{") > MAX_DEPTH


def _shares(column: Any) -> Any:
    """Return the shares that trace states state."""
    states, codes = _distinct(len(column), column)
    shared = [shares.of_state(state or "") for (state,) in states]
    return encode([shared[code] for code in codes.tolist()], "DOUBLE")

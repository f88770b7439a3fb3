"""Lines of OTLP JSON as Arrow batches of spans, with the columns that Parquet files have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from mttp.model.spans import SpanRecord
from mttp.otlp.json_arrays import hollowed
from mttp.otlp.json_decode import decode_line
from mttp.reading.columns import SPAN
from mttp.reading.parquet import check_spans
from mttp.tables.arrow import encode, integers, lengths, numbers, scalar
from mttp.tables.attribute_lists import AttributeLists, list_type, parsed

__all__ = ["PLACE", "LineBatch"]

PLACE: Final = "place"
"""The column with the place of a span among all spans of the lines."""
_SPANS: Final = b'"spans":['
_URL: Final = rb'\](?:,"schemaUrl":"[^"\\]*")?\}'
_AFTER_SPANS: Final = re.compile(rb"(?<=\})" + _URL + _URL + rb"\]\}$")
_LONGEST_END: Final = 500
_NUMBERS: Final = (b'"values":[{"intValue"', b'"values":[{"doubleValue"')
"""How long arrays begin, which are not parsed."""
_FIELDS: Final = {
    "trace_id": "traceId",
    "span_id": "spanId",
    "parent_id": "parentSpanId",
    "name": "name",
    "kind": "kind",
    "start_time": "startTimeUnixNano",
    "end_time": "endTimeUnixNano",
    "status_code": "status.code",
    "status_message": "status.message",
    "trace_state": "traceState",
    "flags": "flags",
}
"""Where the columns of all spans stand in OTLP JSON."""
_COUNTS: Final = ("droppedAttributesCount", "droppedEventsCount", "droppedLinksCount")
_DIGITS: Final = r"^\d{1,19}$"
_raw_spans: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Line(NamedTuple):
    """A line, cut where its spans begin and end."""

    head: bytes
    spans: bytes
    tail: bytes

    @classmethod
    def of(cls, content: bytes) -> _Line:
        """Return the parts of a line; raises ValueError if it is not written as ours are."""
        start = content.find(_SPANS) + len(_SPANS)
        end = _AFTER_SPANS.search(content, max(start, len(content) - _LONGEST_END))
        if start < len(_SPANS) or end is None:
            raise ValueError("the line is not written as ours are")
        return cls(content[:start], content[start : end.start()], content[end.start() :])

    def records(self, places: Sequence[int]) -> list[SpanRecord]:
        """Return some of its spans; raises LineError if they are not valid."""
        spans = _raw_spans(b"[%b]" % self.spans)
        chosen = b",".join(bytes(spans[place]) for place in places)
        return decode_line(b"".join((self.head, chosen, self.tail)), arrays=False)


class LineBatch:
    """
    The spans of lines as an Arrow batch.

    Raises ValueError unless all lines are valid and written as ours are, each with spans of one scope.
    """

    def __init__(self, lines: Sequence[bytes]) -> None:
        import pyarrow as pa
        from pyarrow import compute

        self._lines = [*map(_Line.of, lines)]
        text = b"\n".join(hollowed(line) if _has_numbers(line) else line for line in lines)
        text.decode()
        resources = parsed(text, "resourceSpans", _type())
        scopes = _items(_items(resources, of_each=1).field(0), of_each=1)
        if len(scopes) != len(lines):
            raise ValueError("a line is not one JSON document")
        counts = lengths(scopes.field(0))
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        heads = encode([(line.head + line.tail).decode() for line in self._lines], "VARCHAR")
        texts = heads.dictionary_encode().take(integers(np.repeat(np.arange(len(lines)), counts)))
        spans = _items(scopes.field(0))
        columns, self.others = AttributeLists.of(compute.struct_field(spans, "attributes")).split()
        columns |= _span_columns(spans) | {"scope": texts, PLACE: integers(np.arange(len(spans)))}
        self.batch = pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])

    def numbers(self, batch: Any) -> list[int]:
        """Return the line of each span of a part of the batch, from 0."""
        places = numbers(batch.column(PLACE))
        return list((np.searchsorted(self._starts, places, side="right") - 1).tolist())

    def records(self, batch: Any) -> Iterator[SpanRecord]:
        """Yield the spans of a part of the batch, without arrays; raises LineError if they are not valid."""
        places = zip(self.numbers(batch), batch.column(PLACE).to_pylist(), strict=True)
        for number, of_line in groupby(places, itemgetter(0)):
            start = int(self._starts[number])
            yield from self._lines[number].records([place - start for _, place in of_line])


def _has_numbers(line: bytes) -> bool:
    return any(start in line for start in _NUMBERS)


def _items(lists: Any, *, of_each: int | None = None) -> Any:
    """Return the items of lists, none of which is null."""
    items = lists.flatten()
    if items.null_count or (of_each is not None and np.any(lengths(lists) != of_each)):
        raise ValueError("the lines are not written as ours are")
    return items


def _span_columns(spans: Any) -> dict[str, Any]:
    """Return the columns that every span has; raises ValueError for invalid ids and times."""
    from pyarrow import compute

    columns = {}
    null = {"int64": scalar(0, "BIGINT"), "string": scalar("", "VARCHAR")}
    for name, field in _FIELDS.items():
        type_ = "int64" if SPAN[name] in ("int", "time") else "string"
        values = compute.struct_field(spans, field.split("."))
        if SPAN[name] == "time":
            values = values.fill_null(scalar("0", "VARCHAR"))
            if not compute.all(compute.match_substring_regex(values, _DIGITS)).as_py():
                raise ValueError("a time is no number")
        columns[name] = values.cast(type_).fill_null(null[type_])
    check_spans(columns)
    for name in ("trace_id", "span_id", "parent_id"):
        if compute.any(compute.match_substring_regex(columns[name], "^0+$")).as_py():
            raise ValueError("an id is zero")
    return columns


@cache
def _type() -> Any:
    """Return the Arrow type of a line's content."""
    import pyarrow as pa

    types = {name: pa.int64() if SPAN[name] == "int" else pa.string() for name in SPAN}
    fields = [(field, types[name]) for name, field in _FIELDS.items() if "." not in field]
    status = [(field.removeprefix("status."), types[name]) for name, field in _FIELDS.items() if "." in field]
    span = pa.struct(
        [
            *fields,
            *((name, pa.int64()) for name in _COUNTS),
            ("status", pa.struct(status)),
            ("attributes", list_type()),
        ]
    )
    scope = pa.struct([("spans", pa.list_(span))])
    return pa.list_(pa.struct([("scopeSpans", pa.list_(scope))]))

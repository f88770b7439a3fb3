"""Arrays and bytes that are cut out of a line: the decoded values do not differ."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mttp.otlp import json_decode as decoding
from mttp.otlp.json_arrays import PLACE, cut, hollowed, numbers
from mttp.semconv import attributes as a

TRICKY = [
    a.TOKEN_IDS,
    f'"{a.TOKEN_IDS}","value":{{"arrayValue":{{"values":[{{"intValue":"1"}}]}}}}',
    '{"values":[{"intValue":"',
    '"bytesValue":"',
    "]}}",
    '"}]}',
    "\\",
    '\\"',
    PLACE,
    f"{PLACE}0",
    "ä\u2028\U0001f600",
    "\n",
]
TEXTS = st.sampled_from(TRICKY) | st.text(max_size=6)
INTEGERS = st.integers(-(2**70), 2**70).map(str) | st.integers(-9, 9)
DOUBLES = (
    st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "-Infinity"]) | st.just(3)
)
NUMBERS = st.one_of(
    st.lists(INTEGERS.map(lambda value: {"intValue": value}), max_size=4),
    st.lists(DOUBLES.map(lambda value: {"doubleValue": value}), max_size=4),
    st.lists(st.integers(0, 99).map(lambda value: {"intValue": str(value)}), min_size=1, max_size=30),
)
SCALARS = st.one_of(
    TEXTS.map(lambda value: {"stringValue": value}),
    INTEGERS.map(lambda value: {"intValue": value}),
    DOUBLES.map(lambda value: {"doubleValue": value}),
    st.booleans().map(lambda value: {"boolValue": value}),
    st.binary(max_size=9).map(lambda value: {"bytesValue": base64.b64encode(value).decode()}),
    st.just({}),
    TEXTS.map(lambda value: {"unknown": value, "intValue": "1"}),
)
ARRAYS = NUMBERS.map(lambda values: {"arrayValue": {"values": values}})
VALUES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: {"arrayValue": {"values": values}})
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(
            lambda pairs: {"kvlistValue": {"values": [{"key": key, "value": value} for key, value in pairs]}}
        )
    ),
    max_leaves=6,
)
ATTRIBUTES = st.lists(
    st.tuples(TEXTS, VALUES, st.booleans()).map(
        lambda one: {"value": one[1], "key": one[0]} if one[2] else {"key": one[0], "value": one[1]}
    ),
    max_size=6,
)
SPAN = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}


def document(*attributes: list[Any]) -> dict[str, Any]:
    """A line of a span with these attributes, of its own, of an event, a link, its scope and its resource."""
    own, event, link, scope, resource = attributes
    span = {
        **SPAN,
        "attributes": own,
        "events": [{"name": "e", "attributes": event}],
        "links": [{**SPAN, "attributes": link}],
    }
    block = {"scope": {"attributes": scope}, "spans": [span, {**SPAN, "attributes": event}]}
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [block]}]}


def written(content: Any, *, compact: bool, escaped: bool) -> bytes:
    """The document as different writers spell it."""
    separators = (",", ":") if compact else None
    return json.dumps(content, separators=separators, ensure_ascii=escaped).encode()


def decoded(line: bytes, *, arrays: bool) -> str:
    """All that the line says, NaN included, or what is wrong with it."""
    try:
        return repr(decoding.decode_line(line, arrays=arrays))
    except decoding.LineError as error:
        return f"{error.kind}: {error}"


def plainly(line: bytes, *, arrays: bool) -> str:
    """All values of the line, or its error, with nothing cut out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "cut", lambda line: (line, []))
        patch.setattr(decoding, "hollowed", lambda line: line)
        return decoded(line, arrays=arrays)


LINES = st.builds(
    written,
    st.builds(document, *[ATTRIBUTES] * 5),
    compact=st.sampled_from([True, True, False]),
    escaped=st.booleans(),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LINES, st.booleans())
def test_a_good_line_says_the_same(line: bytes, arrays: bool):
    """
    Whatever stands in a line, in whatever order and spelling, it is decoded as if nothing were cut out.
    """
    assert plainly(line, arrays=arrays) == decoded(line, arrays=arrays)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LINES, st.data())
def test_a_broken_line_is_as_broken(line: bytes, data: st.DataObject):
    """
    An error refers to the whole line.
    """
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, min(len(line), start + 20)))
    broken = (
        line[:start]
        + data.draw(st.sampled_from([b"", b'"', b"]", b"}", b"[", b",", b"1", b"\\"]))
        + line[end:]
    )

    assert plainly(broken, arrays=True) == decoded(broken, arrays=True)


@pytest.mark.parametrize(
    "items",
    [
        b'{"intValue":"1n2"}',
        b'{"intValue":"1,2"}',
        b'{"intValue":"1"},{"doubleValue":2}',
        b'{"intValue":"1"},{}',
        b'{"intValue":"01"}',
        b'{"doubleValue":1,"x":2}',
        b'{"doubleValue":"NaN"}',
        b'{"doubleValue":1,2}',
    ],
)
def test_what_is_more_than_plain_numbers_is_read_the_long_way(items: bytes):
    """
    Only numbers of one kind, written as they usually are, are read as one list.
    """
    assert numbers(items) is None


def test_arrays_are_cut_out_of_a_line_and_bytes_only_where_they_are_not_needed():
    """
    They are most of a line; bytes that are needed are decoded where they stand.
    """
    many = {"arrayValue": {"values": [{"intValue": str(number)} for number in range(1000)]}}
    attributes = [{"key": "a", "value": many}, {"key": "b", "value": {"bytesValue": "QUJD" * 1000}}]
    line = written(document(attributes, [], [], [], []), compact=True, escaped=True)
    short, places = cut(line)

    assert (1, True) == (len(places), 4000 < len(short) < 5000)
    assert len(hollowed(line)) < 1000


def test_what_is_cut_out_is_not_looked_at_where_it_is_not_needed():
    """
    A fault within an array does not matter to who reads without arrays.
    """
    many = {"arrayValue": {"values": [{"intValue": "1"}, {"intValue": "nonsense"}]}}
    line = written(document([{"key": "a", "value": many}], [], [], [], []), compact=True, escaped=True)

    assert "broken_line" == decoded(line, arrays=True).partition(":")[0]
    assert 2 == len(decoding.decode_line(line, arrays=False))

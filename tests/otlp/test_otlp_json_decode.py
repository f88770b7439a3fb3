"""One line of OTLP JSON becomes span records, as leniently as the format asks."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.otlp.json import encode_records
from mttp.otlp.json_decode import LineError, decode_line, decode_spans
from mttp.semconv import attributes as a

TRACE = "5b8efff798038103d269b633813fc60c"
SPAN = "eee19b7ec3c1b174"


def line(*attributes: dict[str, Any], **span: Any) -> bytes:
    """A line of one span."""
    given_span = {"traceId": TRACE, "spanId": SPAN, "name": "step", "attributes": list(attributes), **span}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [given_span]}]}]}).encode()


def value_of(value: Any) -> Any:
    """What one OTLP value decodes to."""
    return decode_line(line({"key": "x", "value": value}))[0].attributes["x"]


def array(*values: Any) -> dict[str, Any]:
    """An OTLP array."""
    return {"arrayValue": {"values": list(values)}}


def test_a_whole_span_is_read_with_its_scope_and_resource():
    """
    Every field of a span, its events and links, its scope and its resource arrive.
    """
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "trainer"}}]},
                "schemaUrl": "https://opentelemetry.io/schemas/1.30.0",
                "scopeSpans": [
                    {
                        "scope": {
                            "name": "mttp",
                            "version": "0.1.0",
                            "attributes": [{"key": "a", "value": {"intValue": "1"}}],
                        },
                        "schemaUrl": "https://mttp.dev/schemas/0.1.0",
                        "spans": [
                            {
                                "traceId": TRACE,
                                "spanId": SPAN,
                                "parentSpanId": "eee19b7ec3c1b173",
                                "traceState": "a=b",
                                "flags": 257,
                                "name": "step",
                                "kind": 3,
                                "startTimeUnixNano": "1544712660000000000",
                                "endTimeUnixNano": "1544712661000000000",
                                "attributes": [{"key": "n", "value": {"intValue": "5"}}],
                                "events": [
                                    {
                                        "name": "retry",
                                        "timeUnixNano": "7",
                                        "attributes": [{"key": "k", "value": {"boolValue": True}}],
                                        "droppedAttributesCount": 4,
                                    }
                                ],
                                "links": [
                                    {
                                        "traceId": TRACE.upper(),
                                        "spanId": SPAN,
                                        "flags": 769,
                                        "droppedAttributesCount": 5,
                                    }
                                ],
                                "droppedAttributesCount": 1,
                                "droppedEventsCount": 2,
                                "droppedLinksCount": "3",
                                "status": {"code": 2, "message": "no"},
                            }
                        ],
                    }
                ],
            }
        ]
    }
    expected = SpanRecord(
        trace_id=TRACE,
        span_id=SPAN,
        parent_id="eee19b7ec3c1b173",
        name="step",
        kind=3,
        start_time=1544712660000000000,
        end_time=1544712661000000000,
        attributes={"n": 5},
        status_code=2,
        status_message="no",
        events=(SpanEvent("retry", 7, {"k": True}, 4),),
        links=(Link(TRACE, SPAN, {}, 769, 5),),
        trace_state="a=b",
        flags=257,
        dropped_attributes=1,
        dropped_events=2,
        dropped_links=3,
        scope=Scope(
            name="mttp",
            version="0.1.0",
            schema_url="https://mttp.dev/schemas/0.1.0",
            resource={"service.name": "trainer"},
            attributes={"a": 1},
            resource_schema_url="https://opentelemetry.io/schemas/1.30.0",
        ),
    )

    assert [expected] == decode_line(json.dumps(document).encode())


def test_spans_of_one_block_share_their_scope():
    """
    The scope is one object for all spans of a block.
    """
    block = {"spans": [{"traceId": TRACE, "spanId": f"{n:016x}"} for n in (1, 2)]}
    first, second = decode_line(json.dumps({"resourceSpans": [{"scopeSpans": [block]}]}).encode())

    assert first.scope is second.scope


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        ({"stringValue": ""}, ""),
        ({"stringValue": "ä\n"}, "ä\n"),
        ({"boolValue": False}, False),
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"intValue": 9223372036854775807}, 2**63 - 1),
        ({"doubleValue": 2}, 2.0),
        ({"doubleValue": "Infinity"}, math.inf),
        ({"doubleValue": "-Infinity"}, -math.inf),
        ({"bytesValue": "AAH/"}, b"\x00\x01\xff"),
        ({"bytesValue": "-_8"}, b"\xfb\xff"),
        ({"bytesValue": ""}, b""),
        ({}, None),
        (None, None),
        ({"arrayValue": {}}, []),
        ({"arrayValue": {"values": None}}, []),
        ({"kvlistValue": {}}, {}),
        (
            {"kvlistValue": {"values": [{"key": "a", "value": {"arrayValue": {"values": [{}]}}}]}},
            {"a": [None]},
        ),
        ({"fromTheFuture": 1, "intValue": "1"}, 1),
    ],
)
def test_each_kind_of_value_is_read(encoded: Any, expected: Any):
    """
    Values are text, booleans, integers, doubles, bytes, lists, maps or nothing.
    """
    found = value_of(encoded)

    assert (type(expected), expected) == (type(found), found)


@pytest.mark.parametrize("spacing", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
def test_a_negative_zero_of_a_program_in_go_keeps_its_sign(spacing: tuple[str, str]):
    """
    Go writes it as -0, which parsers of JSON take for an integer; a text that looks like it is left alone.
    """
    zero, text = {"doubleValue": 0.25}, '"doubleValue":0.25}'
    values = [zero, array(zero, {"doubleValue": 0.5}), array(zero, {"stringValue": text})]
    given_line = line(*({"key": f"{place}", "value": value} for place, value in enumerate(values)))
    written = json.dumps(json.loads(given_line), separators=spacing).encode().replace(b"0.25", b"-0")
    whole, scalars = (decode_line(written, arrays=arrays)[0].attributes for arrays in (True, False))
    again = decode_spans(written)[0][0].attributes

    assert "[-0.0, [-0.0, 0.5], [-0.0, '\"doubleValue\":-0}']]" == str([*whole.values()])
    assert (str(whole), "{'0': -0.0}") == (str(again), str(scalars))


@given(st.binary(max_size=9), st.text("A+/-_=", max_size=3), st.booleans(), st.booleans())
def test_base64_has_either_alphabet_and_may_lack_its_padding(
    content: bytes, ending: str, is_for_urls: bool, is_padded: bool
):
    """
    What is written in the alphabet for URLs, or without padding, is the same bytes, and nothing else is lost.
    """
    encoded = (base64.urlsafe_b64encode if is_for_urls else base64.b64encode)(content).decode()
    encoded = encoded if is_padded else encoded.rstrip("=")
    untidy = f"{encoded}{ending}".translate(str.maketrans("-_", "+/")).rstrip("=")

    assert content == value_of({"bytesValue": encoded})
    try:
        expected = base64.b64decode(untidy + "=" * (-len(untidy) % 4))
    except ValueError as error:
        with pytest.raises(LineError, match=re.escape(f"not valid OTLP JSON: {error}")):
            value_of({"bytesValue": f"{encoded}{ending}"})
    else:
        assert expected == value_of({"bytesValue": f"{encoded}{ending}"})


def test_spans_share_the_names_of_attributes():
    """
    An attribute of the convention is one object for all spans, which saves a tenth of a recording's memory.
    """
    given_line = line({"key": a.RUN_ID, "value": {"stringValue": "r"}}, {"key": "x", "value": {}})
    keys = [key for _ in range(2) for key in decode_line(given_line)[0].attributes if key != "x"]

    assert keys[0] is keys[1] is a.RUN_ID


def test_nan_is_read():
    """
    NaN is spelled as text.
    """
    assert math.isnan(value_of({"doubleValue": "NaN"}))


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (array({"doubleValue": 1}, {"doubleValue": -2.5e-9}), [1.0, -2.5e-9]),
        (array({"intValue": "1"}, {"intValue": "-7"}), [1, -7]),
        (array({"intValue": 1}, {"intValue": 2}), [1, 2]),
        (array({"intValue": "01"}), [1]),
        (array({"doubleValue": 1.0}, {"intValue": "2"}), [1.0, 2]),
        (array({"doubleValue": 1.0}, {"stringValue": "}"}), [1.0, "}"]),
        (array({"doubleValue": 1.0}, {"stringValue": '{"doubleValue":'}), [1.0, '{"doubleValue":']),
        (array({"intValue": "1"}, {"stringValue": '"}'}), [1, '"}']),
        (array({"intValue": "1"}, {}), [1, None]),
        (array(array({"intValue": "1"}), array()), [[1], []]),
        (array({"doubleValue": "Infinity"}, {"doubleValue": 1.0}), [math.inf, 1.0]),
    ],
)
def test_an_array_of_numbers_is_no_exception(encoded: Any, expected: Any):
    """
    Arrays of numbers are read in a faster way, which gives the same as the general one.
    """
    spaced = line({"key": "x", "value": encoded})
    compact = json.dumps(json.loads(spaced), separators=(",", ":")).encode()
    found = [decode_line(given_line)[0].attributes["x"] for given_line in (spaced, compact)]

    assert [repr(expected)] * 2 == list(map(repr, found))


@pytest.mark.parametrize(
    ("given_kind", "expected"),
    [(1, 1), ("SPAN_KIND_CLIENT", 3), ("3", 3), (None, 0)],
)
def test_enums_are_numbers_or_names(given_kind: Any, expected: int):
    """
    A kind may be spelled either way; without one it is unspecified.
    """
    assert expected == decode_line(line(kind=given_kind))[0].kind


def test_null_is_the_default_everywhere():
    """
    A field that is null is as good as absent.
    """
    fields = ("parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "events")
    found = decode_line(
        line(**dict.fromkeys((*fields, "links", "status", "traceState", "flags", "droppedLinksCount")))
    )[0]

    assert SpanRecord(trace_id=TRACE, span_id=SPAN, name="", kind=0) == found


def test_a_parent_of_zeros_is_none():
    """
    Some writers spell it so.
    """
    assert "" == decode_line(line(parentSpanId="0" * 16))[0].parent_id


def test_ids_are_lower_case():
    """
    Ids are hexadecimal in either case, and lower case afterwards.
    """
    found = decode_line(line(traceId=TRACE.upper(), spanId=SPAN.upper(), parentSpanId=SPAN.upper()))[0]

    assert (TRACE, SPAN, SPAN) == (found.trace_id, found.span_id, found.parent_id)


def test_without_arrays_only_scalars_remain():
    """
    Arrays, maps, bytes, empty values, events and links are skipped on request.
    """
    attributes = [
        {"key": "text", "value": {"stringValue": "a"}},
        {"key": "flag", "value": {"boolValue": False}},
        {"key": "int", "value": {"intValue": "0"}},
        {"key": "double", "value": {"doubleValue": "NaN"}},
        {"key": "array", "value": array({"intValue": "1"})},
        {"key": "map", "value": {"kvlistValue": {"values": []}}},
        {"key": "bytes", "value": {"bytesValue": "AA=="}},
        {"key": "empty", "value": {}},
        {"key": "null", "value": None},
    ]
    found = decode_line(line(*attributes, events=[{"name": "e"}], links=[]), arrays=False)[0]

    assert (["text", "flag", "int", "double"], ()) == (list(found.attributes), found.events)


def test_an_empty_message_has_no_spans():
    """
    `{}` is a message in which nothing is set.
    """
    assert [[], [], []] == [
        decode_line(text) for text in (b"{}", b'{"resourceSpans":[]}', b'{"resourceSpans":null}')
    ]


@pytest.mark.parametrize(
    ("given_line", "kind", "words"),
    [
        (b"1,2,3", "broken_line", "not JSON"),
        (b'{"resourceSpans":[', "broken_line", "ends too early"),
        (b"\x80\x81", "broken_line", "not JSON"),
        (b'{"a":"\xff"}', "broken_line", "not UTF-8"),
        (b'{"resourceLogs":[]}', "not_traces", "holds logs"),
        (b'{"resourceMetrics":[]}', "not_traces", "holds metrics"),
        (
            b'{"prompt":"x","answer":"y"}',
            "not_traces",
            "the line is an object of 'prompt', 'answer', not traces",
        ),
        (b"[1]", "not_traces", "an array"),
        (b"null", "not_traces", "the line is null"),
        (b'"x"', "not_traces", "text"),
        (b"3", "not_traces", "a number"),
        (b'{"resourceSpans":{}}', "broken_line", "resourceSpans"),
        (line(name=3), "broken_line", "spans[0].name"),
        (line(traceId="abc"), "broken_line", "traceId is 'abc', expected 32"),
        (line(traceId="W47/95gDgQPSabYzgT/GDAAAAAAAAAAA"), "broken_line", "traceId"),
        (line(spanId=None), "broken_line", "spanId"),
        (line(traceId="0" * 32), "broken_line", "not all of them zero"),
        (line(spanId="0" * 16), "broken_line", "not all of them zero"),
        (line(startTimeUnixNano="noon"), "broken_line", "noon"),
        (line(endTimeUnixNano=str(2**63)), "broken_line", "is not a time"),
        (line(startTimeUnixNano=-1), "broken_line", "is not a time"),
        (line(kind="SPAN_KIND_ODD"), "broken_line", "SPAN_KIND_ODD"),
        (line({"key": "x", "value": {"intValue": "1.5e"}}), "broken_line", "1.5e"),
        (line({"key": "x", "value": {"bytesValue": "é"}}), "broken_line", "base64"),
        (line({"key": "x", "value": {"doubleValue": "a lot"}}), "broken_line", "a lot"),
        (b'{"resourceSpans":' + b"[" * 100_000, "broken_line", "nested too deeply"),
    ],
)
def test_a_line_that_is_not_traces_says_what_it_is(given_line: bytes, kind: str, words: str):
    """
    The error's kind tells broken lines from lines of something else, and its message says more.
    """
    with pytest.raises(LineError) as caught:
        decode_line(given_line)

    assert (kind, True) == (caught.value.kind, words in str(caught.value))


def spans(*given_spans: Any) -> bytes:
    """A line of these spans, in two scopes."""
    blocks = [{"scope": {"name": "mttp"}, "spans": [span]} for span in given_spans]
    return json.dumps({"resourceSpans": [{"scopeSpans": blocks}]}).encode()


GOOD = {"traceId": TRACE, "spanId": SPAN, "name": "good"}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({**GOOD, "traceId": "0" * 32}, "traceId is '0"),
        ({**GOOD, "name": 3}, "Expected `str | null`, got `int` - at `$.name`"),
        ({**GOOD, "startTimeUnixNano": "noon"}, "noon"),
        ({**GOOD, "attributes": {"a": 1}}, "$.attributes"),
        ({**GOOD, "attributes": [{"key": "a", "value": {"doubleValue": "a lot"}}]}, "a lot"),
        ({}, "traceId is None"),
        (None, "Expected `object`, got `null`"),
    ],
)
def test_a_malformed_span_costs_only_itself(bad: Any, words: str):
    """
    The line's other spans are read, and the error has the span's place.
    """
    for arrays in (True, False):
        found, reasons = decode_spans(spans(GOOD, bad, GOOD), arrays=arrays)

        assert ([("good", "mttp")] * 2, 1) == ([(one.name, one.scope.name) for one in found], len(reasons))
        assert reasons[0].startswith("span 2 of the line is not valid OTLP JSON: ")
        assert words in reasons[0]


@pytest.mark.parametrize(
    "given_line", [b"{", b'{"resourceSpans":{}}', b'{"resourceSpans":[{"scopeSpans":3}]}', b"\xff"]
)
def test_a_line_that_is_malformed_elsewhere_is_lost_whole(given_line: bytes):
    """
    No span can be blamed.
    """
    with pytest.raises(LineError) as caught:
        decode_spans(given_line)

    assert "broken_line" == caught.value.kind


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(
    texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.binary(max_size=9)
)
values = (
    st.recursive(
        st.none() | scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=10,
    )
    | st.lists(st.floats(allow_nan=False), max_size=8)
    | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8)
)
attribute_sets = st.dictionaries(texts, values, max_size=6)
times = st.integers(0, 2**63 - 1)
ids = st.integers(1, 2**128 - 1).map("{:032x}".format)
span_ids = st.integers(1, 2**64 - 1).map("{:016x}".format)
counts = st.integers(0, 2**32 - 1)
scopes = st.builds(
    Scope, name=texts, version=texts, schema_url=texts, resource=attribute_sets, attributes=attribute_sets
)
records = st.builds(
    SpanRecord,
    trace_id=ids,
    span_id=span_ids,
    parent_id=st.just("") | span_ids,
    name=texts,
    kind=st.integers(0, 5),
    start_time=times,
    end_time=times,
    attributes=attribute_sets,
    status_code=st.integers(0, 2),
    status_message=texts,
    events=st.lists(st.builds(SpanEvent, texts, times, attribute_sets, counts), max_size=2).map(tuple),
    links=st.lists(st.builds(Link, ids, span_ids, attribute_sets, counts, counts), max_size=2).map(tuple),
    trace_state=texts,
    flags=counts,
    dropped_attributes=counts,
    dropped_events=counts,
    dropped_links=counts,
    scope=scopes,
)


@given(st.lists(records, max_size=3))
def test_what_the_encoder_wrote_is_read_back_equal(given_records: list[SpanRecord]):
    """
    Every span survives being written and read, with its line or by itself.
    """
    lines = list(encode_records(given_records))
    found = [record for text in lines for record in decode_line(text)]
    one_by_one = [record for text in lines for record in decode_spans(text)[0]]

    assert given_records == found
    assert given_records == one_by_one


@given(st.lists(st.floats(allow_nan=False)))
def test_doubles_are_exact(numbers: list[float]):
    """
    Not a bit of a double is lost.
    """
    (text,) = encode_records([SpanRecord(trace_id=TRACE, span_id=SPAN, name="", attributes={"x": numbers})])
    found = decode_line(text)[0].attributes["x"]

    assert list(map(float.hex, numbers)) == list(map(float.hex, found))


@given(st.binary(max_size=60))
def test_no_line_causes_anything_but_a_line_error(junk: bytes):
    """
    Whatever a line holds, it decodes or raises LineError.
    """
    for given_line in (junk, b'{"resourceSpans":' + junk, base64.b64encode(junk)):
        for decode in (decode_line, decode_spans):
            with contextlib.suppress(LineError):
                decode(given_line)

"""Lines are what the OTLP file rules ask for, and mean what the official encoder says."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest
from foreign import readable
from hypothesis import given, settings
from hypothesis import strategies as st
from official import parsed, told, unparsed
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.trace import ReadableSpan

from mttp.model.spans import Link as LinkRecord
from mttp.model.spans import Scope, SpanEvent, SpanRecord
from mttp.otlp.json import MAX_LINE_BYTES, encode_records
from mttp.otlp.spans.span_records import record

SPAN = SpanRecord(
    trace_id="0102030405060708090a0b0c0d0e0f10",
    span_id="00f067aa0ba902b7",
    parent_id="a0f067aa0ba902b7",
    name="step",
    start_time=1_750_000_000_000_000_001,
    end_time=1_750_000_000_000_000_002,
    flags=0x100,
)


class Colour(IntEnum):
    RED = 1


class Name(str, Enum):
    ANN = "ann"


def pairs(key: str, value: dict[str, Any]) -> dict[str, Any]:
    """A map of one item."""
    return {"kvlistValue": {"values": [{"key": key, "value": value}]}}


def lines(*records: SpanRecord, **options: Any) -> list[bytes]:
    """The records as lines."""
    return list(encode_records(records, **options))


def spans(line: bytes) -> list[dict[str, Any]]:
    """The spans of one line."""
    blocks = json.loads(line)["resourceSpans"]
    return [span for block in blocks for scoped in block["scopeSpans"] for span in scoped["spans"]]


# A line by itself.


def test_a_line_is_one_message_that_ends_in_a_newline() -> None:
    """
    The file rules: JSON lines, each of them one whole TracesData.
    """
    (line,) = lines(SPAN)

    assert (1, True, ["resourceSpans"]) == (line.count(b"\n"), line.endswith(b"\n"), list(json.loads(line)))


def test_ids_are_hex_enums_are_integers_and_times_are_text() -> None:
    """
    What OTLP's JSON does differently from protobuf's, and what it shares.
    """
    (line,) = lines(replace(SPAN, kind=3, status_code=2, status_message="broken"))

    (span,) = spans(line)
    assert {
        "traceId": "0102030405060708090a0b0c0d0e0f10",
        "spanId": "00f067aa0ba902b7",
        "parentSpanId": "a0f067aa0ba902b7",
        "flags": 256,
        "name": "step",
        "kind": 3,
        "startTimeUnixNano": "1750000000000000001",
        "endTimeUnixNano": "1750000000000000002",
        "status": {"message": "broken", "code": 2},
    } == span


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("text", {"stringValue": "text"}),
        ("", {"stringValue": ""}),
        ("ü日本\u2028\x00\U0001f600", {"stringValue": "ü日本\u2028\x00\U0001f600"}),
        (True, {"boolValue": True}),
        (False, {"boolValue": False}),
        (0, {"intValue": "0"}),
        (2**63 - 1, {"intValue": "9223372036854775807"}),
        (-(2**63), {"intValue": "-9223372036854775808"}),
        (2**63, {"stringValue": "9223372036854775808"}),
        (0.1, {"doubleValue": 0.1}),
        (5e-324, {"doubleValue": 5e-324}),
        (math.nan, {"doubleValue": "NaN"}),
        (math.inf, {"doubleValue": "Infinity"}),
        (-math.inf, {"doubleValue": "-Infinity"}),
        (np.float32(0.5), {"stringValue": "0.5"}),
        (np.float64(0.5), {"doubleValue": 0.5}),
        (np.float64("nan"), {"doubleValue": "NaN"}),
        (np.str_("text"), {"stringValue": "text"}),
        (np.int64(3), {"stringValue": "3"}),
        (Colour.RED, {"intValue": "1"}),
        (Name.ANN, {"stringValue": "ann"}),
        (b"\x00\xff", {"bytesValue": "AP8="}),
        (bytearray(b"\x00\xff"), {"bytesValue": "AP8="}),
        (b"", {"bytesValue": ""}),
        (None, {}),
        ([], {"arrayValue": {}}),
        ((), {"arrayValue": {}}),
        ({}, {"kvlistValue": {}}),
        ([1, "a", None], {"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "a"}, {}]}}),
        (range(2), {"arrayValue": {"values": [{"intValue": "0"}, {"intValue": "1"}]}}),
        (np.array([1.5]), {"arrayValue": {"values": [{"doubleValue": 1.5}]}}),
        (
            {"a": {"b": [{}]}},
            pairs("a", pairs("b", {"arrayValue": {"values": [{"kvlistValue": {}}]}})),
        ),
    ],
)
def test_values_are_spelled_as_the_rules_say(value: object, encoded: dict[str, Any]) -> None:
    """
    Each kind of value has one spelling; integers beyond 64 bits have none, and are kept as text.
    """
    (line,) = lines(replace(SPAN, attributes={"key": value}))

    (span,) = spans(line)
    assert [{"key": "key", "value": encoded}] == span["attributes"]


def test_an_integer_that_python_will_not_print_is_kept() -> None:
    """
    Beyond some 4,300 digits an integer is written in hex.
    """
    (line,) = lines(replace(SPAN, attributes={"key": 10**5000}))

    (span,) = spans(line)
    assert {"stringValue": hex(10**5000)} == span["attributes"][0]["value"]


def test_negative_zero_keeps_its_sign() -> None:
    """
    Floats come back bit by bit.
    """
    (line,) = lines(replace(SPAN, attributes={"key": -0.0}))

    (span,) = spans(line)
    assert -1.0 == math.copysign(1.0, span["attributes"][0]["value"]["doubleValue"])


def test_lone_surrogates_are_escaped_wherever_they_are() -> None:
    """
    Spans that did not pass our recorder may hold text that UTF-8 can't carry: the line is good all the same.
    """
    broken = "a\ud800"
    foreign = replace(
        SPAN,
        name=broken,
        attributes={broken: [broken, {broken: broken}]},
        status_message=broken,
        events=[SpanEvent(broken, 1, {broken: broken})],
        links=[LinkRecord("01" * 16, "02" * 8, {broken: broken})],
        scope=Scope(name=broken, resource={broken: broken}),
    )

    (line,) = lines(foreign)

    assert rb"a\\ud800" in line
    assert r"a\ud800" == spans(line)[0]["name"]
    assert parsed(line)


# Whole lines against the official implementation.


@settings(deadline=None)
@given(st.lists(readable(), min_size=1, max_size=5))
def test_a_span_means_what_the_official_encoder_says(originals: Sequence[ReadableSpan]) -> None:
    """
    Whatever the SDK hands over, the parsed lines hold the message that the official exporter would send.
    """
    official = TracesData.FromString(encode_spans(originals).SerializeToString())

    ours = [span for line in encode_records(map(record, originals)) for span in told(parsed(line))]

    assert sorted(told(official)) == sorted(ours)


@settings(deadline=None)
@given(st.lists(readable(), min_size=1, max_size=5))
def test_a_line_is_what_the_official_json_would_be(originals: Sequence[ReadableSpan]) -> None:
    """
    Reading a line with protobuf and writing it again gives the same document.
    """
    for line in encode_records(map(record, originals)):
        again = unparsed(parsed(line))

        assert json.dumps(again, sort_keys=True) == json.dumps(json.loads(line), sort_keys=True)


# Several lines.


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200), st.sampled_from(["a", "b"])), max_size=30),
    st.integers(300, 2000),
)
def test_lines_stay_below_the_limit_and_hold_every_span_in_order(
    made: list[tuple[int, int, str]], limit: int
) -> None:
    """
    A line is as long as it may be, but for one that a single larger span needs.
    """
    records = [
        replace(SPAN, trace_id=f"{trace:032x}", span_id=f"{number:016x}", name="n" * size, scope=Scope(scope))
        for number, (trace, size, scope) in enumerate(made)
    ]

    encoded = lines(*records, max_bytes=limit)

    assert [one.span_id for one in records] == [span["spanId"] for line in encoded for span in spans(line)]
    assert [] == [line for line in encoded if len(line) > limit and len(spans(line)) > 1]


def test_an_episode_is_on_one_line_where_it_fits_on_one() -> None:
    """
    A reader that takes one line finds a whole episode; only one larger than a line is spread over several.
    """
    sizes = {1: 3, 2: 3, 3: 3, 4: 20, 5: 3}
    records = [
        replace(SPAN, trace_id=f"{trace:032x}", name="n" * 100)
        for trace, count in sizes.items()
        for _ in range(count)
    ]

    encoded = lines(*records, max_bytes=2500)

    found = [sorted({int(span["traceId"], 16) for span in spans(line)}) for line in encoded]
    assert [1, 1, 1, 1] == [sum(trace in line for line in found) for trace in (1, 2, 3, 5)]
    assert sum(4 in line for line in found) > 1


def test_spans_of_equal_scopes_share_a_line() -> None:
    """
    Foreign spans each have a scope object of their own; scopes are compared by value.
    """
    scopes = [Scope(name="lib", resource={"service.name": "a"}) for _ in range(2)]

    encoded = lines(*(replace(SPAN, scope=scope) for scope in scopes))

    assert [2] == [len(spans(line)) for line in encoded]


def test_a_line_is_below_one_megabyte_by_default() -> None:
    """
    Collectors split lines at 1 MiB.
    """
    encoded = lines(*(replace(SPAN, name="n" * 10_000) for _ in range(500)))

    assert len(encoded) > 1
    assert all(len(line) <= MAX_LINE_BYTES < 2**20 for line in encoded)


# Spans that differ in little.


@pytest.mark.parametrize("name", ["step", "50% of %s", "%%", "Größe 日本\x00", '"', ""])
@pytest.mark.parametrize("has_parents", [True, False])
def test_spans_of_several_traces_are_written_as_each_by_itself(name: str, has_parents: bool) -> None:
    """
    Whatever they are called, and whatever they say.
    """
    common: dict[str, Any] = {"100%": "%d", "ü": 1}
    own = [("%s", 5), ("text", 6)]
    records = [
        replace(
            SPAN,
            trace_id=f"{trace:032x}",
            span_id=f"{trace + 1:016x}",
            parent_id=f"{trace + 2:016x}" if has_parents else "",
            name=name,
            attributes={**common, "%own": text, "number": number, "fixed %": ("%",)},
        )
        for trace, (text, number) in enumerate(own, 1)
    ]

    alone = [span for one in records for line in encode_records([one]) for span in told(parsed(line))]

    assert alone == [span for line in encode_records(records) for span in told(parsed(line))]

"""Requests are byte for byte what the official encoder makes of the same spans, and lines say the same."""

from __future__ import annotations

import json
import logging
import math
from collections import UserList
from collections.abc import Iterator, Sequence
from decimal import Decimal
from enum import Enum, IntEnum
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from exporters import Exporter
from foreign import FLOATS, INT64, NULL, SCALARS, TEXT, readable
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as official
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext

import mttp
from mttp.model.spans import SpanRecord
from mttp.otlp import json as otlp_json
from mttp.otlp.protobuf import encode_span, encode_spans
from mttp.otlp.spans.span_records import record

CONTEXT = SpanContext(2**127 + 1, 2**63 + 1, is_remote=False)
NOWHERE = Resource({})


class Colour(IntEnum):
    RED = 1


class Name(str, Enum):
    ANN = "ann"


def span(attributes: Any = None, **facts: Any) -> ReadableSpan:
    """A span with these attributes."""
    return ReadableSpan(
        **{"name": "step", "context": CONTEXT, "resource": NOWHERE, "attributes": attributes} | facts
    )


def expected(spans: Sequence[ReadableSpan]) -> bytes:
    """What the official exporter sends."""
    return bytes(official(spans).SerializeToString())


@pytest.fixture
def quiet() -> Iterator[None]:
    """The official encoder logs whatever it drops, with its stack."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


LONG = 70
LISTS = (
    st.lists(SCALARS, max_size=LONG)
    | st.lists(st.floats(), min_size=20, max_size=LONG)
    | st.lists(INT64, min_size=20, max_size=LONG)
    | st.lists(st.integers(0, 2**18 + 1), min_size=20, max_size=LONG)
    | st.lists(st.booleans(), min_size=20, max_size=LONG)
    | st.lists(st.booleans() | st.integers(0, 1), min_size=20, max_size=LONG)
    | st.lists(FLOATS | st.integers(0, 3) | NULL, min_size=20, max_size=LONG)
    | st.lists(st.integers(-(2**70), 2**70), min_size=20, max_size=LONG)
)
ODD = st.sampled_from(
    [
        2**63,
        -(2**63) - 1,
        10**5000,
        "a\ud800",
        np.float64("nan"),
        np.float64(0.5),
        np.float32(0.5),
        np.int64(3),
        np.str_("text"),
        np.bool_(True),
        Colour.RED,
        Name.ANN,
        [Colour.RED] * 30,
        [np.float64(1)] * 30,
        [1.0] * 29 + [np.float64(1)],
        [1] * 29 + [np.int64(1)],
        [1] * 29 + [Colour.RED],
        [1.0] * 29 + ["a\ud800"],
        bytearray(b"\x01"),
        memoryview(b"\x01"),
        range(30),
        Decimal(1),
        object,
        {1, 2},
        {1: "a", None: {True: b""}},
        {"a": ["b\ud800"]},
        complex(1),
    ]
)
WILD = st.dictionaries(
    TEXT | st.sampled_from(["a\ud800", Name.ANN]) | st.sampled_from([0, None, b"key", 1.5]),
    LISTS | LISTS.map(tuple) | ODD | SCALARS | st.dictionaries(TEXT, LISTS, max_size=2),
    max_size=4,
)


# Protobuf.


@settings(deadline=None)
@given(st.lists(readable(), max_size=6))
def test_a_request_is_byte_for_byte_the_official_one(spans: Sequence[ReadableSpan]) -> None:
    """
    Whatever spans the SDK hands over, of whichever resources and scopes, nothing tells the encoders apart.
    """
    assert expected(spans) == encode_spans(spans)


@pytest.mark.usefixtures("quiet")
@settings(deadline=None)
@given(WILD, WILD, WILD)
def test_attributes_of_every_type_are_the_official_bytes(one: Any, other: Any, third: Any) -> None:
    """
    Long lists and short ones, of one type and of several, and what neither encoder can write.
    """
    wild = span(one, events=[Event("event", other, 1)], links=[Link(CONTEXT, third)])

    assert expected([wild]) == encode_spans([wild])


@pytest.mark.parametrize("value", [2**63, "a\ud800", ["fine", "a\ud800"], Decimal(1)])
def test_what_is_dropped_is_logged_like_by_the_official_encoder(
    value: object, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The one attribute is lost, and there is a line in the log that names it.
    """
    encoded = encode_spans([span({"lost": value, "kept": 1})])

    assert expected([span({"kept": 1})]) == encoded
    assert ["Failed to encode key lost"] == [
        one.getMessage().partition(":")[0] for one in caplog.records if one.name.startswith("opentelemetry")
    ]


@pytest.mark.parametrize(
    "values",
    [
        [0] * 30,
        [0, 127, 128, 2**14 - 1, 2**14, 2**18 - 1] * 5,
        [2**18, 0] * 15,
        [2**shift - one for shift in range(64) for one in (0, 1)][:-1],
        [-(2**63), 2**63 - 1, -1] * 10,
        [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308] * 5,
        [True, False] * 15,
        list(range(70_000)),
        [one / 3 for one in range(70_000)],
        [True, False] * 70_000,
        [-1] * 70_000,
        [[1.5] * 30, [1] * 30, {"a": [True] * 30}],
    ],
    ids=lambda values: f"{len(values)} from {values[0]!r:.9}",
)
def test_long_arrays_are_the_official_bytes(values: list[Any]) -> None:
    """
    Arrays are written in one go, in pieces where they are huge; the edges of every length are right.
    """
    assert expected([span({"key": values})]) == encode_spans([span({"key": values})])


@settings(deadline=None)
@given(
    hnp.arrays(
        dtype=st.sampled_from(
            ["f2", "f4", "f8", ">f8", "i1", "i2", "i4", "i8", ">i4", "u1", "u4", "u8", "?"]
        ),
        shape=hnp.array_shapes(max_dims=3, min_side=0, max_side=40),
    )
)
def test_an_array_is_sent_as_its_list_would_be(array: Any) -> None:
    """
    Numpy arrays are written as readers expect them; integers that no attribute can hold become text.
    """
    listed = [str(item) if type(item) is int and item >= 2**63 else item for item in array.ravel().tolist()]

    assert expected([span({"key": listed})]) == encode_spans([span({"key": array})])


def test_none_is_an_empty_value() -> None:
    """
    Early official encoders drop it; a later reader finds it either way.
    """
    (found,) = _parsed(encode_spans([span({"key": None})])).attributes

    assert ("key", None) == (found.key, found.value.WhichOneof("value"))


def test_spans_of_equal_resources_share_a_block_of_the_first_one() -> None:
    """
    Resources are equal whatever the order of their attributes; the first one's order is sent.
    """
    one, other = Resource({"a": 1, "b": 2}), Resource({"b": 2, "a": 1})

    for first, second in ((one, other), (other, one)):
        spans = [span(resource=first), span(resource=second), span(resource=NOWHERE), span(resource=first)]
        assert expected(spans) == encode_spans(spans)


def test_resources_and_scopes_that_come_and_go_are_not_mixed_up() -> None:
    """
    What is remembered of them is remembered of the very object.
    """
    for number in range(200):
        spans = [
            span(
                resource=Resource({"number": number}),
                instrumentation_scope=InstrumentationScope("lib", str(number)),
            )
        ]
        assert expected(spans) == encode_spans(spans)


def test_a_broken_name_costs_nothing_else() -> None:
    """
    The official encoder loses the whole batch for it; here it is escaped.
    """
    with pytest.raises(UnicodeEncodeError):
        expected([span(name="a\ud800")])

    assert r"a\ud800" == _parsed(encode_spans([span(name="a\ud800")])).name


def test_a_span_without_a_name_is_written_as_the_official_encoder_writes_it() -> None:
    """
    Facts that are not of the types that they should be are the official encoder's to judge.
    """
    spans = [span({"key": [1.5] * 30}, name=None, start_time=None)]

    assert expected(spans) == encode_spans(spans)


@pytest.mark.parametrize(
    "facts", [{"start_time": -1}, {"end_time": 2**64}, {"kind": 7}, {"context": None}], ids=str
)
def test_an_impossible_span_is_refused_as_the_official_encoder_refuses_it(facts: dict[str, Any]) -> None:
    """
    The same exception is raised.
    """
    with pytest.raises(Exception) as refused:  # noqa: PT011 - whichever it is
        expected([span(**facts)])

    with pytest.raises(refused.type):
        encode_spans([span(**facts)])


def _parsed(request: bytes) -> Any:
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    return TracesData.FromString(request).resource_spans[0].scope_spans[0].spans[0]


def live_spans() -> list[Any]:
    """Spans of our own, arrays and all."""
    exporter = Exporter()
    kept: list[ReadableSpan] = []
    exporter.export = lambda spans: (kept.extend(spans), Exporter().export(spans))[1]  # type: ignore[method-assign]
    with mttp.configure(exporter), mttp.episode(env="grid") as episode:
        for index in range(3):
            with episode.step() as step:
                step.tokens(ids=np.arange(40), logprobs=np.linspace(-1, 0, 40, dtype=np.float32))
                step.observation(np.arange(60).reshape(5, 12))
                step.reward(float(index))
    return kept


def test_our_own_spans_are_encoded_from_their_arrays_like_by_any_exporter() -> None:
    """
    The arrays as recorded, and the lists that a span of ours shows to others, are the same bytes.
    """
    spans = live_spans()

    native = encode_spans(spans, attrgetter("values"))

    assert expected(spans) == native
    assert len(spans) > 4


@settings(deadline=None)
@given(readable())
def test_a_record_is_written_as_the_span_that_it_was_made_from(one: ReadableSpan) -> None:
    """
    One span is the same message, whichever way it comes.
    """
    assert _parsed(encode_spans([one])).SerializeToString() == encode_span(record(one))


# JSON lines.


@settings(deadline=None)
@given(LISTS)
def test_a_long_list_is_written_as_its_items_are(values: list[Any]) -> None:
    """
    Numbers written as one list have the same bytes as written one by one.
    """
    each = [_told(item) for item in values]

    assert {"arrayValue": {"values": each} if values else {}} == _told(values)


@settings(deadline=None)
@given(
    hnp.arrays(
        dtype=st.sampled_from(["f2", "f4", "f8", ">f8", "i1", "i4", ">i8", "i8", "u1", ">u8", "u8", "?"]),
        shape=hnp.array_shapes(max_dims=3, min_side=0, max_side=40),
    )
)
def test_an_array_is_written_as_its_list_would_be(array: Any) -> None:
    """
    Also with NaN, infinities and integers beyond 64 bits.
    """
    assert _line(array.ravel().tolist()) == _line(array)


@pytest.mark.parametrize(
    "odd",
    [
        2**63,
        "a\ud800",
        np.float64(0.5),
        np.int64(3),
        Colour.RED,
        Name.ANN,
        True,
        None,
        1,
        1.5,
        [1],
        Decimal(1),
    ],
)
@pytest.mark.parametrize("number", [7, 0.5, True])
def test_one_odd_item_in_a_long_list_is_written_as_by_itself(number: Any, odd: Any) -> None:
    """
    Whatever is among the numbers, spans that did not pass our recorder are never lost for it.
    """
    values = [number] * 29 + [odd]
    items = [_told(item) for item in values]

    assert {"arrayValue": {"values": items}} == _told(values) == _told(UserList(values))


def _told(value: object) -> Any:
    """An attribute's value as a line tells it."""
    (one,) = json.loads(_line(value))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    return one["value"]


def _line(value: object) -> bytes:
    (line,) = otlp_json.encode_records(
        [SpanRecord(trace_id="01" * 16, span_id="02" * 8, name="step", attributes={"key": value})]
    )
    return line

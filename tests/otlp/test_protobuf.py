"""Messages are what the official encoder would send, and come back as the records they were made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from foreign import readable
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from official import told
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.trace import ReadableSpan

from mttp.errors import ReadError
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.model.values import same
from mttp.otlp.protobuf import encode_request, encode_span, frame_bytes, span_bytes
from mttp.otlp.protobuf_decode import decode_message
from mttp.otlp.spans.span_records import record

SPAN = SpanRecord(
    trace_id="0102030405060708090a0b0c0d0e0f10",
    span_id="00f067aa0ba902b7",
    name="step",
    start_time=1_750_000_000_000_000_001,
    end_time=1_750_000_000_000_000_002,
)


def message(*records: SpanRecord) -> bytes:
    """A request of these spans, each in a block of its own."""
    return encode_request((one.scope, [encode_span(one)]) for one in records)


def value_of(value: object) -> Any:
    """The value of an attribute after encoding and decoding."""
    (found,) = decode_message(message(replace(SPAN, attributes={"key": value})))
    return found.attributes["key"]


@settings(deadline=None)
@given(st.lists(readable(), min_size=1, max_size=5))
def test_a_span_is_the_message_that_the_official_encoder_makes(originals: Sequence[ReadableSpan]) -> None:
    """
    For any span of the SDK the bytes are the same.
    """
    official = TracesData.FromString(encode_spans(originals).SerializeToString())

    ours = TracesData.FromString(message(*map(record, originals)))

    assert sorted(told(official)) == sorted(told(ours))


@settings(deadline=None)
@given(readable())
def test_one_span_is_byte_for_byte_the_official_request(original: ReadableSpan) -> None:
    """
    Down to the order of fields: nothing is written that the official exporter would leave out.
    """
    assert encode_spans([original]).SerializeToString() == message(record(original))


@settings(deadline=None)
@given(readable())
def test_a_message_is_read_as_the_record_that_it_was_made_from(original: ReadableSpan) -> None:
    """
    Decoding undoes encoding, dropped counts, flags and scopes included.
    """
    sent = record(original)

    (found,) = decode_message(message(sent))

    for name in SpanRecord.__slots__:
        if name in ("events", "links", "attributes", "scope"):
            continue
        assert getattr(sent, name) == getattr(found, name), name
    assert same(sent.attributes, found.attributes)
    assert [mark.name for mark in sent.events] == [mark.name for mark in found.events]
    assert all(same(one.attributes, two.attributes) for one, two in zip(sent.links, found.links, strict=True))
    assert sent.scope.name == found.scope.name


@settings(deadline=None)
@given(
    hnp.arrays(
        dtype=st.sampled_from(["f4", "f8", ">f8", "f2", "i1", "i4", "i8", "u1", "u8", "?"]),
        shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
    )
)
def test_an_array_is_sent_as_its_list_would_be(array: Any) -> None:
    """
    Writing numbers in one go is only faster.
    """
    numbers = array.ravel().tolist()
    sent, listed = (replace(SPAN, attributes={"key": value}) for value in (array, numbers))

    assert encode_span(listed) == encode_span(sent)


def test_integers_of_every_width_are_written_in_one_go() -> None:
    """
    Each takes as many bytes as it needs, more of them than fit into one go included.
    """
    powers = [sign * (2**bits + more) for bits in range(63) for more in (-1, 0, 1) for sign in (1, -1)]
    array = np.array([*powers, 2**63 - 1, -(2**63), *range(70_000)])

    sent, listed = (replace(SPAN, attributes={"key": value}) for value in (array, array.tolist()))

    assert encode_span(listed) == encode_span(sent)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, "9223372036854775808"),
        ("a\ud800", r"a\ud800"),
        ({"a\ud800": [None, {}]}, {r"a\ud800": [None, {}]}),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"\x00"), b"\x00"),
        ((1, "a", None), [1, "a", None]),
        (np.array([2**64 - 1, 1], np.uint64), ["18446744073709551615", 1]),
        (complex(1, 2), "(1+2j)"),
        (None, None),
    ],
)
def test_what_the_protocol_has_no_type_for_is_encoded_as_text(value: object, found: object) -> None:
    """
    A batch is never lost for one value in it.
    """
    assert found == value_of(value)


def test_negative_zero_keeps_its_sign() -> None:
    """
    Floats come back bit by bit.
    """
    assert [-1.0, -1.0] == [math.copysign(1.0, item) for item in (value_of(-0.0), value_of([-0.0])[0])]


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(0, 20_000))
def test_a_request_is_no_longer_than_the_stated_sizes_of_its_parts(sizes: list[int], named: int) -> None:
    """
    Sizes are known ahead of building a request, and hardly overstated.
    """
    scope = Scope(name="n" * named, resource={"service.name": "a"}, resource_schema_url="https://example.org")
    spans = [encode_span(replace(SPAN, name="n" * size)) for size in sizes]

    foretold = frame_bytes(scope) + sum(map(span_bytes, spans))

    assert 0 <= foretold - len(encode_request([(scope, spans)])) <= 32 + 6 * len(spans)


def test_events_and_links_come_back() -> None:
    """
    They have attributes of their own.
    """
    events = (SpanEvent("exception", 7, {"exception.type": "ValueError"}, 2),)
    links = (Link("ab" * 16, "cd" * 8, {"why": ["because"]}, 0x300, 1),)

    (found,) = decode_message(message(replace(SPAN, events=events, links=links)))

    assert (events, links) == (found.events, found.links)


@pytest.mark.parametrize("content", [b"garbage", b"\x0a\xff", b"{}"])
def test_what_is_no_message_is_refused(content: bytes) -> None:
    """
    The reader says so rather than returning nothing.
    """
    with pytest.raises(ReadError, match="not valid OTLP protobuf"):
        decode_message(content)


def test_an_integer_that_python_will_not_print_is_kept() -> None:
    """
    Beyond some 4,300 digits an integer is written in hex.
    """
    assert hex(10**5000) == value_of(10**5000)

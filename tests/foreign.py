"""Strategies that make any span which the SDK may hand to an exporter."""

from __future__ import annotations

import logging
import math

from hypothesis import strategies as st
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**64 - 1)
FLOATS = st.floats(allow_nan=False) | st.just(math.nan)  # JSON does not tell one NaN from another


def official_takes_null() -> bool:
    """Whether the official encoder can say None: early versions leave an attribute out that holds it."""
    span = ReadableSpan("", SpanContext(1, 1, is_remote=False), resource=Resource({}), attributes={"a": None})
    logging.disable(logging.ERROR)
    try:
        return b"a" in encode_spans([span]).SerializeToString()
    finally:
        logging.disable(logging.NOTSET)


NULL = st.none() if official_takes_null() else st.nothing()
SCALARS = NULL | st.booleans() | INT64 | FLOATS | TEXT | st.binary(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def bounded(draw: st.DrawFn) -> BoundedAttributes:
    """Attributes of which a library dropped some."""
    items = draw(st.dictionaries(KEYS, TEXT | INT64, max_size=4))
    return BoundedAttributes(maxlen=draw(st.integers(1, 3)), attributes=items, immutable=False)


@st.composite
def contexts(draw: st.DrawFn) -> SpanContext:
    """The identity of some span, here or remote."""
    states = st.sampled_from([TraceState(), TraceState([("a", "1")]), TraceState([("a", "1"), ("b", "2")])])
    return SpanContext(
        draw(st.integers(1, 2**128 - 1)),
        draw(st.integers(1, 2**64 - 1)),
        is_remote=draw(st.booleans()),
        trace_flags=TraceFlags(draw(st.integers(0, 1))),
        trace_state=draw(states),
    )


RESOURCES = [
    Resource({}),
    Resource({"service.name": "a", "list": ["x", "y"]}),
    Resource({"service.name": "b"}, "https://example.org/resource"),
]
SCOPES = [
    None,
    InstrumentationScope("lib"),
    InstrumentationScope("lib", "1.2", "https://example.org/scope", {"scope.attribute": True}),
]
STATUSES = st.sampled_from([Status(), Status(StatusCode.OK)]) | TEXT.map(
    lambda message: Status(StatusCode.ERROR, message)
)


@st.composite
def readable(draw: st.DrawFn) -> ReadableSpan:
    """Any span that the SDK may hand to an exporter."""
    any_attributes = ATTRIBUTES | bounded()
    return ReadableSpan(
        name=draw(TEXT),
        context=draw(contexts()),
        parent=draw(st.none() | contexts()),
        resource=draw(st.sampled_from(RESOURCES)),
        attributes=draw(any_attributes),
        events=draw(st.lists(st.builds(Event, TEXT, any_attributes, TIMES), max_size=2)),
        links=draw(st.lists(st.builds(Link, contexts(), any_attributes), max_size=2)),
        kind=draw(st.sampled_from(SpanKind)),
        status=draw(STATUSES),
        start_time=draw(TIMES),
        end_time=draw(TIMES),
        instrumentation_scope=draw(st.sampled_from(SCOPES)),
    )

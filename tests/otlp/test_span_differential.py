"""Our spans beside the SDK's: the same calls give the same span."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

import mttp

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
LISTS = st.one_of([st.lists(one, max_size=3) for one in (st.booleans(), st.integers(0, 9), TEXT)])
VALUES = SCALARS | LISTS
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=3)
TIMES = st.integers(1, 2**62)
CONTEXTS = st.builds(
    SpanContext,
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
    st.sampled_from([TraceFlags(0), TraceFlags(1)]),
)
CODES = st.sampled_from(StatusCode)


def raised() -> Exception:
    """An exception with a traceback."""
    try:
        raise ValueError("what happened")
    except ValueError as error:
        return error


CALLS: st.SearchStrategy[tuple[str, tuple[Any, ...], Mapping[str, Any]]] = st.one_of(
    st.tuples(st.just("set_attribute"), st.tuples(NAMES, VALUES), st.just({})),
    st.tuples(st.just("set_attributes"), st.tuples(ATTRIBUTES), st.just({})),
    st.tuples(
        st.just("add_event"),
        st.tuples(NAMES),
        st.fixed_dictionaries({"attributes": ATTRIBUTES, "timestamp": TIMES}),
    ),
    st.tuples(st.just("add_link"), st.tuples(CONTEXTS), st.fixed_dictionaries({"attributes": ATTRIBUTES})),
    st.tuples(st.just("update_name"), st.tuples(NAMES), st.just({})),
    st.tuples(st.just("set_status"), st.tuples(CODES, st.none() | TEXT), st.just({})),
    st.tuples(st.just("set_status"), st.tuples(st.builds(Status, CODES)), st.just({})),
    st.tuples(
        st.just("record_exception"),
        st.just((raised(),)),
        st.fixed_dictionaries({"attributes": ATTRIBUTES, "timestamp": TIMES}),
    ),
    st.tuples(st.just("end"), st.tuples(TIMES), st.just({})),
    st.tuples(st.just("is_recording"), st.just(()), st.just({})),
)


def of_sdk(name: str) -> tuple[trace.Span, Callable[[], ReadableSpan]]:
    """A span of the SDK's without limits, and itself once it has ended."""
    limits = SpanLimits(*[SpanLimits.UNSET] * 8)
    span = TracerProvider(shutdown_on_exit=False, span_limits=limits).get_tracer("t").start_span(name)
    return span, lambda: span  # type: ignore[return-value]  # it is both


def own(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the user said: ours, and the facts of a call, are besides."""
    return {
        key: value for key, value in (attributes or {}).items() if not key.startswith(("mttp.", "gen_ai."))
    }


def shown(span: ReadableSpan) -> dict[str, Any]:
    """What the calls came to."""
    return {
        "name": span.name,
        "attributes": own(span.attributes),
        "events": [(event.name, _marked(event), event.timestamp) for event in span.events],
        "links": [_link(link) for link in span.links],
        "status": (span.status.status_code, span.status.description),
        "kind": span.kind,
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
    }


def _marked(event: Event) -> dict[str, Any]:
    """An event's attributes, but for `exception.escaped`, which OpenTelemetry has given up."""
    return {key: said for key, said in (event.attributes or {}).items() if key != "exception.escaped"}


def _link(link: Link) -> tuple[Any, ...]:
    return link.context, dict(link.attributes or {})


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The SDK logs calls after the end."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("what", ["step", "episode", "call", "agent"])
@given(calls=st.lists(CALLS, max_size=8), end=TIMES)
def test_the_same_calls_give_the_same_span(what: str, calls: list[Any], end: int) -> None:
    """
    Attributes, events, links, status, name and what is ignored after the end, whatever handle's span it is.
    """
    with mttp.configure("memory://") as session, mttp.episode() as episode, episode.step() as step:
        handle = {
            "step": lambda: step,
            "episode": lambda: episode,
            "call": lambda: step.tool_call("t"),
            "agent": lambda: episode.agent("a"),
        }[what]()
        ours: Any = handle.span
        theirs, ended = of_sdk(ours.name)
        answers = [
            (getattr(ours, name)(*args, **said), getattr(theirs, name)(*args, **said))
            for name, args, said in calls
        ]
        for span in (ours, theirs):
            span.end(end)

    assert all(one == other for one, other in answers)
    assert shown(ended()) == shown(ours)
    assert session.stats.as_dict()["lost"] == {}

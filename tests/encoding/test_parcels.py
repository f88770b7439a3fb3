"""Spans that went to another process say what they said here."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from otlp import Spans
from specimen import EVERYTHING, episodes

import mttp
from mttp.codec.profiles import Profile, arrays, full, packed
from mttp.encoding.parcels import pack
from mttp.encoding.stretch import Stretch
from mttp.encoding.unpacking import unpack
from mttp.livespan import LiveSpan
from mttp.readable import record
from mttp.recorder.live_root import LiveRoot
from mttp.recorder.live_step import LiveStep
from mttp.spans import SpanRecord
from mttp.values import same


def recorded(value: mttp.Episode) -> list[ReadableSpan]:
    """The spans of a run with one episode."""
    keeping = Spans()
    with mttp.configure(keeping) as session:
        session.record(value)
    return keeping.spans


def alike(left: SpanRecord, right: SpanRecord) -> bool:
    """Whether two records say the same thing, arrays and NaN included."""
    bare: dict[str, Any] = {"attributes": {}, "events": (), "links": ()}
    marks = [
        [(one.name, one.time, dict(one.attributes)) for one in each.events]
        + [(one.span_id, one.flags, dict(one.attributes)) for one in each.links]
        for each in (left, right)
    ]
    whole = replace(left, **bare) == replace(right, **bare)
    return whole and marks[0] == marks[1] and same(left.attributes, right.attributes)


def apart(spans: Iterable[Stretch | SpanRecord], profile: Profile) -> Iterator[SpanRecord]:
    """The records, also of those that are told together."""
    for one in spans:
        yield from one.records(profile) if isinstance(one, Stretch) else [one]


def check(spans: Sequence[ReadableSpan], profile: Profile) -> None:
    """Each arrives as it would be delivered here."""
    arrived = list(apart(unpack(pack(spans), profile), profile))

    assert len(spans) == len(arrived)
    for span, found in zip(spans, arrived, strict=True):
        assert alike(record(span, profile), found), span.name


@pytest.mark.parametrize("profile", [packed, full, arrays])
def test_everything_arrives(profile: Profile) -> None:
    """
    Every part of the vocabulary, in every form.
    """
    check(recorded(EVERYTHING), profile)


@given(episodes())
@settings(max_examples=25, deadline=None)
def test_any_episode_arrives(value: mttp.Episode) -> None:
    """
    Packed, as files have it.
    """
    check(recorded(value), packed)


def test_steps_arrive_as_they_were_handed_over() -> None:
    """
    Of the usual kind nothing is encoded on the way.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for length in range(4):
            with episode.step() as step:
                step.tokens(ids=list(range(length)), logprobs=np.linspace(-1, 0, length, dtype=np.float32))
                step.reward(0.5)
    steps = [span for span in keeping.spans if isinstance(span, LiveSpan) and span.name == "step"]

    assert [True] * 4 == [step.is_plain and step.block is not None for step in steps]
    for profile in (packed, full):
        check(steps, profile)


def test_a_block_arrives_though_another_transport_looks_at_it_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Either as it was handed over or as what was made of it.
    """
    keeping, outline = Spans(), LiveSpan.outline
    with mttp.configure(keeping), mttp.episode() as episode, episode.step() as step:
        step.tokens(ids=[1, 2, 3])
    steps = [span for span in keeping.spans if isinstance(span, LiveSpan) and span.name == "step"]

    def looked_at(span: LiveSpan, parents: dict[int, tuple[int, int]]) -> Any:
        _ = span.values
        return outline(span, parents)

    monkeypatch.setattr(LiveSpan, "outline", looked_at)
    (arrived,) = apart(unpack(pack(steps), packed), packed)

    assert alike(record(steps[0], packed), arrived)


def test_steps_arrive_under_their_parents_though_another_transport_looks_at_these_meanwhile() -> None:
    """
    Of two that ask who a parent is at once, one gets what nobody keeps.
    """
    keeping = Spans()
    with mttp.configure(keeping):
        for _ in range(20):
            with mttp.episode() as episode, episode.step():
                pass
    steps = [span for span in keeping.spans if isinstance(span, LiveStep)]
    roots = {span.trace_id: span for span in keeping.spans if isinstance(span, LiveRoot)}
    parents: dict[int, Any] = {}
    found = []
    for step in steps:
        found.append(step.outline(parents)[2])
        cast(Any, step.owner)._at = roots[step.trace_id]._context = None

    assert [roots[step.trace_id].identity.span_id for step in steps] == found


def test_other_libraries_spans_arrive() -> None:
    """
    State, events, links and what was dropped.
    """
    keeping = Spans()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(keeping))
    with provider.get_tracer("other", "1").start_as_current_span("a") as span:
        span.set_attributes({"text": "ü", "many": [1, 2], "number": 0.1})
        span.add_event("happened", {"x": True})
        span.add_link(trace.SpanContext(1, 2, is_remote=True), {"why": "so"})
        span.set_status(trace.StatusCode.ERROR, "broken")

    check(keeping.spans, full)


def test_what_bytes_can_not_say_is_refused() -> None:
    """
    And what would arrive as something else, as numpy's numbers do.
    """
    span = recorded(mttp.Episode())[0]
    assert isinstance(span, LiveSpan)
    for odd, name in ((multiprocessing, "module"), (np.float64(1), "float64"), ([np.str_("x")], "str_")):
        span.values["odd"] = odd
        with pytest.raises(ValueError, match=f"a {name} can't travel"):
            pack([span])


def test_nothing_is_a_parcel_too() -> None:
    """
    An empty one.
    """
    assert [] == list(unpack(pack([]), packed))

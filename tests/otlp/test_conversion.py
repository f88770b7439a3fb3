"""A malformed call of OpenTelemetry's API costs itself, and never an episode."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext, Status, StatusCode

import mttp
from mttp.recording import configuration
from mttp.testing import OtlpReceiver

DESTINATIONS = ("memory", "file", "otlp")


class Unprintable:
    """Raises at being looked at."""

    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


class Suit(str, enum.Enum):
    """Text of a class of its own."""

    HEARTS = "hearts"


class Rank(int, enum.Enum):
    """Numbers of a class of their own."""

    ACE = 14


ODD: tuple[Any, ...] = (
    *(None, 5, "x", b"x", "2024", 2.5, float("nan"), -1, 2**70, True, "", "\ud800", [1], {}, (), {1, 2}),
    *({None: 1}, {"": 1}, {5: 1}, {Unprintable(): 1}, {"a": Unprintable()}, Unprintable(), object(), int),
    *(StatusCode.ERROR, Status("ERROR"), Status(StatusCode.OK), ValueError("v"), ValueError(Unprintable())),  # type: ignore[arg-type]
    *(SpanContext(2**200, 1, False), SpanContext(0, 0, False), SpanContext(1, 1, False), Suit.HEARTS),
)
CALLS: tuple[Callable[[Any, Any], object], ...] = (
    lambda span, odd: span.set_attribute(odd, odd),
    lambda span, odd: span.set_attribute("k", odd),
    lambda span, odd: span.set_attributes(odd),
    lambda span, odd: span.add_event(odd),
    lambda span, odd: span.add_event("e", odd),
    lambda span, odd: span.add_event("e", timestamp=odd),
    lambda span, odd: span.add_link(odd),
    lambda span, odd: span.add_link(SpanContext(1, 1, False), odd),
    lambda span, odd: span.set_status(odd),
    lambda span, odd: span.set_status(StatusCode.ERROR, odd),
    lambda span, odd: span.record_exception(odd),
    lambda span, odd: span.record_exception(ValueError("v"), odd),
    lambda span, odd: span.update_name(odd),
)


@contextmanager
def session(destination: str) -> Iterator[tuple[mttp.Session, Any]]:
    """A session, and its recording as it is read."""
    configuration.forget()
    with OtlpReceiver() as receiver:
        address = {"memory": "memory://", "file": "file://a.jsonl", "otlp": receiver.http_address}[
            destination
        ]
        with mttp.configure(address) as opened:
            yield opened, {"memory": opened, "file": "a.jsonl", "otlp": receiver}[destination]


def read(source: Any) -> mttp.Episode:
    """The only episode, of which nothing may be missing."""
    found = mttp.read(source)
    (episode,) = [one for one in found.episodes if one.env == "toy"]
    assert ([], True) == (found.problems, episode.complete)
    return episode


@pytest.mark.parametrize("destination", DESTINATIONS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(st.tuples(st.sampled_from(CALLS), st.sampled_from(ODD)), max_size=12),
    ends=st.sampled_from(ODD),
    whose=st.sampled_from(["step", "episode", "agent"]),
)
def test_no_call_loses_anything_else(
    destination: str, tmp_path: Any, calls: Any, ends: Any, whose: str
) -> None:
    """
    On spans of ours no call raises; all steps are read, whatever was said of their spans.
    """
    for left in tmp_path.glob("*.jsonl"):
        left.unlink()
    with session(destination) as (opened, source):
        with opened.episode(env="toy") as episode:
            for index in range(3):
                with episode.step() as step, episode.agent(f"agent {index}") as agent:
                    for call, odd in calls:
                        call({"step": step, "episode": episode, "agent": agent}[whose].span, odd)
                    step.reward(1.0)
                    if whose == "step":
                        step.span.end(ends)
        opened.flush()
        lost = dict(opened.stats.lost)
        episode_found = read(source) if destination != "file" else None
    found = episode_found or read(source)

    assert ({}, [1.0] * 3) == (lost, [one.reward for one in found.steps])


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("call", CALLS)
def test_another_librarys_malformed_span_loses_nothing(destination: str, call: Callable[..., Any]) -> None:
    """
    The SDK keeps much of it until export; here it is corrected and counted.
    """
    with session(destination) as (opened, source):
        tracer = trace.get_tracer("library")
        with opened.episode(env="toy") as episode:
            for odd in ODD:
                with episode.step() as step:
                    span = tracer.start_span("GET")
                    with contextlib.suppress(Exception):  # where the SDK raises, the caller knows
                        call(span, odd)
                    span.end()
                    step.reward(1.0)
        opened.flush()
        lost = dict(opened.stats.lost)
        found = read(source)

    assert ({}, len(ODD)) == (lost, len(found.steps))


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_names_kinds_times_and_links_of_others_are_mended(destination: str) -> None:
    """
    What is wrong at the start of a span, at its end, or with the library's own name.
    """
    with session(destination) as (opened, source):
        tracers = [trace.get_tracer("library", 1.0), trace.get_tracer(5)]  # type: ignore[arg-type]
        with opened.episode(env="toy") as episode, episode.step() as step:
            for odd in ODD:
                for tracer in tracers:
                    tracer.start_span(odd, kind=odd, start_time=odd).end(odd)
                    bad = Link(SpanContext(2**200, 1, False), {"k": "v"})
                    tracer.start_span("linked", links=[bad]).end()
            step.reward(1.0)
        opened.flush()
        lost, faults = dict(opened.stats.lost), opened.stats.faults["span_invalid"]
        found = read(source)

    assert ({}, 1) == (lost, len(found.steps))
    assert faults > len(ODD)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda span: span.set_status("ERROR"), "status_invalid"),
        (lambda span: span.set_status(Status("ERROR")), "status_invalid"),  # type: ignore[arg-type]
        (lambda span: span.add_link(None), "link_invalid"),
        (lambda span: span.add_event("e", timestamp="2024"), "time_invalid"),
        (lambda span: span.add_event("e", ["x"]), "attributes_invalid"),
        (lambda span: span.set_attributes(5), "attributes_invalid"),
        (lambda span: span.set_attribute(None, 1), "attributes_refused"),
        (lambda span: span.set_attribute("", 1), "attributes_refused"),
        (lambda span: span.set_attributes({Unprintable(): 1}), "attributes_refused"),
        (lambda span: span.record_exception("boom"), "exception_invalid"),
        (lambda span: span.end("x"), "time_invalid"),
    ],
)
def test_each_is_counted_and_logged_once(
    call: Callable[[Any], object], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It is left out, and the span says so.
    """
    with mttp.configure(transport="memory://") as opened, mttp.episode(env="toy") as episode:
        for _ in range(2):
            with episode.step():
                call(trace.get_current_span())

    assert 2 == opened.stats.faults[fault]
    assert 1 == sum(f"mttp: {fault}:" in line for line in caplog.messages)


def test_ok_is_final() -> None:
    """
    As by the SDK, be it that an exception follows; the type of that is kept.
    """
    opened = mttp.configure(transport="memory://")
    with pytest.raises(ValueError, match="boom"), opened, opened.episode().step() as step:  # noqa: PT012
        step.span.set_status(StatusCode.OK)
        raise ValueError("boom")
    (record,) = [one for one in opened.records() if one.name == "step"]

    assert (1, "ValueError") == (record.status_code, record.attributes["error.type"])


def test_a_link_to_no_span_is_kept_for_its_attributes() -> None:
    """
    As by the SDK.
    """
    nowhere = SpanContext(0, 0, is_remote=False)
    opened = mttp.configure(transport="memory://")
    with opened, mttp.episode(env="toy") as episode, episode.step() as step:
        step.span.add_link(nowhere)
        step.span.add_link(nowhere, {"why": "unknown"})
    (record,) = [one for one in opened.records() if one.name == "step"]

    assert [{"why": "unknown"}] == [link.attributes for link in record.links]


def test_the_values_of_an_event_are_unchanged() -> None:
    """
    Its attributes can't be changed afterwards, nor can sequences among them.
    """
    with mttp.configure(transport="memory://"), mttp.episode(env="toy") as episode, episode.step() as step:
        given: Any = {"list": [1, [2]]}
        step.span.add_event("e", given)
        given["list"].append(3)
        (event,) = step.span.events  # type: ignore[attr-defined]

    assert {"list": (1, (2,))} == dict(event.attributes)
    with pytest.raises(TypeError):
        event.attributes["more"] = 1


def test_an_enum_of_text_is_recorded_by_its_value() -> None:
    """
    Wherever text can be said: of episodes, steps, calls, agents, metadata, events and attributes.
    """
    suit: Any = Suit.HEARTS
    opened = mttp.configure(transport="memory://")
    with opened, mttp.episode(env=suit, task=suit, seed=suit, metadata={suit: suit}) as episode:
        with episode.step() as step:
            step.action(suit)
            step.span.set_attribute("suit", suit)
            step.span.set_attribute(suit, Rank.ACE)
            step.span.add_event(suit, {"suit": suit})
            with step.model_call(suit), step.tool_call(suit, arguments={"suit": suit}):
                pass
        with episode.agent(suit) as agent, agent.step() as step:
            step.reward(1.0)
        episode.reward(1.0, components={suit: 1.0}, weights={suit: 1.0})
    records = [(one.name, one.attributes, one.events) for one in opened.records()]
    (found,) = mttp.read(opened).episodes

    assert "Suit" not in repr(records)
    assert ("hearts", "hearts", {"hearts": "hearts"}) == (found.env, found.seed, found.metadata)
    assert {"suit": "hearts", "hearts": 14} == found.steps[0].extra

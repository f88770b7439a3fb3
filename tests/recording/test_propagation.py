"""One episode in several threads, tasks and processes."""

from __future__ import annotations

import asyncio
import contextvars
import email.message
import functools
import itertools
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from reading.test_summary import figures, figures_of_values
from reading.traces import write
from requests.structures import CaseInsensitiveDict

import mttp
from mttp.model.spans import SpanRecord
from mttp.recording import propagation

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def only(session: mttp.Session) -> mttp.Episode:
    """Return the recorded episode."""
    (episode,) = mttp.read(session).episodes
    return episode


def carrier_of_an_ended_episode(session: mttp.Session) -> dict[str, str]:
    """Return a carrier from the first step of an episode that has ended."""
    with mttp.episode(env="e"), mttp.step():
        return mttp.inject()


# The carrier.


def test_a_carrier_is_traceparent_and_baggage(session: mttp.Session) -> None:
    """
    They have the W3C's format: the current span, and what the other process needs.
    """
    with mttp.episode(group="g") as episode, mttp.step() as step:
        carrier = mttp.inject()

    assert {"traceparent", "baggage"} == carrier.keys()
    assert f"00-{episode.trace_id}-{step.span_id}-01" == carrier["traceparent"]
    entries = dict(entry.split("=") for entry in carrier["baggage"].split(","))
    assert {
        "run_id": session.run_id,
        "group": "g",
        "root": episode.span_id,
        "next_index": "1",
        "step_index": "0",
        "step": step.span_id,
    } == {name: entries[key] for name, key in propagation.KEYS.items() if key in entries}


def test_inject_writes_nothing_without_an_episode(session: mttp.Session) -> None:
    """
    This is not a fault.
    """
    assert {} == mttp.inject()
    assert {"x": "y"} == mttp.inject({"x": "y"}, environment=True)
    assert not mttp.extract({})
    assert not mttp.extract()
    assert {} == dict(session.stats.faults)


def test_environment_variables_are_upper_case(session: mttp.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    This holds for `os.environ` and with `environment`; names of any case are read.
    """
    monkeypatch.setenv("TRACEPARENT", "")
    monkeypatch.setenv("BAGGAGE", "")
    with mttp.episode() as episode:
        assert {"PATH", "TRACEPARENT", "BAGGAGE"} == mttp.inject({"PATH": ""}, environment=True).keys()
        assert os.environ is mttp.inject(os.environ)
    with mttp.extract() as part, mttp.step():
        assert episode.trace_id == part.trace_id

    assert 1 == len(only(session).steps)


def headers_of_email(carrier: dict[str, str]) -> Any:
    message = email.message.Message()
    for name, value in carrier.items():
        message[name.title()] = value
    return message


@pytest.mark.parametrize(
    "headers",
    [
        dict,
        lambda carrier: {name.upper(): value for name, value in carrier.items()},
        CaseInsensitiveDict,
        headers_of_email,
        lambda carrier: [(name.encode(), value.encode()) for name, value in carrier.items()],
        lambda carrier: [*carrier.items(), *carrier.items(), ("traceparents", "x")],
    ],
    ids=["dict", "upper case", "requests", "http.server", "asgi", "twice"],
)
def test_headers_of_any_library_are_read(session: mttp.Session, headers: Any) -> None:
    """
    The case of their names does not matter.
    """
    with mttp.extract(headers(carrier_of_an_ended_episode(session))):
        mttp.step().end()

    assert (2, True) == (len(only(session).steps), only(session).complete)
    assert {} == dict(session.stats.faults)


def test_headers_of_any_library_are_written(session: mttp.Session) -> None:
    """
    Every object that takes items by name works; any other one is a fault, and is returned.
    """
    with mttp.episode():
        assert {"traceparent", "baggage"} <= set(mttp.inject(CaseInsensitiveDict()))
        assert mttp.inject(5) == 5  # type: ignore[type-var]

    assert 1 == session.stats.faults["carrier_invalid"]


IDS = ["plain", " spaced  out ", "ü, 日本;a=b", '"%20+"', "\n", "x" * 1000]


@pytest.mark.parametrize("name", IDS)
def test_any_id_is_propagated(session: mttp.Session, name: str) -> None:
    """
    Ids of episode, group and agent may contain any characters.
    """
    with mttp.episode(id=name, group=name) as episode, episode.agent(name):
        carrier = mttp.inject()
    with mttp.extract(carrier) as part:
        assert (name, name, [name]) == (part.id, part.group, [agent.id for agent in part.agents])
        mttp.step().end()

    assert ([name], 1) == ([agent.id for agent in only(session).agents], only(session).agents[0].length)
    assert all(carrier_text.isascii() and carrier_text.isprintable() for carrier_text in carrier.values())


def test_ids_longer_than_a_baggage_are_a_fault(session: mttp.Session) -> None:
    """
    The trace is propagated, and the episode is not.
    """
    with mttp.episode(id="x" * 5000):
        carrier = mttp.inject()

    assert {"traceparent"} == carrier.keys()
    assert not mttp.extract(carrier)
    assert {"carrier_invalid": 1} == dict(session.stats.faults)


def test_the_user_s_baggage_is_propagated(session: mttp.Session) -> None:
    """
    It is in the carrier and in the part's block; mttp's entries are in the carrier only.
    """
    token = otel_context.attach(baggage.set_baggage("tenant", "blue"))
    with mttp.episode():
        carrier = mttp.inject()
        assert {"tenant": "blue"} == dict(baggage.get_all())
    otel_context.detach(token)

    with mttp.extract(carrier):
        assert {"tenant": "blue"} == dict(baggage.get_all())
        assert carrier["baggage"].count("tenant=blue") == mttp.inject()["baggage"].count("tenant=blue") == 1
    assert {} == dict(baggage.get_all())


def test_large_user_baggage_does_not_displace_mttp_s_entries(session: mttp.Session) -> None:
    """
    A baggage has some eight kilobytes: the user's entries are dropped first.
    """
    context = otel_context.get_current()
    for number in range(20):
        context = baggage.set_baggage(f"k{number}", "x" * 1000, context)
    token = otel_context.attach(context)
    with mttp.episode():
        carrier = mttp.inject()
    otel_context.detach(token)

    with mttp.extract(carrier) as part:
        assert part


@pytest.mark.parametrize(
    "carrier",
    [
        {"traceparent": PARENT},
        {"traceparent": PARENT, "baggage": "tenant=blue"},
        {"traceparent": PARENT, "tracestate": "vendor=1", "baggage": ""},
        {"baggage": "tenant=blue"},
        {"unrelated": "x", "mttp.carrier.run_id": "x"},
    ],
)
def test_a_carrier_without_an_episode_is_not_a_fault(session: mttp.Session, carrier: dict[str, str]) -> None:
    """
    The handle is inert, and nothing is current.
    """
    with mttp.extract(carrier) as part:
        assert not mttp.current_episode()
        part.reward(1.0)

    assert not part
    assert ({}, 0) == (dict(session.stats.faults), session.stats.spans)


GOOD = {
    "run_id": "r",
    "root": "00f067aa0ba902b7",
    "next_index": "1",
}


def baggage_of(entries: dict[str, str]) -> str:
    return ",".join(f"{propagation.KEYS[name]}={value}" for name, value in entries.items())


BROKEN = [
    {"traceparent": "nonsense"},
    {"traceparent": ""},
    {"traceparent": PARENT.replace("00f067aa0ba902b7", "0" * 16)},
    {"traceparent": PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)},
    {"traceparent": PARENT + "0" * 10_000_000},
    {"traceparent": "ff" + PARENT[2:]},
    {"traceparent": 5},
    {"traceparent": None, "baggage": None},
    {"traceparent": PARENT, "baggage": "=,;"},
    {"traceparent": PARENT, "baggage": "x" * 10_000_000},
    {"baggage": baggage_of(GOOD)},
    {"traceparent": PARENT, "baggage": baggage_of({"run_id": "r"})},
    *(
        {"traceparent": PARENT, "baggage": baggage_of(GOOD | {"root": bad})}
        for bad in ("0" * 16, "x", "é", "F")
    ),
    *({"traceparent": PARENT, "baggage": baggage_of(GOOD | {"next_index": bad})} for bad in ("-1", "9" * 30)),
    {"traceparent": PARENT, "baggage": baggage_of(GOOD | {"run_id": ""})},
    {"traceparent": PARENT, "baggage": baggage_of(GOOD | {"step": GOOD["root"]})},
    {"traceparent": PARENT, "baggage": baggage_of(GOOD | {"step_index": "1"})},
    {"traceparent": PARENT, "baggage": baggage_of(GOOD | {"agent_id": "a"})},
    [("traceparent", PARENT), ("traceparent", PARENT.replace("4b", "4c"))],
    [1, 2],
    "text",
    7,
]


@pytest.mark.parametrize("carrier", BROKEN, ids=lambda carrier: str(carrier)[:80])
def test_a_malformed_carrier_is_one_fault(session: mttp.Session, carrier: Any) -> None:
    """
    The handle is inert, nothing is current, and nothing is recorded.
    """
    with mttp.extract(carrier) as part:
        assert not mttp.current_episode()
        part.step().reward(1.0)

    assert not part
    assert ({"carrier_invalid": 1}, 0) == (dict(session.stats.faults), session.stats.spans)


pieces = st.one_of(
    st.text(max_size=20),
    st.binary(max_size=20),
    st.none() | st.integers(),
    st.sampled_from([PARENT, baggage_of(GOOD), baggage_of(GOOD | {"step": "1", "agent": "2"})]),
)
odd_carriers = st.one_of(
    st.dictionaries(st.sampled_from(["traceparent", "Baggage", "tracestate", b"baggage"]) | pieces, pieces),
    st.lists(st.tuples(pieces, pieces)),
    pieces,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(odd_carriers)
def test_extract_never_raises(session: mttp.Session, carrier: Any) -> None:
    """
    Every carrier gives a handle and at most one fault, and leaves nothing current.
    """
    before = session.stats.faults.total()
    with mttp.extract(carrier) as part:
        part.reward(1.0)

    assert session.stats.faults.total() - before in (0, 1)
    assert not mttp.current_episode()


def test_extract_starts_an_implicit_session() -> None:
    """
    It does so in a process without `configure`, and only if the carrier names an episode.
    """
    with mttp.configure(transport="file://runs/"), mttp.episode():
        carrier = mttp.inject()
    mttp.recording.configuration.forget()
    assert not mttp.extract({"traceparent": PARENT})
    assert mttp.current_session() is None

    with mttp.extract(carrier):
        pass

    assert mttp.current_session() is not None


# A part of an episode.


def test_a_part_is_read_with_its_episode(session: mttp.Session) -> None:
    """
    Its steps follow, and its metrics and metadata are the episode's unless the root has them.
    """
    with mttp.episode(id="mine", env="e") as episode:
        with mttp.step() as step:
            step.reward(1.0)
        episode.metric("both", 1)
        carrier = mttp.inject()
    with mttp.extract(carrier) as part:
        assert part
        assert mttp.current_episode() is part
        assert (episode.id, episode.run_id, episode.trace_id) == (part.id, part.run_id, part.trace_id)
        with mttp.step() as step:
            step.action("a")
            step.reward(2.0)
            step.model_call("tiny").end()
        part.metric("both", 2)
        part.metric("latency", 3)
        part.set_metadata("host", "b")

    read = only(session)

    assert [(0, 1.0), (1, 2.0)] == [(step.index, step.reward) for step in read.steps]
    assert (3.0, "steps", 3.0, 2, 2) == (
        read.return_,
        read.return_basis,
        read.step_reward_sum,
        read.length,
        read.step_count,
    )
    assert ({"both": 1.0, "latency": 3.0}, {"host": "b"}) == (read.metrics, read.metadata)
    assert ((part.segment_id,), True) == (read.segments, read.complete)
    assert {"mine"} == {str(span.attributes["mttp.episode.id"]) for span in of_episode(session)}


def of_episode(session: mttp.Session) -> list[SpanRecord]:
    """Return the spans of episodes."""
    return [span for span in session.records() if "mttp.episode.id" in span.attributes]


def test_a_remote_reward_is_the_return(session: mttp.Session) -> None:
    """
    It counts if the process of the episode states no total.
    """
    with mttp.episode() as episode:
        with mttp.step() as step:
            step.reward(0.25)
        carrier = mttp.inject()
        with mttp.extract(carrier) as part:
            part.reward(None, status="abstained", grader="first")
            part.reward(0.9, components={f"part_{number}": 0.1 for number in range(40)}, grader="judge")
            part.reward(None, status="abstained", grader="last")
        episode.end(outcome="success")

    read = only(session)

    assert (0.9, "episode", 0.25, "judge") == (
        read.return_,
        read.return_basis,
        read.step_reward_sum,
        read.reward.grader,
    )
    assert (3, 40) == (len(read.rewards), len(read.reward.components))


def test_the_owner_s_total_has_precedence(session: mttp.Session) -> None:
    """
    The other process's scoring is kept.
    """
    with mttp.episode() as episode:
        episode.reward(0.5)
        carrier = mttp.inject()
    with mttp.extract(carrier) as part:
        part.reward(0.9)

    read = only(session)

    assert (0.5, 0.5, [0.5, 0.9]) == (
        read.return_,
        read.reward.value,
        [reward.value for reward in read.rewards],
    )


def test_a_step_can_be_scored_in_another_process(session: mttp.Session) -> None:
    """
    It can have calls there; its reward, observation and action can be recorded only by its owner.
    """
    with mttp.episode(), mttp.step() as step:
        carrier = mttp.inject()
        with mttp.extract(carrier) as part:
            remote = mttp.current_step()
            assert (step.span_id, 0) == (remote.span_id, remote.index)
            with remote:
                remote.reward(0.5, grader="judge")
                with remote.model_call("judge-1") as call:
                    call.response(output_tokens=3)
                remote.tool_call("left open")
                remote.observation("x")
                remote.action("x")
                remote.tokens([1])
                remote.record(logprob=-1.0)
                remote.metric("x", 1)
                remote.end(terminated=True)
            assert not mttp.current_step()
            part.final_observation("x")
            part.set_inputs(final="x")
            part.end(terminated=True, outcome="success", length=7)

    read = only(session)

    (found,) = read.steps
    assert [("judge", 0.5)] == [(reward.grader, reward.value) for reward in found.rewards]
    assert ["judge-1", "left open"] == [call.name for call in found.calls]
    assert (None, None, None, None, None) == (
        found.reward,
        found.observation,
        found.tokens,
        found.terminated,
        read.outcome if read.outcome != "unknown" else None,
    )
    assert ({"not_the_owner": 11}, 10) == (dict(session.stats.faults), len(read.faults))
    assert read.complete


def test_an_agent_continues_in_another_process(session: mttp.Session) -> None:
    """
    If it was current, steps and rewards of the other process are the agent's.
    """
    with mttp.episode() as episode, episode.agent("a") as agent:
        with mttp.step() as step:
            step.reward(1.0)
        with mttp.extract(mttp.inject()) as part:
            with mttp.step() as step:
                step.reward(2.0)
            with part.agent("b", policy="new"), mttp.step() as step:
                step.reward(5.0)
            part.agent("a").metric("x", 1)
            part.agent("a", policy="x").end(terminated=True)
            with mttp.step():
                pass
        agent.end(truncated=True)

    read = only(session)

    assert [(0, "a"), (0, "b"), (0, None), (1, "a")] == sorted(
        ((step.index, step.agent) for step in read.steps), key=lambda place: (place[0], place[1] or "~")
    )
    assert [("a", 3.0, 2, True), ("b", 5.0, 1, None)] == [
        (agent.id, agent.return_, agent.length, agent.truncated) for agent in read.agents
    ]
    assert 3 == session.stats.faults["not_the_owner"]
    assert (None, True) == (read.return_, read.complete)


def test_an_agent_can_be_scored_in_another_process(session: mttp.Session) -> None:
    """
    The total is the agent's return if its owner states none.
    """
    with mttp.episode() as episode, episode.agent("a"), mttp.step() as step:
        step.reward(1.0)
        with mttp.extract(mttp.inject()) as part:
            part.agent("a").reward(0.5, grader="judge")

    read = only(session)

    assert (0.5, "judge") == (read.agents[0].return_, read.agents[0].reward.grader)
    assert (None, ()) == (read.return_, read.rewards)


def test_an_invalid_remote_reward_leaves_the_return_unknown(session: mttp.Session) -> None:
    """
    A sum without one of its rewards is not the return.
    """
    with mttp.episode():
        with mttp.step() as step:
            step.reward(1.0)
        carrier = mttp.inject()
    with mttp.extract(carrier), mttp.step() as step:
        step.reward(float("nan"))

    assert (None, "steps", 1.0) == (
        only(session).return_,
        only(session).return_basis,
        only(session).step_reward_sum,
    )


def test_two_parts_may_use_one_index(session: mttp.Session) -> None:
    """
    Both steps are kept, in the order of their starts.
    """
    with mttp.episode():
        mttp.step().end()
        carrier = mttp.inject()
    for name in ("first", "second"):
        with mttp.extract(carrier), mttp.step() as step:
            step.action(name)

    read = only(session)

    assert [(0, None), (1, "first"), (1, "second")] == [(step.index, step.action) for step in read.steps]
    assert (2, 2) == (read.length, len(read.segments))


def test_a_part_can_be_continued_in_a_third_process(session: mttp.Session) -> None:
    """
    A process that continues an episode can inject it again.
    """
    with mttp.episode(), mttp.step():
        carrier = mttp.inject()
    with mttp.extract(carrier), mttp.extract(mttp.inject()) as inner, mttp.step():
        assert mttp.current_episode() is inner

    read = only(session)

    assert (2, [0, 1], True) == (len(read.segments), [step.index for step in read.steps], read.complete)


def test_a_part_that_does_not_end_is_a_fault() -> None:
    """
    The session counts it when it closes, and the episode is read as incomplete.
    """
    with mttp.configure(transport="memory://") as session:
        with mttp.episode():
            carrier = mttp.inject()
        part = mttp.extract(carrier)
        part.step().end()

    recording = mttp.read(session)
    (episode,) = recording.episodes
    assert (False, "completed", 1) == (episode.complete, episode.status, len(episode.steps))
    message = f"episode {episode.trace_id} lacks spans: the end of segment {part.segment_id} was not found"
    assert [message] == [str(problem) for problem in recording.problems]
    assert [message] == [str(problem) for problem in mttp.summarize(session).problems]
    assert 1 == session.stats.faults["part_never_ended"]


def test_a_part_with_missing_spans_is_a_problem(session: mttp.Session) -> None:
    """
    The problem names the part, whose span count shows what is missing.
    """
    with mttp.episode():
        carrier = mttp.inject()
    with mttp.extract(carrier) as part:
        mttp.step().end()
    kept = [span for span in session.records() if span.name != "step"]
    write("a.jsonl", kept)

    recording, summary = mttp.read("a.jsonl"), mttp.summarize("a.jsonl")

    assert [f"1 of 2 of segment {part.segment_id} were found"] == [
        str(problem).partition("lacks spans: ")[2] for problem in recording.problems
    ]
    assert recording.problems == summary.problems


def test_an_open_part_has_a_start_marker(session: mttp.Session) -> None:
    """
    If its process is killed before a span ends, the episode is read as incomplete.
    """
    with mttp.episode():
        carrier = mttp.inject()
    part = mttp.extract(carrier)
    session.flush()
    before = mttp.read(session).episodes[0].complete
    part.end()

    assert (False, True) == (before, only(session).complete)
    assert ["segment.start", "segment"] == [s.name for s in of_episode(session) if s.name.startswith("seg")]


def test_parts_without_their_root_are_an_unfinished_episode() -> None:
    """
    Its identity comes from the carrier.
    """
    with mttp.configure(transport="memory://"), mttp.episode(id="mine"), mttp.step():
        carrier = mttp.inject()
    with mttp.configure(transport="file://a.jsonl"), mttp.extract(carrier) as part:
        mttp.current_step().reward(0.5)
        mttp.step().end()
        part.reward(0.75)

    recording, summary = mttp.read("a.jsonl"), mttp.summarize("a.jsonl")

    (read,) = recording.episodes
    assert ("unfinished", "mine", part.run_id, part.trace_id, part.span_id, 0.75, 1) == (
        read.status,
        read.id,
        read.run_id,
        read.trace_id,
        read.span_id,
        read.reward.value,
        len(read.steps),
    )
    assert [f"episode {part.trace_id} has no end: 1 steps were found"] == list(map(str, recording.problems))
    assert recording.problems == summary.problems
    assert figures_of_values(recording) == figures(summary)


def test_an_ended_part_accepts_no_calls(session: mttp.Session) -> None:
    """
    Its end restores the outer context.
    """
    carrier = carrier_of_an_ended_episode(session)
    with mttp.episode() as around, mttp.extract(carrier) as part:
        part.end()
        assert mttp.current_episode() is around
        part.reward(1.0)
        part.step().end()

    assert 2 == session.stats.faults["after_end"]
    assert all(episode.complete for episode in mttp.read(session))


def test_an_exception_is_recorded_on_the_part_and_raised(session: mttp.Session) -> None:
    """
    The episode itself has no error.
    """
    carrier = carrier_of_an_ended_episode(session)
    with pytest.raises(KeyError), mttp.extract(carrier):
        raise KeyError("x")

    closing = next(span for span in session.records() if span.name == "segment")
    assert ("KeyError", "'x'") == (closing.attributes["error.type"], closing.status_message)
    assert ("completed", None, True) == (
        only(session).status,
        only(session).error_type,
        only(session).complete,
    )


def test_the_sampled_flag_is_propagated(session: mttp.Session) -> None:
    """
    The part's spans have the flag of the carrier.
    """
    carrier = carrier_of_an_ended_episode(session)
    carrier["traceparent"] = carrier["traceparent"][:-2] + "00"
    with mttp.extract(carrier) as part, mttp.step() as step:
        assert 0 == step.span.get_span_context().trace_flags == part.span.get_span_context().trace_flags


def test_a_handle_of_another_process_is_of_the_same_class(session: mttp.Session) -> None:
    """
    Its ids are those of the process that started it.
    """
    with mttp.episode() as episode, episode.agent("a") as agent, agent.step() as step:
        carrier = mttp.inject()
    with mttp.extract(carrier) as part:
        handles = part, part.agents[0], mttp.current_step()

    assert [(mttp.recording.RemoteEpisode, episode.span_id)] + [
        (type(own), own.span_id) for own in (agent, step)
    ] == [(type(handle), handle.span_id) for handle in handles]


def test_other_spans_are_children_of_the_carrier_s_span(session: mttp.Session) -> None:
    """
    The current span in the part's block is the one that the carrier names.
    """
    with mttp.episode(), mttp.step() as step:
        carrier = mttp.inject()
    with mttp.extract(carrier):
        ambient = trace.get_current_span().get_span_context()
        with mttp.step() as own:
            assert trace.get_current_span() is own.span

    assert (step.span_id, True) == (f"{ambient.span_id:016x}", ambient.is_remote)


def test_a_carrier_names_the_current_span_within_the_step(session: mttp.Session) -> None:
    """
    Another instrumentation's request span is the parent of the other process's spans; the step stays current.
    """
    with mttp.episode(), mttp.step() as step:
        mine = step.span.get_span_context()
        request = trace.SpanContext(mine.trace_id, 77, is_remote=False, trace_flags=mine.trace_flags)
        with trace.use_span(trace.NonRecordingSpan(request)):
            carrier = mttp.inject()
        foreign = trace.SpanContext(5, 77, is_remote=False, trace_flags=mine.trace_flags)
        with trace.use_span(trace.NonRecordingSpan(foreign)):
            assert step.span_id in mttp.inject()["traceparent"]
    with mttp.extract(carrier):
        assert 77 == trace.get_current_span().get_span_context().span_id
        mttp.current_step().reward(1.0)

    assert 1 == len(only(session).steps[0].rewards)


def shuffles(records: list[SpanRecord]) -> Iterator[list[SpanRecord]]:
    """Orders in which files of several processes may be read."""
    yield records
    yield records[::-1]
    for seed in range(8):
        shuffled = [*records, *random.Random(seed).sample(records, 5)]
        random.Random(seed).shuffle(shuffled)
        yield shuffled


def test_a_summary_of_parts_matches_the_values(session: mttp.Session) -> None:
    """
    Spans may come in any order, late, or more than once.
    """
    for number, owner, payer in itertools.product(range(2), ("nothing", "steps", "total"), range(5)):
        with mttp.episode(env="e") as episode:
            for _ in range(2):
                with mttp.step() as step:
                    if owner == "steps":
                        step.reward(0.5)
            with episode.agent("a").step() as step:
                step.reward(8.0)
            if owner == "total":
                episode.reward(3.0, components={"own": 1.0})
            elif number:
                episode.reward(None, components={"own": 0.5}, status="abstained")
            carrier = mttp.inject()
        for _ in range(payer % 3):
            with mttp.extract(carrier) as part:
                for _ in range(number * payer):
                    with mttp.step() as step:
                        step.reward(float("nan") if payer == 4 else 0.25)
                        step.tokens([1, 2])
                part.agent("a").step().end()
                if payer > 1:
                    part.reward(payer / 4, components={f"part_{index}": 0.1 for index in range(34)})
                elif number:
                    part.reward(None, components={"own": 0.25}, status="abstained")
    records = list(session.records())
    lacking = [span for index, span in enumerate(records) if index % 17 or span.name.startswith("run")]

    for index, kept in enumerate((*shuffles(records), *shuffles(lacking))):
        path = write(f"{index}.jsonl", kept, per_line=9)
        recording, summary = mttp.read(path), mttp.summarize(path)

        assert figures_of_values(recording) == figures(summary)
        assert sorted(map(str, recording.problems)) == sorted(map(str, summary.problems))
        assert recording.duplicates == summary.duplicates
        scores = [episode.reward.components for episode in recording]
        graders = {one.component: one for one in summary.graders if one.component and one.scope == "episode"}
        counts = {name: sum(name in one for one in scores) for name in graders}
        assert counts == {name: found.count for name, found in graders.items()}


# Threads and tasks of one process.


def test_bind_context_works_in_a_thread(session: mttp.Session) -> None:
    """
    A new thread has no context; with `bind_context` its steps belong to the episode.
    """

    def work() -> None:
        with mttp.step() as step:
            step.reward(1.0)

    with mttp.episode():
        bare = threading.Thread(target=work)
        carrier_of_an_ended_episode = threading.Thread(target=mttp.recording.bind_context(work))
        for thread in (bare, carrier_of_an_ended_episode):
            thread.start()
            thread.join()

    assert (1.0, ()) == (only(session).return_, only(session).segments)
    assert {"step_outside_episode": 1} == dict(session.stats.faults)


def test_bind_context_works_in_a_thread_pool(session: mttp.Session) -> None:
    """
    A bound function can run several times at once; each episode gets its own steps.
    """

    def work(number: int) -> str:
        with mttp.step() as step:
            step.reward(float(number))
        return mttp.current_episode().env

    with ThreadPoolExecutor(8) as pool:
        for env in ("a", "b"):
            with mttp.episode(env=env):
                assert {env} == set(pool.map(mttp.recording.bind_context(work), range(100)))

    assert [("a", 4950.0, 100), ("b", 4950.0, 100)] == [
        (episode.env, episode.return_, len({step.index for step in episode.steps}))
        for episode in mttp.read(session)
    ]


def test_bind_context_works_in_an_executor(session: mttp.Session) -> None:
    """
    `run_in_executor` takes a bound function; `to_thread` copies the context itself.
    """

    def work(reward: float) -> None:
        mttp.current_step().reward(reward)

    async def main() -> None:
        async with mttp.episode():
            for run in (
                functools.partial(asyncio.get_running_loop().run_in_executor, None),
                asyncio.to_thread,
            ):
                async with mttp.step():
                    await run(
                        mttp.recording.bind_context(work) if run is not asyncio.to_thread else work, 1.0
                    )

    asyncio.run(main())

    assert (2.0, {}) == (only(session).return_, dict(session.stats.faults))


def test_tasks_inherit_the_context(session: mttp.Session) -> None:
    """
    Nested, gathered or in a group, each step belongs to the episode of its task.
    """

    async def act(depth: int) -> None:
        async with mttp.step() as step:
            step.set_metadata("depth", depth)
            await asyncio.sleep(0)
            assert mttp.current_step() is step
            if depth:
                await asyncio.gather(*(asyncio.create_task(act(depth - 1)) for _ in range(2)))
            assert mttp.current_step() is step

    async def play(env: str) -> None:
        async with mttp.episode(env=env) as episode:
            await act(3)
            assert mttp.current_episode() is episode

    async def main() -> None:
        await asyncio.gather(*(play(str(number)) for number in range(4)))

    asyncio.run(main())

    assert [(15, True)] * 4 == [(len(episode.steps), episode.complete) for episode in mttp.read(session)]
    assert {} == dict(session.stats.faults)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="task groups came with Python 3.11")
def test_a_cancelled_task_does_not_affect_the_others(session: mttp.Session) -> None:
    """
    Its step has the status aborted, and nothing stays current.
    """

    async def act(fails: bool) -> None:
        async with mttp.step() as step:
            step.reward(1.0)
            await asyncio.sleep(0 if fails else 60)
            raise KeyError("x")

    async def play() -> None:
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
            for fails in (False, True, False):
                group.create_task(act(fails))

    async def main() -> None:
        async with mttp.episode():
            with pytest.raises(BaseExceptionGroup):  # noqa: F821 - it came with Python 3.11
                await play()
            assert not mttp.current_step()
        assert not mttp.current_episode()

    asyncio.run(main())

    read = only(session)
    assert [None, "KeyError", None] == [step.error_type for step in read.steps]
    assert (3.0, True) == (read.return_, read.complete)


def test_a_bound_coroutine_function_stays_one(session: mttp.Session) -> None:
    """
    It runs in the bound context, in any task.
    """

    async def act(reward: float) -> float:
        await asyncio.sleep(0)
        with mttp.step() as step:
            step.reward(reward)
        return reward

    async def main() -> None:
        with mttp.episode():
            acting = mttp.recording.bind_context(act)
        assert not mttp.current_episode()
        assert [0.0, 0.0] == await asyncio.gather(acting(0.0), asyncio.create_task(acting(0.0)))
        assert not mttp.current_episode()

    asyncio.run(main())

    assert {"after_end", "step_outside_episode"} >= set(session.stats.faults)
    assert only(session).complete


def module_level(number: int) -> int:
    """A function that can be pickled."""
    with mttp.step() as step:
        step.reward(float(number))
    return number + 1


async def module_level_coroutine(number: int) -> int:
    """A coroutine function that can be pickled."""
    return module_level(number)


def test_an_unpickled_bound_function_records_a_part(session: mttp.Session) -> None:
    """
    As in another process, the part is closed and written when the function returns.
    """
    with mttp.episode():
        carrier_of_an_ended_episode = pickle.dumps(mttp.recording.bind_context(module_level))
        coroutine = pickle.dumps(mttp.recording.bind_context(module_level_coroutine))
    assert 4 == pickle.loads(carrier_of_an_ended_episode)(3)
    assert 5 == asyncio.run(pickle.loads(coroutine)(4))

    assert 0 == session.stats.pending
    read = only(session)
    assert (7.0, 2, True) == (read.return_, len(read.segments), read.complete)


def test_extract_can_flush_at_the_end_of_the_block(session: mttp.Session) -> None:
    """
    A worker may be killed after its response; with `flush` its spans are written first.
    """
    carrier = carrier_of_an_ended_episode(session)
    with mttp.extract(carrier, flush=True), mttp.step() as step:
        step.reward(1.0)

    assert 0 == session.stats.pending
    assert (1.0, True) == (only(session).return_, only(session).complete)


def test_a_bound_function_can_be_pickled_only_if_the_function_can(session: mttp.Session) -> None:
    """
    Binding adds nothing that can't be pickled.
    """
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(mttp.recording.bind_context(lambda: None))


def test_a_bound_function_has_the_function_s_metadata() -> None:
    """
    Its name, documentation and `__wrapped__` are those of the function.
    """
    carrier_of_an_ended_episode = mttp.recording.bind_context(module_level)

    assert ("module_level", module_level.__doc__, module_level) == (
        carrier_of_an_ended_episode.__name__,
        carrier_of_an_ended_episode.__doc__,
        carrier_of_an_ended_episode.__wrapped__,  # type: ignore[attr-defined]
    )
    assert "module_level" in repr(carrier_of_an_ended_episode)


def test_without_an_episode_a_bound_function_only_runs(session: mttp.Session) -> None:
    """
    This holds here and after unpickling.
    """
    carrier_of_an_ended_episode = mttp.recording.bind_context(len)

    assert (
        3
        == carrier_of_an_ended_episode("abc")
        == pickle.loads(pickle.dumps(carrier_of_an_ended_episode))("abc")
    )
    assert ({}, 0) == (dict(session.stats.faults), session.stats.spans)


def test_a_subprocess_finds_the_episode_in_its_environment() -> None:
    """
    `mttp.extract()` reads the variables that `mttp.inject` wrote.
    """
    program = """
import mttp

with mttp.extract() as part, mttp.step() as step:
    step.action("there")
    part.reward(0.5)
"""
    with mttp.configure(transport="file://runs/"), mttp.episode(env="e"), mttp.step() as step:
        environment = {**os.environ, **mttp.inject(environment=True)}
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)
        step.action("here")

    recording = mttp.read("runs")
    (episode,) = recording.episodes
    assert (["here", "there"], 0.5, True) == (
        [step.action for step in episode.steps],
        episode.return_,
        episode.complete,
    )
    assert ([], {episode.run_id}) == (recording.problems, {run.id for run in recording.runs})


def test_an_episode_that_was_left_open_is_not_current_in_the_next_session() -> None:
    """
    Ctrl-C between the start and the end of a block leaves its episode in the context.
    """
    contextvars.copy_context().run(_left_open_and_next)


def _left_open_and_next() -> None:
    with mttp.configure("memory://") as first:
        mttp.episode(env="left").__enter__().step().__enter__()
    with mttp.configure("memory://") as second:
        found = (bool(mttp.current_episode()), bool(mttp.current_step()))
        with mttp.episode(env="next") as episode:
            inner = mttp.current_episode()
            with mttp.step() as step:
                step.reward(1.0)

    assert (False, False) == found
    assert inner is episode
    assert ["unfinished"] == [one.status for one in mttp.read(first).episodes]
    assert [1.0] == [step.reward for step in mttp.read(second).episodes[0].steps]

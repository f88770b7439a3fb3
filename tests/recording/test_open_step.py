"""A step and its span: every reader gets the same attributes."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode
from polling import eventually

import mttp
from mttp.codec.pending import TOKENS, encoded
from mttp.model import clock
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.span_records import record as span_record
from mttp.recording.trajectory import Trajectory
from mttp.semconv import attributes as a

IDS, LOGPROBS = list(range(5)), [-0.5, -1.0, -1.5, -2.0, -2.5]


def record_plain(step: mttp.recording.OpenStep) -> None:
    """Record a reward and tokens as Python values."""
    step.reward(0.5)
    step.tokens(ids=IDS, logprobs=np.array(LOGPROBS, np.float32), policy_version="7")


def record_numpy(step: mttp.recording.OpenStep) -> None:
    """Record the same reward and tokens as numpy values."""
    step.reward(np.float64(0.5))
    step.tokens(ids=np.array(IDS), logprobs=np.array(LOGPROBS, np.float32), policy_version=np.str_("7"))


def record_all(step: mttp.recording.OpenStep) -> None:
    """Record further kinds of facts."""
    record_plain(step)
    step.observation(np.arange(4, dtype=np.float32))
    step.action([1, 2])
    step.metric("searches", 2)
    step.record(value_estimate=0.25, terminated=True)
    step.span.set_attribute("mine", "x")
    step.span.add_event("happened", {"n": 1})


def comparable(attributes: Any) -> dict[str, Any]:
    """Return attributes as plain values."""
    listed = (tuple, np.ndarray)
    return {key: list(value) if isinstance(value, listed) else value for key, value in attributes.items()}


@pytest.mark.parametrize("record", [record_plain, record_numpy, record_all])
def test_processor_child_and_reading_agree(record: Any) -> None:
    """
    A span processor, a child span of the SDK and a reader get the same span.
    """
    exported, other = InMemorySpanExporter(), InMemorySpanExporter()
    plain = TracerProvider()
    plain.add_span_processor(SimpleSpanProcessor(other))
    with mttp.configure("memory://", processors=[SimpleSpanProcessor(exported)]) as session:
        with mttp.episode() as episode, episode.step() as step:
            record(step)
            live = dict(trace.get_current_span().attributes or {})  # type: ignore[attr-defined]
            with plain.get_tracer("x").start_as_current_span("child"):
                pass
        (kept,) = [one for one in session.records() if one.name == "step"]
        (read,) = mttp.read(session)

    (span,) = [one for one in exported.get_finished_spans() if one.name == "step"]
    (child,) = other.get_finished_spans()
    assert span.context is not None
    assert child.parent is not None
    assert (child.parent.span_id, child.parent.trace_id) == (span.context.span_id, span.context.trace_id)
    assert (kept.span_id, kept.trace_id) == (f"{span.context.span_id:016x}", f"{span.context.trace_id:032x}")
    assert comparable(kept.attributes) == comparable(span.attributes)
    assert comparable(live) == comparable(span.attributes)
    assert (0.5, IDS) == (read.steps[0].reward, list(read.steps[0].tokens.ids))
    assert (kept.start_time, kept.end_time) == (span.start_time, span.end_time)


def test_numpy_values_equal_python_values() -> None:
    """
    Both are recorded as equal steps.
    """
    found = []
    for record in (record_plain, record_numpy):
        with mttp.configure("memory://") as session:
            with mttp.episode(id="e") as episode, episode.step() as step:
                record(step)
            (read,) = mttp.read(session)
            assert {} == session.stats.faults
        found.append(read.steps)

    assert found[0] == found[1]


@pytest.mark.parametrize("reward", [0.5, float("nan"), None])
@pytest.mark.parametrize("facts", [{}, {"env": "walk", "inputs": {"answer": 4}}])
def test_an_implicit_end_equals_an_explicit_end(reward: Any, facts: Any) -> None:
    """
    A span processor, a reader and the handle agree.
    """
    ends: list[Any] = [lambda episode: None, lambda episode: episode.end()]
    exported, by_handle = InMemorySpanExporter(), []
    with mttp.configure("memory://", processors=[SimpleSpanProcessor(exported)]) as session:
        for end in ends:
            with mttp.episode(id="e", index=7, **facts) as episode:
                for _ in range(2):
                    with episode.step() as step:
                        step.reward(reward)
                end(episode)
            by_handle.append((episode.status, episode.outcome, episode.length, episode.return_))
        read = [
            replace(one, trace_id="", span_id="", start_time=0, end_time=0, steps=())
            for one in mttp.read(session)
        ]
        roots = [one.attributes for one in session.records() if one.name.startswith("episode")]

    spans = [span.attributes for span in exported.get_finished_spans() if span.name.startswith("episode")]
    assert by_handle[0] == by_handle[1]
    assert read[0] == read[1]
    assert comparable(roots[0]) == comparable(roots[1]) == comparable(spans[0]) == comparable(spans[1])


def test_a_step_has_one_span() -> None:
    """
    It is an OpenTelemetry span, and the current one in the step's block.
    """
    with mttp.configure("memory://"), mttp.episode() as episode, episode.step() as step:
        assert isinstance(step, mttp.recording.OpenStep)
        assert isinstance(step.span, (trace.Span, ReadableSpan))
        assert step.span is trace.get_current_span()
        assert step.span.is_recording()
        assert f"{step.span.get_span_context().span_id:016x}" == step.span_id
        assert step.span.get_span_context() is step.span.get_span_context()
    assert not step.span.is_recording()
    assert step.ended


def test_ending_the_span_ends_the_step() -> None:
    """
    The step's reward counts, and the end of the block is not a second end.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.step() as step:
            step.reward(1.0)
            trace.get_current_span().end()
            assert step.ended
        (read,) = mttp.read(session)

    assert (1.0, 1, {}) == (read.return_, len(read.steps), session.stats.faults)


def test_the_span_s_end_time_is_the_step_s() -> None:
    """
    The end of the episode doesn't change it.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            step = episode.step()
            started = step.span.start_time  # type: ignore[attr-defined]
            step.reward(1.0)
            step.span.end(started + 5)
            known = (step.ended, episode.length, episode.return_)
        (read,) = mttp.read(session)

    assert (True, 1, 1.0) == known
    assert [started + 5] == [found.end_time for found in read.steps]
    assert (1.0, True, {}) == (read.return_, read.complete, session.stats.faults)


def test_a_step_s_span_ends_once() -> None:
    """
    Ending the span after the step is a fault, and writes nothing.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            with episode.step() as step:
                step.reward(1.0)
            step.span.end()
        (read,) = mttp.read(session)

    assert (1, True, 1.0) == (len(read.steps), read.complete, read.return_)
    assert {"after_end": 1} == session.stats.faults
    assert 1 == [record.name for record in session.records()].count("step")


@pytest.mark.parametrize(
    "unusual",
    [
        lambda step: step.span.set_attribute("mine", 1),
        lambda step: step.span.set_attributes({"mine": 1}),
        lambda step: step.span.add_event("x"),
        lambda step: step.span.add_link(trace.SpanContext(1, 2, is_remote=False)),
        lambda step: step.span.record_exception(ValueError("x")),
        lambda step: step.observation("x"),
        lambda step: step.record(terminated=True),
        lambda step: step.reward(float("nan")),
        lambda step: step.set_metadata("x", {"y": 1}),
        lambda step: step.model_call("m").end(),
        lambda step: dict(step.span.attributes),
    ],
)
def test_every_kind_of_fact_is_read_back(unusual: Any) -> None:
    """
    Each fact is on the step that is read.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.step() as step:
            step.tokens(ids=IDS)
            unusual(step)
        (record,) = [one for one in session.records() if one.name == "step"]

    shown = step.span
    assert isinstance(shown, RecordingSpan)
    there = span_record(shown, dict)
    assert repr(comparable(there.attributes)) == repr(comparable(record.attributes))
    assert (list(there.events), list(there.links)) == (list(record.events), list(record.links))
    assert IDS == record.attributes[a.TOKEN_IDS].tolist()


def test_a_step_can_end_while_another_thread_encodes_it() -> None:
    """
    The other thread has encoded the tokens, and has not set the attributes yet.
    """
    with mttp.configure("memory://") as session, mttp.episode() as episode, episode.step() as step:
        step.tokens(ids=IDS)
        span = cast(RecordingSpan, step.span)
        assert span.has(TOKENS)
        span.encoded.update(encoded(span.encoded))  # as half way through `values`

    (found,) = mttp.read(session).episodes[0].steps
    assert found.tokens is not None
    assert IDS == found.tokens.ids.tolist()


class ReadByAnotherThread(RecordingSpan):
    """A span that another thread reads before each access to its attributes."""

    @property
    def encoded(self) -> dict[str, Any]:  # type: ignore[override]  # an attribute of other spans
        """The attributes."""
        attributes: dict[str, Any] = self.__dict__["encoded"]
        attributes.update(encoded(attributes))
        attributes.pop(TOKENS, None)
        return attributes


@pytest.mark.parametrize("by_block", [True, False])
def test_facts_are_kept_while_another_thread_reads_the_span(*, by_block: bool) -> None:
    """
    This holds for an end by call and by block, and for facts in between.
    """
    with mttp.configure("memory://") as session, mttp.episode() as episode:
        step = episode.step()
        cast(RecordingSpan, step.span).__class__ = ReadByAnotherThread
        for value in ([1], [2]):
            step.observation(value)
            step.action({"n": value})
        step.tokens(ids=IDS)
        if by_block:
            with step:
                pass
        else:
            step.end()

    (found,) = mttp.read(session).episodes[0].steps
    assert {} == session.stats.faults
    assert ([2], {"n": [2]}, IDS) == (found.observation, found.action, found.tokens.ids.tolist())


class Growing(dict[str, Any]):
    """Attributes that grow during an iteration, as another thread may cause."""

    def items(self) -> Any:
        """The names and values."""
        for number, pair in enumerate(super().items()):
            self[f"late.{number}"] = 1
            yield pair

    def values(self) -> Any:
        """The values."""
        for _, value in self.items():
            yield value


def test_a_step_accepts_facts_while_another_thread_reads_it() -> None:
    """
    Neither thread fails.
    """
    with mttp.configure("memory://") as session, mttp.episode() as episode, episode.step() as step:
        step.observation(1)
        span = cast(RecordingSpan, step.span)
        span.encoded = Growing(span.encoded)
        shown = span.attributes

    assert {} == session.stats.faults
    assert 1 == len(mttp.read(session).episodes[0].steps)
    assert shown is not None
    assert 1 == shown[a.OBSERVATION_VALUE]


def test_renaming_and_status_are_kept() -> None:
    """
    A span that was renamed, or has a status, is read back so.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.step() as step:
            step.span.set_status(Status(StatusCode.ERROR, "bad"))
            step.span.update_name("mine")
        (record,) = [one for one in session.records() if one.name == "mine"]

    assert (2, "bad") == (record.status_code, record.status_message)


def test_a_step_is_counted_once() -> None:
    """
    Two threads may end it at the same time.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            steps = [episode.step() for _ in range(200)]
            threads = [threading.Thread(target=lambda: [step.end() for step in steps]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        (read,) = mttp.read(session)

    assert (200, True) == (len(read.steps), read.step_count == 200)


@pytest.mark.parametrize("way", ["block", "call"])
@pytest.mark.parametrize("other", ["block", "call"])
def test_a_step_that_two_threads_end_is_kept(way: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The thread that comes first records it, even if it is interrupted.
    """
    ends = {"block": lambda step: step.__exit__(None, None, None), "call": lambda step: step.end()}

    def interrupted() -> int:
        monkeypatch.undo()
        ends[other](step)
        return clock.monotonic()

    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            step = episode.step().__enter__()
            step.reward(0.5)
            monkeypatch.setattr(clock, "monotonic", interrupted)
            ends[way](step)
        (read,) = mttp.read(session)

    assert (1, True, 0.5) == (len(read.steps), read.complete, read.return_)
    assert {} == dict(session.stats.faults)


def test_threads_share_an_episode() -> None:
    """
    Every step has its own index, and the counters are exact without a lock.
    """

    def play() -> None:
        for _ in range(300):
            with episode.step() as step:
                record_plain(step)

    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            threads = [threading.Thread(target=play) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        (read,) = mttp.read(session)

    assert list(range(2400)) == [step.index for step in read.steps]
    assert (2400, 2400) == (session.stats.steps, session.stats.steps)
    assert session.stats.recorded == session.stats.delivered


@pytest.mark.parametrize("by_block", [True, False])
def test_observations_and_actions_are_copied_and_sized(*, by_block: bool) -> None:
    """
    An image counts in the queue's size, later changes of it are not recorded, and flags are the episode's.
    """
    picture = np.zeros((100, 100), np.uint8)
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            step = episode.step()
            step.observation(picture)
            picture[:] = 7
            step.action(3)
            step.reward(np.float64(0.5))
            if by_block:
                with step:
                    pass
            else:
                step.end(terminated=True, truncated=False)
            step.reward(9.0)
        (read,) = mttp.read(session)

    (found,) = read.steps
    flags = {True: (None, None), False: (True, False)}[by_block]
    assert (0, 3, 0.5, "ok") == (found.observation.sum(), found.action, found.reward, found.reward_status)
    assert (flags, flags) == ((found.terminated, found.truncated), (read.terminated, read.truncated))
    assert len(step.span.frame()) >= picture.nbytes  # type: ignore[attr-defined]  # a span of mttp
    assert {"after_end": 1} == session.stats.faults


def test_a_step_that_starts_while_its_episode_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It has its index by then: it is counted, and recorded with its facts so far.
    """
    begin = Trajectory._begin

    def late(owner: Trajectory, index: int, start_time: int | None) -> mttp.recording.OpenStep:
        step = begin(owner, index, start_time)
        if index:
            other = threading.Thread(target=episode.end)
            other.start()
            other.join()
        return step

    monkeypatch.setattr(Trajectory, "_begin", late)
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            with episode.step() as first:
                first.reward(1.0)
            second = episode.step()
        (read,) = mttp.read(session)

    assert (True, 2, 2, [0, 1]) == (second.ended, read.length, read.step_count, [s.index for s in read.steps])


def test_indices_can_be_given() -> None:
    """
    The next step without an index follows the highest one, and all steps are counted.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            for index in (None, None, 7, None, 3, None):
                with episode.step(index=index) as step:
                    step.reward(1.0)
        (read,) = mttp.read(session)

    assert ([0, 1, 3, 7, 8, 9], 10, 6) == ([s.index for s in read.steps], read.length, read.step_count)
    assert 6 == session.stats.steps


@pytest.mark.parametrize("steps", ["spans", "auto", "packed"])
def test_episodes_do_not_wait_for_the_garbage_collector(steps: str, tmp_path: Path) -> None:
    """
    An ended episode has no reference cycle; only the memory transport keeps its spans.
    """
    with mttp.configure(f"file://{tmp_path}/a.jsonl") as session:
        with mttp.episode(steps=steps) as episode, episode.step() as step:
            step.reward(0.5)
        session.flush()
        known = weakref.ref(episode), weakref.ref(step)
        gc.disable()
        try:
            del episode, step
            assert eventually(lambda: [each() for each in known] == [None, None])
        finally:
            gc.enable()


def test_messages_of_a_call_are_recorded_once(session: mttp.Session) -> None:
    """
    Each step observes what is new in its request, and its call says which messages the request had.
    """
    messages = [{"role": "user", "content": "2+2?"}]
    with mttp.episode() as episode:
        for answer in ("5", "4"):
            with episode.step() as step, step.model_call("tiny", messages=messages) as call:
                call.result({"role": "assistant", "content": answer})
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "sure?"}]
    first, second = mttp.read(session).episodes[0].steps

    assert ([messages[0]], messages[1]) == (first.observation, first.action)
    assert ([messages[2]], messages[3]) == (second.observation, second.action)
    assert [(0, 1), (0, 3)] == [step.calls[0].history for step in (first, second)]
    assert [messages[2]] == second.calls[0].arguments
    assert {} == dict(session.stats.faults)


def test_messages_that_are_no_list_cost_only_themselves(session: mttp.Session) -> None:
    """
    The call and its answer are recorded.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.model_call("tiny", messages=7).result("4")  # type: ignore[arg-type]
    (call,) = mttp.read(session).episodes[0].steps[0].calls

    assert ("tiny", None, "4") == (call.name, call.arguments, call.result)
    assert {"messages_invalid": 1} == dict(session.stats.faults)


def test_messages_after_the_end_of_a_step_are_still_new(session: mttp.Session) -> None:
    """
    What was not recorded is recorded by the next request that has it.
    """
    messages = [{"role": "user", "content": "2+2?"}]
    with mttp.episode() as episode:
        ended = episode.step()
        ended.end()
        ended.model_call("tiny", messages=messages)
        with episode.step() as step:
            step.model_call("tiny", messages=messages).end()

    assert messages == mttp.read(session).episodes[0].steps[1].observation

"""Steps in columns read as steps with spans of their own."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from polling import eventually
from specimen import EVERYTHING, episodes

import mttp
from mttp.otlp import step_columns
from mttp.otlp.json_decode import decode_line
from mttp.reading.checking import check
from mttp.recording import configuration
from mttp.semconv import attributes as a
from mttp.testing import assert_same

OTHERWISE = ["trace_id", "id"]
"""What differs between two recordings of the same."""


def play(episode: mttp.recording.OpenEpisode, steps: int = 12) -> None:
    """Steps of which some say more than others."""
    for number in range(steps):
        with episode.step() as step:
            step.observation(np.full(4, number, np.float32))
            step.action(number % 2)
            step.reward(float(number) if number != 3 else float("nan"))
            step.metric("speed", number)
            if number % 4 == 1:
                step.set_metadata("note", {"at": [number]})
            if number % 5 == 2:
                step.observation(np.zeros((2, 2), np.uint8))
            step.record(terminated=number == steps - 1)


def recorded(steps: str, address: str = "memory://", run: Any = play, **options: Any) -> mttp.Recording:
    """What is read of an episode whose steps are written that way."""
    with (
        mttp.configure(transport=address, run_id="run", steps=steps, **options) as session,
        mttp.episode(env="toy") as episode,
    ):
        run(episode)
    found = mttp.read(session if address == "memory://" else address.removeprefix("file://"))
    configuration.forget()
    return found


def names(session: mttp.Session) -> list[str]:
    """The spans of episodes in a session's memory, in order of their end."""
    return [record.name for record in session.records() if a.EPISODE_ID in record.attributes]


def written(path: str) -> Counter[str]:
    """How many spans of each name a file holds."""
    spans = (span for line in Path(path).read_bytes().splitlines() for span in decode_line(line))
    return Counter(span.name for span in spans)


@pytest.mark.parametrize("address", ["memory://", "file://{}.jsonl", "file://{}.jsonl.gz"])
def test_packed_steps_read_as_steps_with_spans(address: str) -> None:
    """
    The episode is the same value, whichever way its steps were written, and nothing is missing.
    """
    apart = recorded("spans", address.format("spans"))

    packed = recorded("packed", address.format("packed"))

    assert_same(apart.episodes[0], packed.episodes[0], ignore=OTHERWISE)
    assert ([], True, 13) == (packed.problems, packed.episodes[0].complete, packed.episodes[0].span_count)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_tables_and_summary_are_those_of_spans(ending: str) -> None:
    """
    Figures and rows do not depend on how steps were written; only steps with spans have ids.
    """
    for steps in ("spans", "packed"):
        recorded(steps, f"file://{steps}.jsonl")
        if ending == "parquet":
            from mttp.reading import parquet, scan

            parquet.write(f"{steps}.parquet", scan(f"{steps}.jsonl", arrays=True))

    apart, packed = (mttp.read(f"{steps}.{ending}").tables.steps.arrow() for steps in ("spans", "packed"))
    figures = [mttp.summarize(f"{steps}.{ending}") for steps in ("spans", "packed")]
    own = ["trace_id", "span_id", "start_time", "end_time"]
    assert apart.drop_columns(own).equals(packed.drop_columns(own))
    assert [12] * 2 == [int(each.lengths[0]) for each in figures]
    assert figures[0].returns.tobytes() == figures[1].returns.tobytes()


def test_a_packed_recording_follows_the_convention() -> None:
    """
    A check finds nothing but the fault that the episode states.
    """
    recorded("packed", "file://packed.jsonl")

    assert {"recorded_fault"} >= set(check("packed.jsonl").ids)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(episodes())
def test_any_episode_reads_alike_packed_or_not(value: mttp.Episode) -> None:
    """
    Whatever can be said of an episode and its steps, finished episodes included.
    """
    found = []
    for steps in ("spans", "packed"):
        with mttp.configure(transport="memory://", run_id="run", steps=steps) as session:
            session.record(value)
        found.append(mttp.read(session).episodes[0])
        configuration.forget()

    assert_same(*found, ignore=OTHERWISE)


def test_what_columns_don_t_hold_has_a_span_of_its_own(session: mttp.Session) -> None:
    """
    Tokens, scorings, calls, events, errors, and a span whose id is known to the caller; others are packed.
    """
    with mttp.episode(steps="packed") as episode:
        for number in range(8):
            try:
                with episode.step() as step:
                    step.action(number)
                    says_more(step, number)
            except ValueError:
                pass

    assert 6 == names(session).count("step")
    assert 2 == names(session).count("steps")
    assert list(range(8)) == [step.index for step in mttp.read(session).episodes[0].steps]
    assert list(range(8)) == [step.action for step in mttp.read(session).episodes[0].steps]


def says_more(step: mttp.recording.OpenStep, number: int) -> None:
    """Each time something else that has to be, or to have, a span."""
    if number == 1:
        step.tokens(ids=[1], logprobs=[-0.5])
    elif number == 2:
        step.reward(1.0, components={"correct": 1.0})
    elif number == 3:
        step.tool_call("search").end()
    elif number == 4:
        step.span.add_event("seen")
    elif number == 5:
        raise ValueError("no")
    elif number == 6:
        trace.get_current_span().get_span_context()


def test_another_library_s_span_in_a_step_keeps_its_parent() -> None:
    """
    A step in which a span is started is a span itself.
    """
    with mttp.configure(transport="memory://", steps="packed") as session, mttp.episode() as episode:
        with episode.step(), trace.get_tracer("http").start_as_current_span("GET"):
            pass
        with episode.step():
            pass

    spans = {record.name: record for record in session.records()}
    assert spans["step"].span_id == spans["GET"].parent_id
    assert 1 == spans["steps"].attributes[a.STEPS_COUNT]


def test_long_episodes_are_packed_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    By default the steps after the first so many are packed; one with tokens is a span wherever it comes.
    """
    monkeypatch.setattr(step_columns, "SPAN_STEPS", 5)

    def run(episode: mttp.recording.OpenEpisode) -> None:
        play(episode)
        with episode.step() as step:
            step.tokens(ids=[1])
        play(episode)

    found, apart = recorded("auto", "file://auto.jsonl", run=run), recorded("spans", run=run)

    assert_same(apart.episodes[0], found.episodes[0], ignore=OTHERWISE)
    names = written("auto.jsonl")
    assert (5 + 1, 2, 1) == (names["step"], names["steps"], names["episode toy"])


def test_a_block_holds_a_thousand_steps(session: mttp.Session) -> None:
    """
    More are written in several.
    """
    with mttp.episode(steps="packed") as episode:
        for number in range(2500):
            with episode.step() as step:
                step.action(number)

    blocks = [record.attributes for record in session.records() if record.name == "steps"]
    assert sorted(blocks, key=lambda each: each[a.STEPS_FIRST_INDEX]) == blocks
    assert 2500 == sum(each[a.STEPS_COUNT] for each in blocks)
    assert all(each[a.STEPS_COUNT] <= 1000 for each in blocks)
    assert list(range(2500)) == [step.action for step in mttp.read(session).episodes[0].steps]
    assert 2500 == session.stats.steps


def test_large_observations_make_small_blocks(session: mttp.Session) -> None:
    """
    A span holds no more than half a megabyte, roughly.
    """
    with mttp.episode(steps="packed") as episode:
        for _ in range(10):
            with episode.step() as step:
                step.observation(np.zeros((300, 300), np.uint8))

    assert {1, 2, 3, 4, 5, 6} >= {
        record.attributes[a.STEPS_COUNT] for record in session.records() if record.name == "steps"
    }


def test_indices_with_gaps_and_out_of_order_are_kept(session: mttp.Session) -> None:
    """
    Steps that overlap, and such as state their index, are packed as far as they follow each other.
    """
    with mttp.episode(steps="packed") as episode:
        opened = [episode.step(index=index) for index in (4, 0, 1, 9, 5)]
        for step in reversed(opened):
            step.action(step.index)
            step.end()

    found = mttp.read(session).episodes[0]
    assert [(index, index) for index in (0, 1, 4, 5, 9)] == [
        (step.index, step.action) for step in found.steps
    ]
    assert found.complete


def test_agents_steps_are_packed_by_agent(session: mttp.Session) -> None:
    """
    Each agent's steps are its own, packed or not.
    """
    with mttp.episode(steps="packed") as episode:
        for number, name in itertools.product(range(3), ("white", "black")):
            with episode.agent(name).step() as step:
                step.reward(number if name == "white" else -number)

    found = mttp.read(session).episodes[0]
    assert [("white", 3, 3.0), ("black", 3, -3.0)] == [
        (agent.id, agent.length, agent.return_) for agent in found.agents
    ]
    assert {"white", "black"} == {step.agent for step in found.steps}
    assert 2 == names(session).count("steps")


def test_steps_of_a_remote_part_are_no_columns_of_the_episode() -> None:
    """
    Each part says how many spans it has, also where both are of one process.
    """
    with mttp.configure("memory://", steps="packed") as session:
        with mttp.episode() as episode:
            with episode.step():
                pass
            carrier: dict[str, str] = {}
            mttp.inject(carrier)
        with mttp.extract(carrier) as remote, remote.step():
            pass

    recording = mttp.read(session)

    assert [] == recording.problems
    assert [0, 1] == [step.index for step in recording.episodes[0].steps]


def test_content_that_is_off_is_off_in_columns_too() -> None:
    """
    What a transport may not have is not in a block either, and each step says so.
    """
    apart, packed = (recorded(steps, content=False).episodes[0] for steps in ("spans", "packed"))

    assert_same(apart, packed, ignore=OTHERWISE)
    assert packed.steps[0].omissions


class Onlooker(SpanProcessor):
    """Sees spans end."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_end(self, span: Any) -> None:
        """Take note of the name."""
        self.seen.append(span.name)


def test_span_processors_see_every_step() -> None:
    """
    With further span processors each step is a span, and they see what is recorded.
    """
    onlooker = Onlooker()

    found = recorded("packed", processors=[onlooker])

    assert 12 == onlooker.seen.count("step")
    assert "steps" not in onlooker.seen
    assert 13 == found.episodes[0].span_count


def test_an_open_episode_counts_packed_steps(session: mttp.Session) -> None:
    """
    Length and return are up to date before anything is written.
    """
    with mttp.episode(steps="packed") as episode:
        for _ in range(3):
            with episode.step() as step:
                step.reward(0.5)

        assert (3, 1.5) == (episode.length, episode.return_)


def test_a_way_that_there_is_not_is_refused() -> None:
    """
    `configure` says what there is; an episode counts a fault and does as the session does.
    """
    with pytest.raises(mttp.errors.ConfigureError, match="steps='dense' is not one of spans, packed, auto"):
        mttp.configure(transport="memory://", steps="dense")
    with (
        mttp.configure(transport="memory://") as session,
        mttp.episode(steps="dense") as episode,
        episode.step() as step,
    ):
        step.action(1)

    assert {"steps_invalid": 1} == session.stats.faults
    assert 1 == names(session).count("step")


def test_an_annotation_finds_a_packed_step_by_its_index(session: mttp.Session) -> None:
    """
    A packed step has no span that could be named; its index will do.
    """
    with mttp.episode(steps="packed") as episode:
        play(episode)
    found = mttp.read(session).episodes[0]

    mttp.annotate((found, found.steps[5]), "verdict", "good")
    mttp.annotate((found, 6), "verdict", "bad")

    steps = mttp.read(session).episodes[0].steps
    assert {5: "good", 6: "bad"} == {
        step.index: step.metadata["verdict"] for step in steps if "verdict" in step.metadata
    }


def test_threads_may_end_steps_of_one_episode(session: mttp.Session) -> None:
    """
    None is lost or written twice while others are handed on.
    """

    def some() -> None:
        for _ in range(300):
            with episode.step() as step:
                step.action(step.index)
            if step.index % 50 == 0:
                session.flush()

    with mttp.episode(steps="packed") as episode:
        threads = [threading.Thread(target=some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = mttp.read(session).episodes[0]
    assert list(range(1200)) == [step.action for step in found.steps]
    assert found.complete


def test_steps_that_gathered_are_written_by_a_flush(session: mttp.Session) -> None:
    """
    And by what is flushed several times a second: a killed process loses no more than with spans.
    """
    with mttp.episode(steps="packed") as episode:
        play(episode, steps=3)
        session.flush()
        written = [record.attributes[a.STEPS_COUNT] for record in session.records() if record.name == "steps"]
        play(episode, steps=2)

    assert [3] == written
    assert 5 == len(mttp.read(session).episodes[0].steps)


KILLED = """
import sys, time, mttp

mttp.configure(transport="file://a.jsonl", steps="packed")
episode = mttp.episode()
for number in range(7):
    with episode.step() as step:
        step.action(number)
print("played", flush=True)
time.sleep(60)
"""


def test_a_killed_process_leaves_the_steps_that_had_ended() -> None:
    """
    Even those of a block that was far from full.
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"played\n" == process.stdout.readline()
        eventually(lambda: b'"steps"' in Path("a.jsonl").read_bytes())
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

    (found,) = mttp.read("a.jsonl").episodes
    assert ("unfinished", 7) == (found.status, found.length)
    assert list(range(7)) == [step.action for step in found.steps]


def test_everything_comes_back_equal_where_steps_are_packed() -> None:
    """
    The law holds for an episode that uses every part of the vocabulary.
    """
    found = []
    for steps in ("spans", "packed"):
        with mttp.configure(transport=f"file://{steps}.jsonl", run_id="run", steps=steps) as session:
            session.record(EVERYTHING)
        assert not session.stats.lost
        found.append(mttp.read(f"{steps}.jsonl").episodes[0])
        configuration.forget()

    apart, packed = (
        replace(each, steps=tuple(sorted(each.steps, key=lambda step: (step.index, step.agent or ""))))
        for each in found
    )
    assert_same(apart, packed, ignore=["trace_id"])

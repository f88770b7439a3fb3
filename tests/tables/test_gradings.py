"""The results of graders, and what a summary counts, equal those of the values."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading.recorded_kinds import every_kind, every_way
from reading.traces import scattered, write
from released import FOLDER
from specimen import episodes as any_episodes

import mttp
from mttp.model.gradings import Grading, gradings
from mttp.model.scorings import Grade, Reward
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from mttp.tables import Database

TEXTS = ("run_id", "episode", "scope", "grader", "component", "status", "error_type", "verdict", "error")


def row(run_id: str, result: Grading) -> tuple[Any, ...]:
    """A result of a grader as a row, a score to 12 digits; NaN and infinities are in no mean."""
    value = None if result.value is None else f"{result.value:.12g}"
    facts = {**result._asdict(), "run_id": run_id}
    return (*(facts[name] for name in TEXTS), value, tuple(result.failed_checks), result.raised)


def of_values(recording: mttp.Recording) -> Iterator[tuple[Any, ...]]:
    """The results of the last scorings of episodes, agents and steps, and of all later scores."""
    for episode in recording.episodes:
        scored = [(episode.reward, "episode")] if episode.rewards else []
        scored += [(agent.reward, "agent") for agent in episode.agents if agent.rewards]
        scored += [(step.rewards[-1], "step") for step in episode.steps if step.rewards]
        for reward, scope in scored:
            for result in gradings(reward, scope=scope, episode=episode.trace_id):
                yield row(episode.run_id, result)
    for annotation in recording.annotations:
        if annotation.reward is not None:
            for result in gradings(annotation.reward, scope="late", episode=annotation.episode):
                yield row(annotation.run_id, result)


def of_table(source: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of the table of gradings."""
    query = "SELECT * FROM gradings"
    with Database(source) as database:
        database.prepare(query)
        for found in database.rows(query):
            value = None if found["value"] is None else f"{found['value']:.12g}"
            checks = tuple(found["failed_checks"] or ())
            yield (*(found[name] for name in TEXTS), value, checks, found["raised"])


def assert_equal(source: Any) -> None:
    """Check the results of graders of a source against its values."""
    assert Counter(of_values(mttp.read(source))) == Counter(of_table(source))


@pytest.fixture
def of_everything(session: mttp.Session) -> list[SpanRecord]:
    """Episodes that were recorded in every way."""
    return every_way(session)


@pytest.mark.parametrize("seed", range(12))
def test_results_of_graders_equal_the_values(of_everything: list[SpanRecord], seed: int) -> None:
    """
    In any order, in several files, with repeated spans, and without ends or markers.
    """
    assert_equal(scattered(of_everything, random.Random(seed), seed))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
@given(st.lists(any_episodes(), min_size=1, max_size=2))
def test_results_of_any_graders_equal_the_values(values: list[mttp.Episode]) -> None:
    """
    Whatever the components, statuses, checks, specs, agents and grades within grades.
    """
    with TemporaryDirectory() as directory:
        path = f"{directory}/a.jsonl"
        with mttp.configure(transport=f"file://{path}") as session:
            for value in values:
                session.record(value)

        assert_equal(path)


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*/*.jsonl")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_results_in_released_files_equal_the_values(path: Path) -> None:
    """
    Those that released versions wrote.
    """
    assert_equal(path)


def test_results_of_a_span_of_every_kind_equal_the_values(tmp_path: Path) -> None:
    """
    Included specs, relative scores, failed checks, and samples that made a batch raise.
    """
    assert_equal(write("kinds.jsonl", every_kind(tmp_path)))


@pytest.mark.parametrize("seed", range(4))
def test_a_summary_counts_what_the_values_have(of_everything: list[SpanRecord], seed: int) -> None:
    """
    Tokens, faults, what was left out, and invalid rewards of steps.
    """
    random.Random(seed).shuffle(of_everything)
    path = write("a.jsonl", [*of_everything, *of_everything[:9]])
    recording, summary = mttp.read(path), mttp.summarize(path)
    steps = [step for episode in recording for step in episode.steps]
    tokens = [step.tokens for step in steps if step.tokens is not None]
    calls = [call for step in steps for call in step.calls]
    agents = [agent for episode in recording for agent in episode.agents]
    values: list[Any] = [*recording, *agents, *steps, *recording.runs]
    values += [*recording.groups, *recording.updates, *recording.annotations]

    faults = Counter(fault.partition(":")[0] for value in values for fault in value.faults)
    omissions = Counter(
        each.partition(":")[0] for value in values for each in getattr(value, "omissions", ())
    )
    invalid = [step for step in steps if step.reward_status == "error" and not step.rewards]

    assert (sum(block.prompt_count or 0 for block in tokens), sum(block.count or 0 for block in tokens)) == (
        summary.prompt_tokens,
        summary.completion_tokens,
    )
    assert sum(call.input_tokens or 0 for call in calls) == summary.call_input_tokens
    assert sum(call.output_tokens or 0 for call in calls) == summary.call_output_tokens
    assert (dict(faults), dict(omissions)) == (summary.faults, summary.omissions)
    assert sum(step.reward is None for step in invalid) == summary.invalid_step_rewards
    assert 9 == summary.duplicates


def test_awkward_scorings_equal_the_values(session: mttp.Session) -> None:
    """
    Steps that are scored twice, relative scores, samples that made a batch raise, and components with a score
    and a status.
    """
    spared, raised = (
        Grade(
            name=name, kind="check", status="error", error="no", evidence={"batch": {"row": row, "raised": 1}}
        )
        for row, name in enumerate(("spared", "raised"))
    )
    relative = Grade(name="rank", kind="judge", value=2.0, relative=True)
    reward = Reward(value=1.0, status="partial", grades=(raised, spared, relative), components={"y": 1.0})
    twice = tuple(
        Reward(value=value, status="ok", grader="a", start_time=time, end_time=time)
        for time, value in ((10, 1.0), (20, 0.5))
    )
    step = mttp.Step(index=0, rewards=twice, start_time=5, end_time=30)
    session.record(
        mttp.Episode(id="graded", env="e", rewards=(reward,), reward=reward, steps=(step,), length=1)
    )
    spans = list(session.records())
    (scoring,) = (span for span in spans if f"{a.REWARD_SCORE}.y" in span.attributes)
    both = replace(scoring, attributes={**scoring.attributes, f"{a.REWARD_SCORE_STATUS}.y": "error"})
    path = write("a.jsonl", [both if span is scoring else span for span in spans])

    results = Counter(of_table(path))

    assert_equal(path)
    failed = {(each[4], each[-1]) for each in results if each[5] == "error"}
    assert {("raised", True), ("spared", False)} == failed
    assert [None] == [each[9] for each in results if each[4] == "rank"]
    assert ["0.5"] == [each[9] for each in results if each[3] == "a"]
    assert ["ok"] == [each[5] for each in results if each[4] == "y"]

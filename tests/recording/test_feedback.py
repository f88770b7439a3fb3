"""Scores, labels, preferences and other annotations."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specimen import finite, int64s, names, optional, plain, texts

import mttp
from mttp import Reward
from mttp.codec.plain import name_key
from mttp.model import Annotation
from mttp.model.values import differences
from mttp.recording import configuration

TRACE, OTHER = "ab" * 16, "cd" * 16
SPAN = "12" * 8


def play(reward: object = None, steps: int = 1, **facts: Any) -> mttp.recording.OpenEpisode:
    """Record an episode and return its handle."""
    with mttp.episode(**facts) as episode:
        for _ in range(steps):
            episode.step().end()
        if reward is not None:
            episode.reward(reward)
    return episode


def annotations(session: mttp.Session) -> list[Annotation]:
    """Return the recorded annotations, in order."""
    return mttp.read(session).annotations


def test_a_score_is_a_whole_scoring(session: mttp.Session):
    """
    It has the arguments of `episode.reward`.
    """
    mttp.score(
        TRACE,
        0.75,
        grader="judge",
        grader_kind="judge",
        grader_version="2",
        explanation="fine",
        label="good",
        components={"a": 1.0, "b/c": 0.5, **{f"part_{i}": 0.0 for i in range(40)}},
        weights={"a": 0.5, "b/c": 0.5},
        range=(0, 1),
        spec=mttp.model.Spec(name="math", version="1"),
        verdict="pass",
        failed_checks=["leak"],
        relative=True,
        revision=3,
        time=1_000,
    )

    (found,) = annotations(session)
    reward = Reward(
        value=0.75,
        components={"a": 1.0, "b/c": 0.5, **{f"part_{i}": 0.0 for i in range(40)}},
        weights={"a": 0.5, "b/c": 0.5},
        range=(0.0, 1.0),
        spec=mttp.model.Spec(name="math", version="1"),
        verdict="pass",
        failed_checks=("leak",),
        relative=True,
        grader="judge",
        grader_kind="judge",
        grader_version="2",
        explanation="fine",
        label="good",
    )
    expected = Annotation(
        kind="score",
        key="score",
        value=0.75,
        episode=TRACE,
        by="judge",
        revision=3,
        reward=reward,
        explanation="fine",
        run_id=session.run_id,
    )
    assert [] == differences(expected, found)
    assert found.reward is not None
    assert [] == differences(reward, found.reward)
    assert (1_000, 2_000) == (found.start_time, found.end_time)


def test_grades_and_calls_of_a_score_have_its_time(session: mttp.Session):
    """
    By default; a later start of their own stays.
    """
    later = mttp.model.Grade(name="later", kind="judge", value=1.0, start_time=5_000)
    graded = mttp.model.Grade(name="graded", kind="judge", value=1.0)
    reward = Reward(value=1.0, grader="judge", grades=(graded, later))

    mttp.score(TRACE, reward, calls=[mttp.model.Call(operation="chat", name="m")], time=1_000)

    times = {record.name: (record.start_time, record.end_time) for record in session.records()}
    assert (1_000, 2_000) == times["chat m"]
    assert (1_000, 2_000) == times["grade graded"]
    assert (5_000, 6_000) == times["grade later"]
    assert not session.stats.faults


@pytest.mark.parametrize("value", [math.nan, math.inf, "0.5", [1, 2], object])
def test_a_score_that_is_not_a_number_is_an_error(session: mttp.Session, value: object):
    """
    Its text is kept, and it is never zero.
    """
    mttp.score(TRACE, value, grader="judge")

    (found,) = annotations(session)
    assert found.reward is not None
    assert (None, "error", None) == (found.value, found.reward.status, found.reward.value)
    assert found.reward.raw is not None
    assert {"reward_invalid": 1} == dict(session.stats.faults)
    assert 1 == len(found.faults)


def test_a_grader_may_abstain(session: mttp.Session):
    """
    An abstained score is recorded.
    """
    mttp.score(TRACE, None, grader="judge", status="abstained")

    assert "abstained" == annotations(session)[0].reward.status  # type: ignore[union-attr]  # it is a score


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (lambda ep, step: ep, (None, "")),
        (lambda ep, step: ep.trace_id, (None, "")),
        (lambda ep, step: ep.trace_id.upper(), (None, "")),
        (lambda ep, step: mttp.Episode(trace_id=ep.trace_id), (None, "")),
        (lambda ep, step: step, (0, "span")),
        (lambda ep, step: (ep, 0), (0, "")),
        (lambda ep, step: (ep.trace_id, np.int32(0)), (0, "")),
        (lambda ep, step: [ep.trace_id, step.span_id], (None, "span")),
        (lambda ep, step: (mttp.Episode(trace_id=ep.trace_id), mttp.Step(index=0)), (0, "")),
        (lambda ep, step: (ep, step), (0, "span")),
    ],
)
def test_targets(session: mttp.Session, target: Callable[..., object], expected: tuple[int | None, str]):
    """
    A target is an episode or step by its handle, its value or its ids.
    """
    with mttp.episode() as episode:
        step = episode.step()

    mttp.annotate(target(episode, step), "label", "good")

    (found,) = annotations(session)
    index, span = expected
    assert (episode.trace_id, index, step.span_id if span else "") == (
        found.episode,
        found.step,
        found.step_span_id,
    )
    assert {} == dict(session.stats.faults)


def test_an_annotation_links_to_its_target(session: mttp.Session):
    """
    A bare trace id gives no link.
    """
    with mttp.episode() as episode:
        step = episode.step()
    for target in (episode, step, episode.trace_id):
        mttp.score(target, 1.0)

    links = [
        [(link.trace_id, link.span_id) for link in record.links]
        for record in session.records()
        if record.name == "annotate"
    ]
    assert [[(episode.trace_id, episode.span_id)], [(episode.trace_id, step.span_id)], []] == links


@pytest.mark.parametrize(
    "target",
    [
        *(None, 42, "", "abc", "0" * 32, "g" * 32, mttp.Episode(), mttp.Step()),
        *((TRACE,), (TRACE, -1), (TRACE, True), (TRACE, "abc"), (TRACE, 1.5), (None, 1)),
    ],
    ids=repr,
)
def test_a_malformed_target_is_a_fault(session: mttp.Session, target: object):
    """
    Nothing is recorded or raised.
    """
    mttp.score(target, 1.0)
    mttp.annotate(target, "outcome", "success")
    mttp.prefer(target, TRACE)

    assert ({"target_invalid": 3}, []) == (dict(session.stats.faults), annotations(session))


def test_a_preference_compares_episodes(session: mttp.Session):
    """
    One or several are rejected; other objects are faults.
    """
    chosen, worse = play(), play()
    mttp.prefer(chosen, worse, by="me", explanation="shorter")
    mttp.prefer(TRACE, [worse, worse.trace_id, OTHER, "xyz"])
    mttp.prefer(TRACE, (TRACE, OTHER))
    mttp.prefer((TRACE, 1), OTHER)
    mttp.prefer(TRACE, [(OTHER, 1)])
    mttp.prefer(TRACE, [])

    first, second = annotations(session)
    assert ("preference", "me", "shorter", chosen.trace_id, (worse.trace_id,)) == (
        first.kind,
        first.by,
        first.explanation,
        first.episode,
        first.rejected,
    )
    assert ((worse.trace_id, OTHER), None) == (second.rejected, second.value)
    assert {"annotation_invalid": 4, "target_invalid": 1} == dict(session.stats.faults)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("", 1, "annotation_invalid"),
        ("preference", TRACE, "annotation_invalid"),
        ("label", None, "annotation_invalid"),
        ("topic", None, "annotation_invalid"),
        (np.zeros(2), None, "annotation_invalid"),
        ("outcome", "maybe", "outcome_invalid"),
        ("outcome", True, "outcome_invalid"),
        ("advantage", "high", "advantage_invalid"),
        ("topic", object(), "kept_as_text"),
        ("topic", 2**70, "int_out_of_range"),
    ],
)
def test_an_invalid_fact_is_a_fault(session: mttp.Session, key: str, value: object, fault: str):
    """
    Its text is kept if it has any.
    """
    mttp.annotate(TRACE, key, value)

    assert {fault: 1} == dict(session.stats.faults)
    assert (fault == "annotation_invalid") == (not annotations(session))


def test_a_wrong_revision_or_time_is_replaced(session: mttp.Session):
    """
    The current time replaces it.
    """
    before = time.time_ns()
    mttp.score(TRACE, 1, revision="new", time=-4)  # type: ignore[arg-type]  # what users do

    (found,) = annotations(session)
    assert before <= found.revision == found.start_time
    assert {"revision_invalid": 1, "time_invalid": 1} == dict(session.stats.faults)


def test_revisions_increase(session: mttp.Session):
    """
    Each default revision is greater than the last; a given `time` is the revision.
    """
    for _ in range(200):
        mttp.score(TRACE, 1.0)
    mttp.score(TRACE, 1.0, time=5)

    revisions = [found.revision for found in annotations(session)]
    assert 5 == revisions[0]
    assert sorted(set(revisions)) == revisions


def test_without_a_session_annotations_do_nothing():
    """
    There is not even a fault.
    """
    mttp.configure("memory://").close()

    assert [None, None, None] == [
        mttp.score("x", 1),  # type: ignore[func-returns-value]  # that it is None is the point
        mttp.annotate("x", "label", "y"),  # type: ignore[func-returns-value]
        mttp.prefer("x", "y"),  # type: ignore[func-returns-value]
    ]


class Hostile:
    """An object that raises at every access."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("str")


def test_hostile_arguments_are_faults(session: mttp.Session):
    """
    Objects that raise at every access never reach the caller.
    """
    odd: Any = Hostile()
    mttp.score(odd, odd)
    mttp.score(TRACE, odd, components=odd, failed_checks=odd, grader=odd, revision=odd)
    mttp.annotate(TRACE, odd, odd, by=odd)
    mttp.annotate(TRACE, "topic", odd)
    mttp.prefer(TRACE, odd)

    assert session.stats.faults


def test_another_process_can_score_later():
    """
    Its annotation is merged into the episode of the first process.
    """
    with mttp.configure("file://runs/"):
        episode = play(0.0)
    program = (
        "import mttp, sys\nwith mttp.configure('file://runs/', run='review'): mttp.score(sys.argv[1], 1)"
    )
    subprocess.run([sys.executable, "-c", program, episode.trace_id], check=True)

    found = mttp.read("runs/")
    assert (1.0, 0.0, []) == (
        found.episodes[0].scores[""].value,
        found.episodes[0].reward.value,
        found.problems,
    )
    assert found.annotations[0].run_id == next(run.id for run in found.runs if run.name == "review")


@pytest.mark.parametrize("file", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_second_session_scores_into_the_same_file(file: str):
    """
    The annotation is appended to a plain or compressed file.
    """
    with mttp.configure(f"file://{file}"):
        episode = play()
    with mttp.configure(f"file://{file}"):
        mttp.score(episode, 0.5)

    (found,) = mttp.read(file).episodes
    assert (0.5, 1) == (found.reward.value, len(found.annotations))


def test_an_open_episode_can_be_scored(session: mttp.Session):
    """
    It can be scored before and after its end.
    """
    with mttp.episode() as episode, episode.step() as step:
        mttp.score(step, 0.25, grader="a")
        mttp.score(episode, 0.5, grader="a")
    mttp.score(episode, 0.75, grader="a")

    (found,) = mttp.read(session).episodes
    assert (0.75, 0.25, 2) == (
        found.scores["a"].value,
        found.steps[0].scores["a"].value,
        len(found.annotations),
    )
    assert found.complete


# Round trips.

trace_ids = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
steps = st.integers(0, 2**40) | st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")
own_names = names.filter(
    lambda name: name not in ("score", "outcome", "advantage", "label", "comment", "preference")
)


@st.composite
def statements(draw: st.DrawFn) -> tuple[Callable[..., None], dict[str, Any], Annotation]:
    """Strategy for a call, its arguments, and the annotation that is read back."""
    common = {
        "by": draw(optional(texts)),
        "explanation": draw(optional(texts)),
        "revision": draw(int64s),
        "time": draw(st.integers(0, 2**62)),
    }
    trace_id, step = draw(trace_ids), draw(optional(steps))
    about = Annotation(
        episode=trace_id,
        step=step if isinstance(step, int) else None,
        step_span_id=step if isinstance(step, str) else "",
        by=common["by"],
        explanation=common["explanation"],
        revision=common["revision"],
    )
    where = {"target": trace_id if step is None else (trace_id, step)}
    kind = draw(st.sampled_from(["score", "outcome", "advantage", "label", "comment", "fact", "preference"]))
    if kind == "score":
        components = draw(st.dictionaries(names, finite, max_size=40))
        value = draw(optional(finite))
        reward = Reward(
            value=value,
            components=components,
            explanation=common["explanation"],
            grader=draw(optional(texts)),
        )
        about = replace(about, by=reward.grader if about.by is None else about.by)
        facts = {"value": value, "components": components, "grader": reward.grader}
        return (
            mttp.score,
            common | where | facts,
            replace(about, kind=kind, key=kind, value=value, reward=reward),
        )
    if kind == "preference":
        rejected = draw(st.lists(trace_ids.filter(lambda other: other != trace_id), min_size=1, unique=True))
        about = replace(about, step=None, step_span_id="", rejected=tuple(rejected))
        return (
            mttp.prefer,
            common | {"chosen": trace_id, "rejected": rejected},
            replace(about, kind=kind, key=kind),
        )
    values = {
        "outcome": st.sampled_from(["success", "failure", "unknown"]),
        "advantage": st.floats(),
        "fact": plain.filter(lambda value: value is not None),
    }
    key = draw(own_names) if kind == "fact" else kind
    value = draw(values.get(kind, texts))
    return (
        mttp.annotate,
        common | where | {"key": key, "value": value},
        replace(about, kind=kind, key=key, value=value),
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(statements())
def test_annotations_round_trip_through_memory_and_file(
    statement: tuple[Callable[..., None], dict[str, Any], Annotation],
):
    """
    Annotations without faults are read back equal.
    """
    state, arguments, expected = statement
    with TemporaryDirectory() as directory:
        for transport in ("memory://", f"file://{directory}/a.jsonl"):
            with mttp.configure(transport) as session:
                state(**arguments)
            found = mttp.read(session if transport == "memory://" else transport).annotations
            configuration.forget()

            assert {} == dict(session.stats.faults)
            assert [] == differences(replace(expected, run_id=session.run_id), found[0])


def test_a_fact_s_name_is_normalized(session: mttp.Session):
    """
    It has lower-case letters, digits and underscores.
    """
    mttp.annotate(TRACE, "My Topic", "a")

    assert name_key("My Topic") == "my_topic" == annotations(session)[0].key


def test_annotations_survive_parquet(tmp_path: Path):
    """
    Groups, updates and annotations are equal after a conversion.
    """
    parquet = pytest.importorskip("mttp.reading.parquet")
    pytest.importorskip("pyarrow")
    with mttp.configure("file://a.jsonl"):
        episode = play(1.0, group="g")
        group = mttp.group(None, [episode], normalization="none", metadata={"a": [1]})
        mttp.update(groups=[group], discarded={"stale": 2}, loss=math.nan, episodes=[TRACE])
        mttp.score(episode, 0.5, components={"a": 1.0}, label="x")
        mttp.annotate((episode, 0), "topic", {"deep": [1, None, "x"]})
        mttp.annotate(episode, "flag", True)
        mttp.prefer(episode, TRACE)
    parquet.write("a.parquet", mttp.scan("a.jsonl", arrays=True))

    one, other = mttp.read("a.jsonl"), mttp.read("a.parquet")
    assert (one.groups, one.updates, one.annotations) == (other.groups, other.updates, other.annotations)
    assert [found.annotations for found in one] == [found.annotations for found in other]
    assert (1, 1, 4) == (len(one.groups), len(one.updates), len(one.annotations))


@pytest.mark.parametrize("place", ["memory://", "file://run.jsonl"])
@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_numbers_of_several_steps_are_one_annotation(place: str, steps: str):
    """
    Numbers that a trainer computes after a rollout are one span, and are read on the steps.
    """
    with mttp.configure(place, steps=steps) as session:
        episode = play(steps=5)
        advantages = np.array([0.5, -1.25, 2.0], np.float32)
        returns = [1.0, math.nan, 3.0]
        mttp.annotate((episode, 1), "steps", {"advantage": advantages, "return_target": returns}, by="ppo")

    found = mttp.read(session)
    (annotation,) = found.annotations
    numbers = [(step.advantage, step.return_target) for step in found.episodes[0].steps]
    assert [(None, None), (0.5, 1.0), (-1.25, None), (2.0, 3.0), (None, None)] == numbers
    assert [] == found.problems
    assert ("steps", 1, "ppo") == (annotation.kind, annotation.step, annotation.by)


def test_numbers_of_steps_round_trip(session: mttp.Session):
    """
    The annotation has NaN for steps without a number.
    """
    episode = play(steps=2)
    numbers = {"advantage": np.array([1.0, math.nan]), "logprob": np.array([-0.5, -0.25])}

    mttp.annotate((episode, 0), "steps", numbers)

    expected = Annotation(
        kind="steps", key="steps", step=0, value=numbers, episode=episode.trace_id, run_id=session.run_id
    )
    (found,) = annotations(session)
    assert [] == differences(expected, replace(found, revision=0))


def test_the_highest_revision_of_a_step_s_number_counts(session: mttp.Session):
    """
    It has precedence over the step's own number, which is kept.
    """
    with mttp.episode() as episode, episode.step() as step:
        step.record(value_estimate=0.5)
    mttp.annotate((episode, 0), "steps", {"value_estimate": [2.0]}, revision=2)
    mttp.annotate((episode, 0), "steps", {"value_estimate": [1.0]}, revision=1)

    (found,) = mttp.read(session).episodes[0].steps

    assert (2.0, {"mttp.step.value_estimate": 0.5}) == (found.value_estimate, found.extra)


@pytest.mark.parametrize(
    ("target", "numbers"),
    [
        (TRACE, {"advantage": [1.0]}),
        ((TRACE, 0), {"advantage": [1.0], "logprob": [1.0, 2.0]}),
        ((TRACE, 0), {"advantage": [[1.0]]}),
        ((TRACE, 0), {"advantage": []}),
        ((TRACE, 0), {"advantage": ["much"]}),
        ((TRACE, 0), {"advantage": object()}),
        ((TRACE, 0), [1.0]),
        ((TRACE, 0), {"mood": [1.0]}),
    ],
)
def test_invalid_numbers_of_steps_are_faults(session: mttp.Session, target: Any, numbers: Any):
    """
    They are not recorded, and nothing is raised.
    """
    mttp.annotate(target, "steps", numbers)

    assert [] == annotations(session)
    assert {"annotation_invalid": 1} == dict(session.stats.faults)


def test_a_number_of_a_step_that_does_not_exist_is_a_problem(session: mttp.Session):
    """
    The numbers of existing steps are merged.
    """
    episode = play(steps=1)
    mttp.annotate((episode, 0), "steps", {"advantage": [1.0, 2.0, 3.0]})

    found = mttp.read(session)

    assert [1.0] == [step.advantage for step in found.episodes[0].steps]
    (problem,) = found.problems
    assert ("unknown_target", True) == (problem.kind, "2 of the steps from 0 on" in problem.message)


def test_a_late_score_with_components_follows_the_convention() -> None:
    """
    Its grades and their calls are of no open episode, and have no episode id.
    """

    @mttp.rewards.verifier(range=(0, 1))
    def right(completion: str) -> bool:
        return completion == "a"

    spec = mttp.RewardSpec(name="s", version="1.0.0", inputs={"completion": "string"}, components=[right])
    with mttp.configure("file://late.jsonl"):
        with mttp.episode() as episode, episode.step() as step:
            step.action("a")
        mttp.score(episode, spec.score(completion="a"))

    assert mttp.check("late.jsonl").all == []


def test_what_has_no_duration_lasts_a_microsecond() -> None:
    """
    Jaeger warns of a span that ends when it starts, and moves its end; a time that is given stays.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode(env="toy") as episode:
            session.flush()  # writes the markers of what is open
        mttp.annotate(episode, "topic", "sums", time=5_000)
        mttp.score(episode, {"a": 1.0}, grader="judge", time=7_000)
        mttp.update(1, episodes=[episode])
        session.record(mttp.Episode(env="toy", steps=(mttp.Step(reward=1.0),)))
        session.record(mttp.Episode(env="toy", start_time=9_000, end_time=9_000))
    spans = list(session.transports[0].records())
    given, others = [], []
    for span in spans:
        (given if span.start_time < 10_000 else others).append(span)

    assert [] == [span.name for span in others if span.end_time - span.start_time < 1000]
    assert {(5_000, 6_000), (7_000, 8_000), (9_000, 9_000)} == {
        (span.start_time, span.end_time) for span in given
    }
    assert {"episode.start toy", "run.start", "update.links"} <= {span.name for span in others}


def test_a_member_links_to_its_group() -> None:
    """
    By the handle, whose ids are known before the group is recorded; a text says which group, and not where.
    """
    with mttp.configure("memory://") as session, mttp.group(size=3) as group:
        for given in (group, group, group.id):
            with mttp.episode(env="toy", group=given) as episode:
                pass
            group.add(episode)
    (recorded,) = [span for span in session.records() if span.name == "group"]
    members = [span for span in session.records() if span.name == "episode toy"]

    back = (recorded.trace_id, recorded.span_id, {"mttp.group.id": group.id})
    links = [[(link.trace_id, link.span_id, link.attributes) for link in span.links] for span in members]
    assert [[back], [back], []] == links
    assert {span.trace_id for span in members} == {link.trace_id for link in recorded.links}
    assert {group.id} == {span.attributes["mttp.group.id"] for span in members}
    assert [] == list(mttp.check(session))


def test_a_group_links_to_its_members() -> None:
    """
    A person who looks at a group gets to its episodes; a member that is only a trace id has no known span.
    """
    with mttp.configure("memory://") as session, mttp.group("g") as group:
        with mttp.episode(env="toy", group=group) as first:
            pass
        group.add(first)
        group.add("a" * 32)
    (recorded,) = [span for span in session.records() if span.name == "group"]

    assert [(first.trace_id, first.span_id)] == [(link.trace_id, link.span_id) for link in recorded.links]
    assert {first.trace_id, "a" * 32} == set(recorded.attributes["mttp.group.episodes"])

"""Recorded scorings of reward specs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from opentelemetry import trace
from rewards.factories import answering, component, raising, spec

import mttp
from mttp.testing import assert_same

SPEC = Path(__file__).parents[2] / "examples" / "specs" / "gsm8k.yaml"
RIGHT = {"completion": "<think>5+3</think><answer>8</answer>", "answer": "8"}


@pytest.fixture
def gsm8k() -> mttp.RewardSpec:
    """The example spec."""
    return mttp.RewardSpec.load(SPEC)


def by_name(reward):
    """Return the grades of a recorded reward by name."""
    return {grade.name: grade for grade in reward.grades}


def test_a_scoring_is_a_reward_span_with_its_grades(session, gsm8k):
    """
    Scoring in an episode records it; passing the result to `reward` adds no span.
    """
    with mttp.episode() as ep:
        result = gsm8k.score(RIGHT)
        ep.reward(result)

    names = [one.name for one in session.records() if not one.name.startswith(("run", "episode.start"))]
    (found,) = mttp.read(session).episodes
    assert sorted(names) == sorted(
        [
            "episode test",
            "reward gsm8k",
            "grade math",
            "grade format",
            "grade language",
            "grade no_tool_abuse",
        ]
    )
    assert (1.0, "episode", 1) == (found.return_, found.return_basis, len(found.rewards))
    assert result.span_id == found.reward.span_id
    assert dict(result.components) == by_name(found.reward)
    assert result.spec == found.reward.spec
    assert {"math": 1.0, "format": 1.0, "language": 1.0, "no_tool_abuse": 1.0} == found.reward.components
    assert {"math": 0.5, "format": 0.3, "language": 0.2} == found.reward.weights
    assert ("pass", (0.0, 1.0), False) == (
        found.reward.verdict,
        found.reward.range,
        found.reward.mismatch,
    )
    assert {} == dict(session.stats.faults)


def test_a_result_from_elsewhere_is_recorded_when_it_is_used(session, gsm8k):
    """
    Results of a batch are recorded in their own episodes.
    """
    results = gsm8k.score_batch([RIGHT, {**RIGHT, "answer": "9"}])
    for result in results:
        with mttp.episode() as ep:
            ep.reward(result)

    found = mttp.read(session).episodes
    assert [1.0, 0.5] == [episode.return_ for episode in found]
    assert [dict(result.components) for result in results] == [by_name(episode.reward) for episode in found]
    assert [result.start_time for result in results] == [ep.reward.start_time for ep in found]


def test_the_last_scoring_is_effective(session, gsm8k):
    """
    A result from before another scoring is recorded again, so that the last span counts.
    """
    with mttp.episode() as ep:
        first = gsm8k.score(RIGHT)
        gsm8k.score({**RIGHT, "answer": "9"})
        ep.reward(first)

    (found,) = mttp.read(session).episodes
    assert [1.0, 0.5, 1.0] == [one.value for one in found.rewards]
    assert (1.0, 1.0) == (found.return_, found.reward.value)


def test_a_result_with_something_to_add_is_a_scoring_of_its_own(session, gsm8k):
    """
    Further arguments need a new span.
    """
    with mttp.episode() as ep:
        ep.reward(gsm8k.score(RIGHT), grader="me")

    (found,) = mttp.read(session).episodes
    assert ([None, "me"], "me") == ([one.grader for one in found.rewards], found.reward.grader)


def test_a_step_is_scored_and_rewarded(session):
    """
    A step's scoring is a child of the open step.
    """
    made = spec(component("near", "shaping", 0.25, scope="step"), component("end", "verifier", 1.0))
    with mttp.episode() as ep:
        with ep.step() as step:
            step.reward(made.score_step())
        ep.reward(made.score())

    (found,) = mttp.read(session).episodes
    assert (0.25, [0.25]) == (found.steps[0].reward, [one.value for one in found.steps[0].rewards])
    assert ["near"] == [grade.name for grade in found.steps[0].rewards[0].grades]
    assert (1.0, 1.0, 1) == (found.return_, found.reward.value, len(found.rewards))


def test_a_step_may_be_rewarded_what_the_whole_was_scored(session, gsm8k):
    """
    The step of a one-step episode has the scoring as well.
    """
    with mttp.episode(steps="packed") as ep, ep.step() as step:
        step.reward(gsm8k.score(RIGHT))

    (found,) = mttp.read(session).episodes
    assert (1.0, 1.0) == (found.steps[0].reward, found.steps[0].rewards[0].value)


def test_an_agent_is_scored_apart(session, gsm8k):
    """
    The scoring belongs to the current agent.
    """
    with mttp.episode() as ep, ep.agent("solver") as agent:
        agent.reward(gsm8k.score(RIGHT))

    (found,) = mttp.read(session).episodes
    assert (1.0, ()) == (found.agents[0].reward.value, found.rewards)


def test_what_a_judge_calls_is_a_child_of_its_grade(session):
    """
    The component's span is current while it runs.
    """
    seen = []

    def judge() -> float:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return 1.0

    async def patient() -> float:
        await asyncio.sleep(0)
        return judge()

    made = spec(component("one", "judge", judge), component("other", "judge", patient))
    with mttp.episode():
        made.score()
        asyncio.run(made.ascore())

    spans = {int(record.span_id, 16): record.name for record in session.records()}
    assert ["grade one", "grade other", "grade one", "grade other"] == [spans[one] for one in seen]


def test_an_invalid_sample_is_recorded_as_one(session):
    """
    Status and errors are read back without a value.
    """
    made = spec(component("math", "verifier", raising(ValueError("no"))), component("style", "judge", None))
    with mttp.episode() as ep:
        ep.reward(made.score())

    (found,) = mttp.read(session).episodes
    assert (None, "error", None) == (found.reward.value, found.reward.status, found.return_)
    assert {"math": "error", "style": "abstained"} == found.reward.component_statuses
    assert "math: ValueError: no; style: abstained" == found.reward.error
    assert ["ValueError: no", None] == [grade.error for grade in found.reward.grades]


def test_parts_of_an_included_spec_are_grades_of_a_grade(session):
    """
    The spans have the tree of the specs.
    """
    inner = spec(component("words", "rubric", 0.5, range=(0, 1)))
    made = spec(
        component("math", "verifier", 1.0),
        include=[{"spec": inner, "as": "style", "version": "1.0.0"}],
    )
    with mttp.episode() as ep:
        ep.reward(result := made.score())

    (found,) = mttp.read(session).episodes
    assert dict(result.components) == by_name(found.reward)
    assert ["words"] == [part.name for part in found.reward.grades[1].parts]
    assert {"math": 1.0, "style": 0.5} == found.reward.components


def test_many_components_are_all_there(session):
    """
    Grades beyond the limit of one span are in spans of their own.
    """
    made = spec(*[component(f"c-{number}", "rubric", number / 64) for number in range(50)])
    with mttp.episode() as ep:
        ep.reward(result := made.score())

    (found,) = mttp.read(session).episodes
    assert {f"c-{number}": number / 64 for number in range(50)} == found.reward.components
    assert dict(result.components) == by_name(found.reward)


def test_the_spec_is_recorded_once_per_run(gsm8k, tmp_path):
    """
    The run has the document, and each reward the digests.
    """
    with mttp.configure(tmp_path / "a.jsonl"):
        for _ in range(3):
            with mttp.episode() as ep:
                ep.reward(gsm8k.score(RIGHT))

    recording = mttp.read(tmp_path / "a.jsonl")
    (document,) = recording.runs[0].spec_documents
    again = mttp.RewardSpec.from_dict(json.loads(document), folder=SPEC.parent)
    assert (gsm8k.sha256, gsm8k.code_sha256) == (again.sha256, again.code_sha256)
    assert [gsm8k.identity] * 3 == [episode.reward.spec for episode in recording]
    assert 1 == (tmp_path / "a.jsonl").read_text().count("calculator-spam")


def test_the_spec_survives_a_process_that_is_killed(tmp_path):
    """
    The document is written with the run's start marker.
    """
    program = f"""
import mttp, os, signal
session = mttp.configure("file://a.jsonl")
spec = mttp.RewardSpec.load({str(SPEC)!r})
session.flush()
with mttp.episode() as ep:
    ep.reward(spec.score({RIGHT!r}))
session.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, cwd=tmp_path)

    recording = mttp.read(tmp_path / "a.jsonl")
    assert (1, 1) == (len(recording.runs[0].spec_documents), len(recording.episodes))


def test_an_unused_scoring_is_recorded_and_is_no_reward(session, gsm8k):
    """
    A scoring alone sets no reward.
    """
    with mttp.episode():
        gsm8k.score(RIGHT)

    (found,) = mttp.read(session).episodes
    assert (None, None, [1.0]) == (found.return_, found.return_basis, [one.value for one in found.rewards])


def test_a_result_can_be_stated_late(session, gsm8k):
    """
    A result after the end is an annotation with grades.
    """
    with mttp.episode() as ep:
        pass
    result = gsm8k.score(RIGHT)
    mttp.score(ep, result, grader="second-look")

    (found,) = mttp.read(session).episodes
    stated = found.annotations[0].reward
    assert (1.0, "second-look", dict(result.components)) == (stated.value, stated.grader, by_name(stated))


def test_a_reward_by_hand_is_recorded_as_a_whole(session):
    """
    A reward that was read, or built by hand, is recorded with its grades.
    """
    made = mttp.Reward(value=0.5, components={"a": 1.0}, weights={"a": 0.5}, explanation="why")
    with mttp.episode() as ep:
        ep.reward(made, grader="import")

    (found,) = mttp.read(session).episodes
    assert (0.5, {"a": 1.0}, "why", "import") == (
        found.return_,
        found.reward.components,
        found.reward.explanation,
        found.reward.grader,
    )


def test_scoring_outside_of_an_episode_records_nothing(session, gsm8k):
    """
    It is no fault.
    """
    result = gsm8k.score(RIGHT)

    assert ("", {}) == (result.span_id, dict(session.stats.faults))


def test_recording_changes_no_score(session, monkeypatch):
    """
    A fault of the recording is counted and does not change the result.
    """
    from mttp.codec import grades

    def broken(*_: object) -> None:
        raise RuntimeError("codec")

    made = spec(component("math", "verifier", 1.0), component("style", "rubric", 0.5))
    plain = made.score()
    monkeypatch.setattr(grades, "encode", broken)
    with mttp.episode():
        recorded = made.score()

    assert (plain.value, plain.components) == (recorded.value, recorded.components)
    assert ("", 1) == (recorded.span_id, session.stats.faults["internal_error"])


def test_what_is_recorded_passes_the_check(tmp_path, gsm8k):
    """
    The spans follow the convention.
    """
    inner = spec(component("words", "rubric", 0.5, range=(0, 1)))
    made = spec(
        component("style", "judge", mttp.rewards.Score(0.5, label="so", explanation="why", evidence=[1])),
        component("noisy", "judge", 2.0, repeats=3, range=(0, 1), clip=True),
        component("no", "verifier", raising(ValueError("no"))),
        include=[{"spec": inner, "as": "inner", "version": "1.0.0"}],
    )
    with mttp.configure(tmp_path / "a.jsonl"), mttp.episode() as ep:
        made.score()
        ep.reward(gsm8k.score(RIGHT))

    assert {"grading_failed"} == {found.id for found in mttp.check(tmp_path / "a.jsonl")}


def test_a_recording_of_rewards_can_be_recorded_again(session, gsm8k):
    """
    A reward that was read can be recorded with its grades.
    """
    with mttp.episode() as ep:
        ep.reward(gsm8k.score(RIGHT))
    (first,) = mttp.read(session).episodes
    session.record(mttp.Episode(rewards=first.rewards, reward=first.reward))

    assert_same(first.reward, mttp.read(session).episodes[1].reward)


def test_scoring_loads_no_recorder():
    """
    Scoring loads neither the OpenTelemetry SDK nor recording or reading modules.
    """
    program = f"import mttp, sys\nmttp.RewardSpec.load({str(SPEC)!r}).score({RIGHT!r})\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    loaded = done.stdout.split()
    others = ("opentelemetry", "mttp.recording", "mttp.reading", "numpy")
    assert [] == [name for name in loaded if name.startswith(others)]


def test_recording_loads_no_rewards():
    """
    Recording loads no reward modules.
    """
    program = "import mttp, sys\nwith mttp.configure('memory://'), mttp.episode() as e: e.reward(1.0)\n"
    program += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    loaded = [name for name in done.stdout.split() if name.startswith(("mttp.rewards", "pydantic"))]
    assert [] == loaded


def test_answers_come_back_from_a_recording(session):
    """
    Label, explanation, evidence and repeats are read back.
    """
    answer = mttp.rewards.Score(0.5, label="so-so", explanation="日本", evidence={"a": [1, 2.5, None]})
    with mttp.episode() as ep:
        ep.reward(result := answering(answer, "judge", repeats=3).score())

    (grade,) = mttp.read(session).episodes[0].reward.grades
    assert result.components["it"] == grade
    assert ((0.5, 0.5, 0.5), 0.0, {"a": [1, 2.5, None]}) == (grade.repeats, grade.spread, grade.evidence)


@pytest.fixture
def floored():
    """A spec that gives the floor when its judge raises."""
    return spec(
        component("taste", "judge", lambda answer: float(answer), range=(0, 1)),
        component("clean", "check", True),
        on_invalid="floor",
        floor=-1.0,
    )


@pytest.mark.parametrize("target", ["first.jsonl", "a.parquet", "a.mttp.jsonl"])
def test_a_floor_is_read_back_beside_its_status(floored, target, tmp_path, monkeypatch):
    """
    In every format, at once or late, for a step and an episode; `mttp check` has no findings.
    """
    monkeypatch.chdir(tmp_path)
    with mttp.configure("file://first.jsonl") as recording:
        with mttp.episode() as ep:
            with ep.step() as step:
                step.reward(floored.score_batch([{"answer": "no"}])[0])
            ep.reward(floored.score(answer="no"))
        mttp.score(ep, floored.score(answer="no"), grader="again")
        assert {} == dict(recording.stats.faults)
    if target != "first.jsonl":
        subprocess.run([sys.executable, "-m", "mttp", "convert", "first.jsonl", target], check=True)

    (found,) = mttp.read(target).episodes
    stated = [found.reward, found.steps[0].rewards[0], found.annotations[0].reward]
    assert [(-1.0, "error", "ValueError", {"taste": "error"}, {"clean": 1.0})] * 3 == [
        (one.value, one.status, one.error_type, one.component_statuses, one.components) for one in stated
    ]
    assert (-1.0, "error", -1.0, -1.0) == (
        found.steps[0].reward,
        found.steps[0].reward_status,
        found.return_,
        found.step_reward_sum,
    )
    assert [] == [one.message for one in mttp.check(target).all if "mttp.reward" in one.message]


def test_a_group_counts_no_floor_as_a_score(session, floored):
    """
    Mean, deviation, advantages and the number of valid members leave it out.
    """
    members = []
    for result in floored.score_batch([{"answer": answer} for answer in ("1", "no", "0.5")]):
        with mttp.episode() as ep:
            ep.reward(result)
        members.append(ep)
    live = mttp.group(episodes=members, normalization="mean").value
    read = mttp.group(episodes=mttp.read(session).episodes, normalization="mean").value

    for group in (live, read):
        assert ((1.0, -1.0, 0.5), 2, 0.75) == (group.rewards, group.valid_count, group.reward_mean)
        assert [0.25, None, -0.25] == [None if one != one else one for one in group.advantages]


def test_a_group_counts_no_episode_whose_steps_were_rewarded_a_floor(session, floored):
    """
    A sum of steps with a floor is not a valid score.
    """
    members = []
    for answers in (("1", "0.5"), ("1", "no")):
        with mttp.episode() as ep:
            for answer in answers:
                with ep.step() as step:
                    step.reward(floored.score_batch([{"answer": answer}])[0])
        members.append(ep)
    live = mttp.group(episodes=members).value
    read = mttp.group(episodes=mttp.read(session).episodes).value

    assert [((1.5, 0.0), 1, 1.5)] * 2 == [
        (group.rewards, group.valid_count, group.reward_mean) for group in (live, read)
    ]


def test_an_evaluation_takes_a_floor_for_an_error(session, floored):
    """
    It is not among the scores.
    """
    with mttp.evaluate("toy", tasks=["1", "no"]) as run:
        run.map(lambda task: floored.score(answer=task))

    (found,) = mttp.read(session).evals
    assert {"1": ("scored", 1.0), "no": ("errored", None)} == {
        result.task: (result.outcome, result.score) for result in found.results
    }


def test_a_masked_value_is_missing(session):
    """
    The number below numpy's mask is not used.
    """
    masked = [np.ma.masked, np.ma.array([0.75], mask=[True])]
    for value in masked:
        with mttp.episode() as ep, ep.step() as step:
            step.reward(value)

    results = [answering(value).score() for value in masked]
    batch = spec(
        component("it", "rubric", lambda answers: np.ma.array([1.0, 2.0], mask=[0, 1]), arity="batch")
    )
    assert [(None, "missing")] * 2 == [
        (step.reward, step.reward_status) for ep in mttp.read(session).episodes for step in ep.steps
    ]
    assert [(None, "missing", "it: returned a masked value")] * 2 == [
        (one.value, one.status, one.error) for one in results
    ]
    assert [(1.0, "ok"), (None, "missing")] == [
        (one.value, one.status) for one in batch.score_batch([{"answer": 1}] * 2)
    ]

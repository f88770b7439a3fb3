"""`mttp.diagnose` on healthy and diseased runs of twenty seeds each, and on bad input."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import training_runs as runs

import mttp
from mttp.errors import ReadError, StudyError
from mttp.reading.jsonable import to_json
from mttp.study import Cleared, Diagnosis, DiagnosisFinding, NotJudged
from mttp.study.diagnosing.detectors import DETECTORS

SEEDS = 20
KINDS = {one.kind for one in DETECTORS}


@cache
def diagnosed(disease: runs.Change | None, seed: int, updates: bool = False) -> Diagnosis:
    """The diagnosis of a run with a disease of its episodes, or of its updates; None is health."""
    with TemporaryDirectory() as folder:
        changed = {} if disease is None else {"update" if updates else "episode": disease}
        return mttp.diagnose(runs.record(Path(folder, "run.jsonl"), seed, **changed))


def found(disease: runs.Change, kind: str, *, seeds: int, updates: bool = False) -> list[str]:
    """The severities with which the disease was found."""
    entries = [diagnosed(disease, seed, updates)[kind] for seed in range(seeds)]
    return [one.severity for one in entries if isinstance(one, DiagnosisFinding)]


def recorded(path: Path, rewards: Sequence[float | None], **facts: Any) -> str:
    """A recording of episodes with these rewards."""
    with mttp.configure(f"file://{path}", run_id=path.stem):
        for reward in rewards:
            with mttp.episode(env="maths", **facts) as episode, episode.step() as step:
                step.action("4")
                if reward is not None:
                    step.reward(reward)
    return str(path)


# Health.


def test_healthy_runs_give_no_alarm() -> None:
    """
    At most one of twenty has a finding of the severity high or medium, and for none `should_stop` is true.
    """
    alarms = [diagnosed(None, seed).at_least("medium") for seed in range(SEEDS)]

    assert sum(map(bool, alarms)) <= SEEDS // 20, alarms
    assert not any(diagnosed(None, seed).should_stop for seed in range(SEEDS))


@pytest.mark.parametrize("change", [runs.without_audit, runs.with_validation, runs.steady_grader])
def test_healthy_runs_that_record_less_or_more_give_no_alarm(change: runs.Change) -> None:
    """
    The quality is then that of outcomes or held-out episodes, or the grader is known to be steady.
    """
    alarms = [diagnosed(change, seed).at_least("medium") for seed in range(6)]

    assert [()] * 6 == alarms


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("disease", [None, runs.hacked, runs.stable_answers])
def test_every_detector_has_one_entry(disease: runs.Change | None, seed: int) -> None:
    """
    It is in the findings, judged, missing or inapplicable: silence is not health.
    """
    one = diagnosed(disease, seed)
    entries = Counter(entry.kind for entry in (*one.findings, *one.judged, *one.missing))
    entries.update(one.inapplicable)

    assert dict.fromkeys(KINDS, 1) == entries


# Diseases.


@pytest.mark.parametrize(
    ("disease", "kind"),
    [
        (runs.hacked, "reward_hacking"),
        (runs.misjudged, "high_reward_low_quality"),
        (runs.jumping, "reward_jump"),
        (runs.perfect, "perfect_rewards"),
        (runs.long_winded, "reward_length"),
        (runs.monotonous, "zero_variance_groups"),
        (runs.over_optimized, "over_optimization"),
    ],
)
def test_main_diseases_are_found(disease: runs.Change, kind: str) -> None:
    """
    In eighteen of twenty seeds at least, with the severity high or medium.
    """
    severities = found(disease, kind, seeds=SEEDS)

    assert len([one for one in severities if one != "low"]) >= SEEDS * 9 // 10, severities


@pytest.mark.parametrize(
    ("disease", "kind"),
    [
        (runs.over_optimized, "reward_hacking"),
        (runs.long_winded, "verbosity"),
        (runs.sparse, "sparse_rewards"),
        (runs.saturated, "saturation"),
        (runs.same_answers, "diversity_collapse"),
        (runs.looping, "repetition"),
        (runs.cut_off, "truncation"),
        (runs.failing_grader, "missing_rewards"),
        (runs.noisy_grader, "grader_noise"),
        (runs.other_grader, "grader_drift"),
        (runs.lenient_grader, "grader_drift"),
        (runs.forgetful, "forgetting"),
        (runs.shifted_tasks, "data_drift"),
        (runs.leaking, "leakage"),
    ],
)
def test_other_diseases_of_episodes_are_found(disease: runs.Change, kind: str) -> None:
    """
    In two of three seeds or more.
    """
    assert 2 <= len(found(disease, kind, seeds=3))


@pytest.mark.parametrize(
    ("disease", "kind"),
    [
        (runs.exploding_kl, "kl_drift"),
        (runs.collapsing_entropy, "entropy_collapse"),
    ],
)
def test_diseases_of_updates_are_found(disease: runs.Change, kind: str) -> None:
    """
    In each of three seeds.
    """
    assert 3 == len(found(disease, kind, seeds=3, updates=True))


@pytest.mark.parametrize(
    ("health", "kind"),
    [
        (runs.steady_grader, "grader_noise"),
        (runs.stable_answers, "grader_drift"),
        (runs.separate, "leakage"),
    ],
)
def test_detectors_with_data_find_nothing_in_health(health: runs.Change, kind: str) -> None:
    """
    What a plain run does not record is judged where it is recorded.
    """
    entries = [diagnosed(health, seed)[kind] for seed in range(3)]

    assert [Cleared] * 3 == [*map(type, entries)], entries


# What a finding says.


def test_a_finding_has_evidence_examples_and_advice() -> None:
    """
    Numbers with interval, n and method; episodes with much reward and little quality; how sure.
    """
    one = diagnosed(runs.hacked, 0)["reward_hacking"]

    assert isinstance(one, DiagnosisFinding)
    assert "high" == one.severity
    assert one.interval is not None
    assert one.value is not None
    assert one.interval[0] <= one.value <= one.interval[1] < 0
    assert "least-squares" in one.method
    assert "n=300" in one.evidence
    assert one.confidence.startswith("likely")
    assert 5 == len(one.episodes)
    assert "checkpoint" in one.advice


def test_findings_come_by_severity() -> None:
    """
    The worst first.
    """
    ranks = [{"high": 0, "medium": 1, "low": 2}[one.severity] for one in diagnosed(runs.hacked, 1).findings]

    assert sorted(ranks) == ranks


def test_hacking_stops_the_training() -> None:
    """
    The reading has the row, and the advice its reason.
    """
    one = diagnosed(runs.hacked, 0)

    assert (True, "down", "up", "stop") == (
        one.should_stop,
        one.reading.validation,
        one.reading.reward,
        one.reading.action,
    )
    assert one.advice.startswith("stop: reward_hacking")


def test_a_healthy_run_goes_on() -> None:
    """
    Both trends rise.
    """
    one = diagnosed(None, 0)

    assert (False, "up", "up", "continue") == (
        one.should_stop,
        one.reading.validation,
        one.reading.reward,
        one.reading.action,
    )
    assert 9 == len({row[:2] for row in one.reading.table})


def test_a_skill_that_is_learned_at_once_is_no_hack(tmp_path: Path) -> None:
    """
    The quality jumps with the reward.
    """

    def learn(one: Any, time: float, rng: np.random.Generator) -> None:
        one.success = bool(rng.random() < (0.1 if time < 0.6 else 0.9))
        one.audit = one.success + rng.normal(0, 0.3)
        one.reward = 0.8 * one.success + 0.2 * rng.random()

    one = mttp.diagnose(runs.record(tmp_path / "run.jsonl", 5, episode=learn))

    assert () == one.at_least("medium")
    assert isinstance(one["reward_jump"], Cleared)


def test_a_plateau_is_an_equivalence(tmp_path: Path) -> None:
    """
    A dozen noisy episodes show none, a thousand do.
    """
    rewards = np.random.default_rng(1).normal(size=2_000)
    few = mttp.diagnose(recorded(tmp_path / "few.jsonl", [*rewards[:24]]))["saturation"]
    many = mttp.diagnose(recorded(tmp_path / "many.jsonl", [*rewards]))["saturation"]

    assert (NotJudged, DiagnosisFinding) == (type(few), type(many))


def test_solved_groups_are_no_disease() -> None:
    """
    Groups in which every reward is the highest give no gradient either, with the severity low.
    """
    one = diagnosed(runs.saturated, 0)["zero_variance_groups"]

    assert isinstance(one, DiagnosisFinding)
    assert ("low", True) == (one.severity, "25 at the highest reward, 0 below" in one.evidence)


def test_a_single_late_score_is_no_quality(tmp_path: Path) -> None:
    """
    Outcomes, of which there are enough, are taken instead.
    """
    path = str(tmp_path / "run.jsonl")
    with mttp.configure(f"file://{path}"):
        for number in range(30):
            with mttp.episode(env="maths") as episode:
                episode.reward(float(number))
                episode.end(outcome="success" if number > 15 else "failure")
        mttp.score(episode, 1.0, grader="second-look")

    assert "success" == mttp.diagnose(path).quality
    assert "second-look" == mttp.diagnose(path, quality="second-look").quality


def test_a_time_limit_that_is_success_is_no_disease(tmp_path: Path) -> None:
    """
    Truncated episodes of CartPole have the highest returns.
    """
    path = str(tmp_path / "cartpole.jsonl")
    rng = np.random.default_rng(2)
    with mttp.configure(f"file://{path}"):
        for _ in range(120):
            steps = 500 if rng.random() < 0.5 else int(rng.integers(20, 400))
            with mttp.episode(env="CartPole-v1") as episode:
                episode.reward(float(steps))
                episode.end(truncated=steps == 500, terminated=steps < 500)

    assert isinstance(mttp.diagnose(path)["truncation"], Cleared)


def test_templates_leak_as_well(tmp_path: Path) -> None:
    """
    Prompts that differ in their numbers alone are found, with the severity low.
    """
    path = str(tmp_path / "run.jsonl")
    with mttp.configure(f"file://{path}"):
        for number, split in enumerate(["train"] * 30 + ["test"] * 10):
            with mttp.episode(env="maths", task=f"{split}{number}", split=split) as episode:
                with episode.step() as step:
                    step.observation(f"A farmer has {number * 7919} sheep and sells {number}")
                episode.reward(0.5)
    one = mttp.diagnose(path)["leakage"]

    assert isinstance(one, DiagnosisFinding)
    assert "low" == one.severity
    assert "10 more are equal up to numbers" in one.evidence


# Quality.


@pytest.mark.parametrize("quality", ["audit", "success", "reward", "return"])
def test_quality_is_chosen_by_name(quality: str, tmp_path: Path) -> None:
    """
    A grader of late scores, an outcome, a metric.
    """
    path = runs.record(tmp_path / "run.jsonl", 3)

    assert quality == mttp.diagnose(path, quality=quality).quality


def test_components_and_metrics_are_qualities(tmp_path: Path) -> None:
    """
    A reward that rises by another component hacks the one that counts.
    """
    path = str(tmp_path / "run.jsonl")
    rng = np.random.default_rng(4)
    with mttp.configure(f"file://{path}"):
        for number in range(300):
            with mttp.episode(env="maths") as episode:
                parts = {"correct": rng.random() - number / 300, "style": rng.random() + number / 100}
                episode.reward(sum(parts.values()), components=parts)
                episode.metric("held", parts["correct"])

    for quality in ("components.correct", "metrics.held"):
        one = mttp.diagnose(path, quality=quality)
        assert (quality, "high") == (one.quality, one.findings[0].severity)
        assert "reward_hacking" == one.findings[0].kind


@pytest.mark.parametrize("quality", ["held_out", "validation"])
def test_held_out_episodes_are_a_quality(quality: str, tmp_path: Path) -> None:
    """
    All of them, or those of one split; they are no part of the training rewards.
    """
    path = runs.record(tmp_path / "run.jsonl", 3, episode=runs.with_validation)
    one = mttp.diagnose(path, quality=quality)

    assert quality == one.quality
    assert one.reading.validation_trend.startswith(quality)
    assert isinstance(one["high_reward_low_quality"], NotJudged)


def test_without_quality_nothing_says_that_the_reward_is_good(tmp_path: Path) -> None:
    """
    Reward hacking is not judged, and the reading asks for a measure.
    """
    one = mttp.diagnose(recorded(tmp_path / "run.jsonl", [float(number) for number in range(100)]))

    assert isinstance(one["reward_hacking"], NotJudged)
    assert (None, "unknown", "up", "measure") == (
        one.quality,
        one.reading.validation,
        one.reading.reward,
        one.reading.action,
    )


# Bad input.


@pytest.mark.parametrize(
    "rewards",
    [
        [1.0],
        [None] * 40,
        [0.0] * 100,
        [1.0] * 100,
        [math.nan] * 100,
        [math.inf, -math.inf] * 50,
        [1e308, -1e308] * 50,
        [5e-324 * number for number in range(100)],
        [0.0] * 50 + [1.0] * 50,
        [float(number) for number in range(8)],
    ],
    ids=["one", "none", "zeros", "ones", "nan", "infinite", "huge", "tiny", "step", "eight"],
)
def test_odd_rewards_are_answered(rewards: list[float | None], tmp_path: Path) -> None:
    """
    Every detector has its entry, and all numbers are finite.
    """
    one = mttp.diagnose(recorded(tmp_path / "run.jsonl", rewards))
    text = to_json(one.to_dict())

    assert len(KINDS) == sum(map(len, (one.findings, one.judged, one.missing, one.inapplicable)))
    assert json.loads(text)["episodes"] == len(rewards)
    for word in ("nan", "inf "):
        assert word not in " ".join(entry.evidence for entry in (*one.findings, *one.judged))


def test_missing_rewards_are_a_finding(tmp_path: Path) -> None:
    """
    Also those that are no finite numbers, and those too large to be squared.
    """
    kinds: dict[str, list[float | None]] = {"missing": [None], "error": [math.nan], "too large": [1e200]}
    for word, odd in kinds.items():
        one = mttp.diagnose(recorded(tmp_path / f"{word.replace(' ', '_')}.jsonl", [0.5, 0.7, *odd] * 20))
        entry = one["missing_rewards"]

        assert isinstance(entry, DiagnosisFinding)
        assert ("high", f"{word}" in entry.evidence) == (entry.severity, True)


def test_rewards_that_lack_a_component_are_a_finding(tmp_path: Path) -> None:
    """
    It says by how much their rewards and advantages differ, and what they lack; an error with its message.
    """
    with mttp.configure(f"file://{tmp_path / 'run.jsonl'}"):
        for number in range(40):
            with mttp.episode(env="maths") as episode:
                lacking = TimeoutError("late") if number % 4 == 0 else 0.5
                episode.reward(0.25 if number % 4 == 0 else 1.0, components={"judge": lacking, "right": 0.5})
            mttp.annotate(episode, "advantage", -3.0 if number % 4 == 0 else 1.0)

    entry = mttp.diagnose(tmp_path / "run.jsonl")["missing_rewards"]

    assert isinstance(entry, DiagnosisFinding)
    assert ("high", 0.25) == (entry.severity, entry.value)
    assert (
        "(partial 10) (Wilson, 95 %); mean reward of those that lack a component 0.25, of the others 1; "
        "mean advantage of those that lack a component -3, of the others 1; most often judge error (10)"
    ) in entry.evidence


def test_no_rewards_at_all_judge_nothing_else(tmp_path: Path) -> None:
    """
    That rewards are missing is a finding; what they would show is not judged.
    """
    one = mttp.diagnose(recorded(tmp_path / "run.jsonl", [None] * 40))

    assert ["missing_rewards"] == [entry.kind for entry in one.findings]
    assert "unknown" == one.reading.reward


def test_a_run_that_is_still_written_is_diagnosed(tmp_path: Path) -> None:
    """
    A session is read while an episode is open, which does not count yet.
    """
    with mttp.configure(f"file://{tmp_path / 'run.jsonl'}") as session:
        for number in range(30):
            with mttp.episode(env="maths") as episode:
                episode.reward(float(number))
        with mttp.episode(env="maths"):
            one = mttp.diagnose(session)

    assert (30, "up") == (one.episodes, one.reading.reward)
    assert isinstance(one["missing_rewards"], Cleared)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quality": "audti"}, "did you mean 'audit'"),
        ({"quality": "sucess"}, "did you mean 'success'"),
        ({"quality": "pass@1"}, "a number per task"),
        ({"quality": "tokens"}, "less of 'tokens' is better"),
        ({"run": "other"}, "no run is called 'other'; there are run-1"),
    ],
)
def test_unknown_names_are_refused(options: dict[str, str], message: str, tmp_path: Path) -> None:
    """
    With the nearest that there is.
    """
    path = runs.record(tmp_path / "run.jsonl", 1, updates=2)

    with pytest.raises(StudyError, match=message):
        mttp.diagnose(path, **options)


def test_several_runs_are_diagnosed_one_by_one(tmp_path: Path) -> None:
    """
    Their episodes have no common training time.
    """
    paths = [recorded(tmp_path / f"{name}.jsonl", [1.0] * 20) for name in ("a", "b")]

    with pytest.raises(StudyError, match="2 runs"):
        mttp.diagnose(paths)
    assert 20 == mttp.diagnose(paths, run="a").episodes


@pytest.mark.parametrize("content", [None, ""])
def test_nothing_to_diagnose_is_an_error(content: str | None, tmp_path: Path) -> None:
    """
    A file that is missing or empty is no healthy run.
    """
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ReadError):
        mttp.diagnose(str(path))


def test_a_recording_without_episodes_is_an_error(tmp_path: Path) -> None:
    """
    Nor is a run that has not begun, or of which no episode has ended.
    """
    with mttp.configure(f"file://{tmp_path / 'run.jsonl'}") as session:
        mttp.update(0, loss=1.0)
        with pytest.raises(ReadError, match="no episodes: there"):
            mttp.diagnose(session)
        with mttp.episode(env="maths"), pytest.raises(ReadError, match="no episodes that ended, of 1"):
            mttp.diagnose(session)


def test_several_agents_have_the_mean_of_their_returns(tmp_path: Path) -> None:
    """
    Their episodes have rewards, although none of the whole episode.
    """
    path = str(tmp_path / "run.jsonl")
    with mttp.configure(f"file://{path}"):
        for number in range(40):
            with mttp.episode(env="market") as episode:
                for name in ("buyer", "seller"):
                    with episode.agent(name) as agent, agent.step() as step:
                        step.reward(float(number))
    one = mttp.diagnose(path)

    assert "up" == one.reading.reward
    assert isinstance(one["missing_rewards"], Cleared)


# Values.


def test_a_diagnosis_is_frozen_and_shown() -> None:
    """
    As plain data and as a line.
    """
    one = diagnosed(runs.hacked, 0)

    assert repr(one).startswith("<Diagnosis: findings 1 high")
    assert {"findings", "judged", "missing", "reading", "should_stop", "advice"} <= one.to_dict().keys()
    with pytest.raises(AttributeError):
        one.quality = "other"  # type: ignore[misc]  # that is what is tested
    with pytest.raises(KeyError, match="no detector 'x'"):
        one["x"]


def test_the_order_of_detectors_is_that_of_the_table() -> None:
    """
    Each has a kind of its own, and advice.
    """
    assert len(DETECTORS) == len(KINDS)
    assert all(one.advice for one in DETECTORS)

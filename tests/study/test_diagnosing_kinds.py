"""`mttp.diagnose` on runs of classic RL, on components of rewards, and on what must not alarm."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mttp
from mttp.model import Episode, Grade, Reward, Run, Step, Update
from mttp.reading import Recording
from mttp.study import Cleared, Diagnosis, DiagnosisFinding, NotJudged
from mttp.study.diagnosing.detectors import DETECTORS

CARTPOLE = {
    "observation": {"type": "Box", "shape": [4], "dtype": "float32"},
    "action": {"type": "Discrete", "n": 2, "start": 0},
}


def diagnosed(
    episodes: Sequence[dict[str, Any]], updates: Sequence[dict[str, Any]] = (), **options: Any
) -> Diagnosis:
    """The diagnosis of a run of these episodes, with the updates spread evenly over it."""
    values = [
        Episode(
            **{"trace_id": f"{at + 1:032x}", "run_id": "r", "env": "maths", "start_time": 1_000 * at, **facts}
        )
        for at, facts in enumerate(episodes)
    ]
    gap = 1_000 * len(values) // max(1, len(updates))
    made = [
        Update(index=at, run_id="r", start_time=gap * (at + 1) - 1, **facts)
        for at, facts in enumerate(updates)
    ]
    runs = [Run(id=name) for name in sorted({one.run_id for one in values})]
    return mttp.diagnose(Recording(episodes=values, updates=made, runs=runs), **options)


def severity(found: Diagnosis, kind: str) -> str | None:
    """The severity of a finding; None where there is none."""
    entry = found[kind]
    return entry.severity if isinstance(entry, DiagnosisFinding) else None


def answers(rewards: Sequence[float], qualities: Sequence[float], **facts: Any) -> list[dict[str, Any]]:
    """Answers with these rewards, and success or failure."""
    return [
        {
            "reward": Reward(value=float(reward), status="ok"),
            "outcome": "success" if quality else "failure",
            "steps": (Step(index=0, action=f"answer {at}"),),
            **facts,
        }
        for at, (reward, quality) in enumerate(zip(rewards, qualities, strict=True))
    ]


def poles(
    count: int,
    *,
    length: int = 20,
    spaces: Any = CARTPOLE,
    action: Any = lambda rng: int(rng.integers(2)),
    constant: Sequence[int] = (),
    **facts: Any,
) -> list[dict[str, Any]]:
    """Episodes of CartPole with random steps."""
    rng = np.random.default_rng(1)
    episodes = []
    for _ in range(count):
        seen = rng.normal(size=(length, 4))
        seen[:, list(constant)] = 1.5
        steps = tuple(
            Step(index=at, observation=seen[at], action=action(rng), reward=1.0) for at in range(length)
        )
        episodes.append(
            {
                "env": "CartPole-v1",
                "env_spaces": spaces,
                "length": length,
                "return_": float(length),
                "steps": steps,
                "terminated": True,
                "truncated": False,
                **facts,
            }
        )
    return episodes


# Reward hacking.


def test_a_success_that_rises_is_no_hacking() -> None:
    """
    Also where a dense reward rises far more steeply.
    """
    for seed in range(8):
        rng = np.random.default_rng(seed)
        time = np.arange(240) / 240
        found = diagnosed(answers(2 * time + rng.normal(0, 0.2, 240), rng.random(240) < 0.3 + 0.3 * time))

        assert severity(found, "reward_hacking") is None


def test_a_success_that_stays_while_the_reward_rises_is_hacking() -> None:
    """
    A sign of noise is no rise: flat is an equivalence.
    """
    time = np.arange(1_600) / 1_600
    rng = np.random.default_rng(3)
    found = diagnosed(answers(2 * time + rng.normal(0, 0.3, 1_600), rng.random(1_600) < 0.4 + 0.02 * time))

    assert "medium" == severity(found, "reward_hacking")


def test_a_success_that_is_lost_while_the_reward_rises_is_high() -> None:
    """
    Severity follows cost; the finding says how often healthy runs have it.
    """
    time = np.arange(300) / 300
    rng = np.random.default_rng(4)
    found = diagnosed(answers(time + rng.normal(0, 0.1, 300), rng.random(300) < 0.4 * (1 - time)))
    entry = found["reward_hacking"]

    assert isinstance(entry, DiagnosisFinding)
    assert ("high", True) == (entry.severity, found.should_stop)
    assert 0 <= entry.false_alarm_rate <= 0.05
    assert "healthy runs" in found.to_dict()["findings"][0]["false_alarm_method"]


def test_high_rewards_that_are_no_worse_than_others_are_at_most_a_hint() -> None:
    """
    A reward that is noise has the severity low, by Fisher's test.
    """
    for seed in range(5):
        rng = np.random.default_rng(seed)
        found = diagnosed(answers(rng.random(300), rng.random(300) < 0.6))

        assert severity(found, "high_reward_low_quality") in (None, "low")


def test_a_plateau_is_no_reason_to_stop() -> None:
    """
    Saturation alone is low, and the reading says finish.
    """
    rng = np.random.default_rng(5)
    found = diagnosed(answers(rng.random(2_000), rng.random(2_000) < 0.9))

    assert ("low", False, "finish") == (
        severity(found, "saturation"),
        found.should_stop,
        found.reading.action,
    )


# Episodes that did not end.


@pytest.mark.parametrize("status", ["error", "aborted"])
def test_episodes_that_failed_have_no_reward(status: str) -> None:
    """
    They would make a rising reward fall.
    """
    time = np.arange(200) / 200
    good = answers(time, time > 0.5)
    failed = answers([-1_000.0] * 40, [0] * 40, status=status, error_type="ValueError")
    found = diagnosed([*good, *failed])

    assert "up" == found.reading.reward
    assert ("medium" if status == "error" else None) == severity(
        found, "missing_rewards"
    ) or status == "error"


def test_a_run_that_failed_altogether_is_diagnosed() -> None:
    """
    Its missing rewards are the finding.
    """
    found = diagnosed(answers([1.0] * 40, [1] * 40, status="error"))

    assert "high" == severity(found, "missing_rewards")
    assert "unknown" == found.reading.reward


def test_a_return_from_steps_is_no_missing_reward() -> None:
    """
    An environment gives no reward of the whole episode.
    """
    assert isinstance(diagnosed(poles(60))["missing_rewards"], Cleared)


# Components.


def scored(count: int, make: Any, kinds: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Answers with the components that `make` returns, and their sum as the reward."""
    rng = np.random.default_rng(6)
    episodes = []
    for at in range(count):
        parts = make(at / count, rng)
        grades = tuple(Grade(name=name, kind=kind, value=parts[name]) for name, kind in (kinds or {}).items())
        reward = Reward(value=sum(parts.values()), status="ok", components=parts, grades=grades)
        episodes.append({"reward": reward, "steps": (Step(index=0, action=f"answer {at}"),)})
    return episodes


def _concise(time: float, rng: np.random.Generator) -> dict[str, float]:
    return {"concise": time + rng.random() / 5, "correct": float(rng.random() < 0.4)}


def test_a_verifier_is_the_quality_without_outcomes() -> None:
    """
    The component of that kind in the spec, beside others.
    """
    found = diagnosed(scored(900, _concise, {"correct": "verifier", "concise": "shaping"}))

    assert ("components.correct", "medium") == (found.quality, severity(found, "reward_hacking"))


def test_without_a_verifier_the_components_are_named() -> None:
    """
    With the option that chooses one of them.
    """
    entry = diagnosed(scored(900, _concise))["reward_hacking"]

    assert isinstance(entry, NotJudged)
    assert "`concise` up, `correct` flat; pass --quality" in entry.reason


def test_absent_components_are_found_with_what_they_cost() -> None:
    """
    13 % of the rewards lack one, and are less for it.
    """

    def make(time: float, rng: np.random.Generator) -> dict[str, float]:
        parts = {"correct": rng.random()}
        return parts if rng.random() < 0.13 else {**parts, "concise": 0.35}

    entry = diagnosed(scored(400, make))["missing_components"]

    assert isinstance(entry, DiagnosisFinding)
    assert "medium" == entry.severity
    assert "lack `concise`" in entry.evidence
    assert "less reward" in entry.evidence


def test_components_that_diverge_or_never_change_are_found() -> None:
    """
    With the severity low.
    """

    def make(time: float, rng: np.random.Generator) -> dict[str, float]:
        return {"style": time + rng.random(), "correct": rng.random() - time, "format": 1.0}

    found = diagnosed(scored(400, make))

    assert ("low", "low") == (severity(found, "diverging_components"), severity(found, "dead_components"))
    assert "`format` 1" in found["dead_components"].evidence  # type: ignore[union-attr]  # a finding


# Classic RL.


def test_ends_at_the_limit_that_are_marked_terminated_are_found() -> None:
    """
    By the recorded limit, or the registered one.
    """
    short = diagnosed(poles(40, env_kwargs={"max_episode_steps": 20}))
    right = diagnosed(poles(40, env_kwargs={"max_episode_steps": 20}, terminated=False, truncated=True))

    assert ("medium", None) == (severity(short, "limit_terminated"), severity(right, "limit_terminated"))
    pytest.importorskip("gymnasium")
    assert "medium" == severity(diagnosed(poles(20, length=500)), "limit_terminated")


def test_actions_that_are_never_taken_are_found() -> None:
    """
    Of a discrete space.
    """
    assert "medium" == severity(diagnosed(poles(20, action=lambda _: 0)), "dead_actions")
    assert severity(diagnosed(poles(20)), "dead_actions") is None


def test_constant_dimensions_are_found() -> None:
    """
    A quarter of them is a hint, all of them are a broken sensor.
    """
    found = diagnosed(poles(20, constant=[2]))

    assert "low" == severity(found, "constant_observations")
    assert "1 of 4 dimensions never change: 2 (1.5)" in found["constant_observations"].evidence  # type: ignore[union-attr]
    assert "medium" == severity(diagnosed(poles(20, constant=range(4))), "constant_observations")
    assert severity(diagnosed(poles(20)), "constant_observations") is None


def test_entropy_near_zero_from_the_first_update_on_is_found() -> None:
    """
    Against the largest entropy of the action space.
    """
    rng = np.random.default_rng(7)
    low = [{"entropy": float(rng.uniform(0.001, 0.004))} for _ in range(30)]
    good = [{"entropy": float(rng.uniform(0.5, 0.6))} for _ in range(30)]

    assert "high" == severity(diagnosed(poles(60), low), "entropy_collapse")
    assert severity(diagnosed(poles(60), good), "entropy_collapse") is None


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(("name", "usual", "wild"), [("kl", 0.03, 20.0), ("clip_fraction", 0.1, 0.9)])
def test_a_blow_up_in_the_last_updates_is_found(count: int, name: str, usual: float, wild: float) -> None:
    """
    And no jump is found in ordinary noise.
    """
    rng = np.random.default_rng(8)
    values = usual * rng.uniform(0.7, 1.3, 40)
    calm = diagnosed(poles(60), [{name: float(value)} for value in values])
    values[-count:] = wild
    found = diagnosed(poles(60), [{name: float(value)} for value in values])

    assert severity(calm, "update_spike") is None
    assert severity(found, "update_spike") in ("medium", "high")


def test_a_critic_that_explains_nothing_is_found() -> None:
    """
    Where the reward does not rise either.
    """
    rng = np.random.default_rng(9)
    bad = [{"explained_variance": float(-rng.random())} for _ in range(30)]
    good = [{"explained_variance": float(rng.uniform(-0.2, 0.9))} for _ in range(30)]

    assert "medium" == severity(diagnosed(poles(60), bad), "explained_variance")
    assert severity(diagnosed(poles(60), good), "explained_variance") is None


def test_losses_that_grow_with_the_rewards_are_found() -> None:
    """
    Value loss and gradient norm.
    """
    rng = np.random.default_rng(10)
    scale = np.exp(np.arange(30) / 5)
    grown = [
        {"value_loss": float(one**2 * rng.random()), "grad_norm": float(one * (1 + rng.random()))}
        for one in scale
    ]

    assert "medium" == severity(diagnosed(poles(60), grown), "growing_losses")
    assert severity(diagnosed(poles(60), grown[:10] * 3), "growing_losses") is None


def test_the_seed_that_collapsed_is_diagnosed_and_named() -> None:
    """
    Of several runs that end alike, one must be chosen as before.
    """

    def seeds(levels: dict[str, float]) -> list[dict[str, Any]]:
        rng = np.random.default_rng(11)
        return [
            {"return_": float(level + rng.normal(0, 10)), "run_id": run, "env": "CartPole-v1"}
            for run, level in levels.items()
            for _ in range(60)
        ]

    levels = {"a": 480.0, "b": 470.0, "c": 20.0, "d": 475.0}
    found = diagnosed(seeds(levels))
    entry = found["seed_collapse"]

    assert isinstance(entry, DiagnosisFinding)
    assert ("high", True) == (entry.severity, "of c has reward" in entry.evidence)
    assert severity(diagnosed(seeds(levels), run="a"), "seed_collapse") is None
    with pytest.raises(mttp.errors.StudyError, match="4 runs"):
        diagnosed(seeds({**levels, "c": 478.0}))


def test_what_cannot_apply_is_not_listed() -> None:
    """
    Text in an environment of numbers, control in a run of answers.
    """
    control, language = diagnosed(poles(60)), diagnosed(answers(np.arange(60) / 60, np.ones(60)))

    assert {"repetition", "reward_length", "leakage", "verbosity"} <= {*control.inapplicable}
    assert {"dead_actions", "constant_observations", "limit_terminated"} <= {*language.inapplicable}
    assert not {one.kind for one in control.missing} & {*control.inapplicable}
    assert isinstance(control["repetition"], NotJudged)


# How often healthy runs alarm.


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_detector_is_judged_on_a_healthy_run_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Otherwise its rate of false alarms would be 0 because nothing was measured.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent.parent / "benchmarks"))
    import diagnoses

    runs = [row.draw(np.random.default_rng(5)).diagnose() for row in diagnoses.HEALTHY]
    sys.modules.pop("diagnoses")

    assert {detector.kind for detector in DETECTORS} == {
        entry.kind for run in runs for entry in (*run.findings, *run.judged)
    }


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_healthy_runs_alarm_at_the_printed_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    At most one in twenty of each kind, give or take three standard errors, and as often as findings say.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent.parent / "benchmarks"))
    import diagnoses

    from mttp.study.diagnosing.false_alarms import FALSE_ALARMS

    for row in diagnoses.HEALTHY:
        found = list(row.findings(diagnoses.DRAWS))
        margin = 3 * (diagnoses.MOST / len(found)) ** 0.5
        assert diagnoses.alarm_rate(found) <= diagnoses.MOST + margin, row.name
        for kind in {kind for kinds in found for kind in kinds}:
            share = sum(kind in kinds for kinds in found) / len(found)
            assert share <= FALSE_ALARMS[kind] + margin, (row.name, kind)
    sys.modules.pop("diagnoses")

"""Scoring of episodes by steps and ends."""

from __future__ import annotations

import pytest
from rewards.factories import component, spec

import mttp
from mttp.errors import SpecError
from mttp.rewards.case_runs import run_cases
from mttp.rewards.lint import lint
from mttp.rewards.mutations import mutate


def walk(**fields):
    """A spec that shapes and checks steps and scores the end."""
    return spec(
        component("near", "shaping", lambda place: place / 10, range=(0, 1), scope="step", weight=0.5),
        component("on_track", "check", lambda place: place < 8, scope="step"),
        component("there", "verifier", lambda place: place == 6, range=(0, 1)),
        **fields,
    )


def paid(made, *places, end=None):
    """Return the reward of each step and of the end."""
    episode = made.for_episode()
    found = [episode.step(place=place).value for place in places]
    return [*found, episode.end(place=places[-1] if end is None else end).value], episode.total


def test_steps_and_the_end_are_scored_by_one_spec():
    """
    The total is the sum, also for each component.
    """
    values, total = paid(walk(), 2, 4, 6)

    assert [0.1, 0.2, 0.3, 1.0] == pytest.approx(values)
    assert (pytest.approx(1.6), "ok", "pass") == (total.value, total.status, total.verdict)
    assert {"near": 1.2, "on_track": 1.0, "there": 1.0} == pytest.approx(
        {name: grade.value for name, grade in total.components.items()}
    )
    assert pytest.approx(0.6) == total.components["near"].contribution


def test_what_all_steps_are_rewarded_is_bounded():
    """
    The step that would exceed `step_total` is clipped and marked.
    """
    episode = walk(step_total=(0, 0.25)).for_episode()
    results = [episode.step(place=place) for place in (2, 4, 6)]

    assert [0.1, 0.15, 0.0] == pytest.approx([one.value for one in results])
    assert [False, True, True] == [one.clipped for one in results]
    assert pytest.approx(1.25) == (episode.end(place=6), episode.total)[1].value


def test_a_bound_has_two_ends():
    """
    The lower bound limits losses, which later steps can make up.
    """
    made = spec(
        component("gain", "shaping", lambda gain: gain, range=(-1, 1), scope="step"), step_total=(-0.5, 0.5)
    )
    episode = made.for_episode()

    assert [-0.5, 0.0, 1.0, 0.0] == [episode.step(gain=gain).value for gain in (-1.0, -1.0, 1.0, 1.0)]
    assert 0.5 == episode.total.value
    with pytest.raises(SpecError, match="the bounds must include 0"):
        walk(step_total=(0.1, 0.5))


def test_a_check_that_fails_in_a_step_gates_the_end():
    """
    The step and the end get the floor; the end's judges are not called.
    """
    calls = []

    def judge(place):
        calls.append(place)
        return 1.0

    made = spec(
        component("on_track", "check", lambda place: place < 8, scope="step"),
        component("near", "shaping", 0.1, range=(0, 1), scope="step"),
        component("there", "verifier", 1.0, range=(0, 1)),
        component("taste", "judge", judge, range=(0, 1)),
        floor=-1.0,
    )
    episode = made.for_episode()
    steps = [episode.step(place=place) for place in (2, 9, 6)]
    end = episode.end(place=6)

    assert [0.1, -1.0, 0.1] == [one.value for one in steps]
    assert (-1.0, "ok", "fail", ("on_track",)) == (end.value, end.status, end.verdict, end.failed_checks)
    assert ([], "not called: check on_track failed") == (calls, end.components["taste"].explanation)
    assert (pytest.approx(-1.8), "fail", ("on_track",)) == (
        episode.total.value,
        episode.total.verdict,
        episode.total.failed_checks,
    )


def test_a_floor_is_rewarded_in_full_whatever_the_bound():
    """
    `step_total` does not clip the floor of a failed check.
    """
    values, _ = paid(walk(step_total=(0, 0.2), floor=-1.0), 2, 9, 6)

    assert [0.1, -1.0, 0.1, -1.0] == pytest.approx(values)


def test_checks_of_steps_in_an_included_spec_gate():
    """
    An included spec scores each scope together with the outer one.
    """
    inner = mttp.RewardSpec(
        name="safety",
        version="1.0.0",
        components=[component("no_leak", "check", lambda place: place < 8, scope="step")],
    )
    made = spec(
        component("there", "verifier", 1.0, range=(0, 1)),
        include=[{"spec": inner, "as": "safety", "version": "1.0.0"}],
    )
    episode = made.for_episode()
    steps = [episode.step(place=place) for place in (2, 9)]

    assert [(), ("safety.no_leak",)] == [one.failed_checks for one in steps]
    assert (0.0, ("safety.no_leak",)) == ((end := episode.end(place=9)).value, end.failed_checks)
    assert ({"safety"}, {"there"}) == (set(steps[0].components), set(end.components))


def test_cases_mix_steps_and_ends():
    """
    A case with steps is an episode, and its expectations are about the whole.
    """
    case = {"name": "walk", "kind": "valid", "input": {"place": 6}, "steps": [{"place": 2}, {"place": 4}]}
    leap = {"name": "leap", "kind": "violation", "input": {"place": 6}, "steps": [{"place": 9}]}
    made = walk(
        step_total=(0, 0.25),
        cases=[
            {**case, "expect": {"value": 1.25, "components": {"near": {"equals": 0.6}}}},
            {**leap, "expect": {"value": 0, "verdict": "fail", "failed_checks": ["on_track"]}},
            {"name": "end", "kind": "unusual", "input": {"place": 6}, "expect": {"value": 1.0}},
            {"better": "walk", "than": "leap"},
        ],
    )

    assert [] == run_cases(made.plan, made.document.cases).failed
    assert [] == [one.reason for one in lint(made) if one.rule == "impossible-case"]
    assert {"end"} == {case for one in mutate(made.plan, made.document.cases).mutants for case in one.changed}


def test_the_bound_is_part_of_what_a_spec_is():
    """
    `step_total` is in the digest; specs without one keep theirs.
    """
    assert walk(step_total=(0, 1)).sha256 != walk().sha256
    assert "step_total" not in walk().canonical
    assert walk(step_total=(0, 1)).to_dict()["step_total"] == [0.0, 1.0]


def test_what_an_episode_is_rewarded_is_recorded_as_it_is_given(session):
    """
    The recorded rewards are clipped and gated.
    """
    made = walk(step_total=(0, 0.25))
    with mttp.episode() as ep:
        episode = made.for_episode()
        for place in (4, 6):
            with ep.step() as step:
                step.reward(episode.step(place=place))
        ep.reward(episode.total if episode.end(place=6) else None)

    (found,) = mttp.read(session).episodes
    assert [0.2, 0.05] == pytest.approx([step.reward for step in found.steps])
    assert [False, True] == [step.rewards[0].clipped for step in found.steps]
    assert (pytest.approx(1.25), "ok") == (found.return_, found.reward.status)

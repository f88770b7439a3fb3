"""Recorded episodes scored by two specs."""

from __future__ import annotations

import pytest
from rewards.specimens import changed, load

import mttp
from mttp.rewards.rescoring import rescore

BROKEN = """
def math_reward(completion):
    raise ValueError


format_reward = language_reward = no_tool_abuse = math_reward
"""
ANSWERS = ["<think></think><answer>8</answer>", "<answer>8</answer>", "8", "rm -rf /"]


def recorded(spec, *, wrong=False):
    """A run of four answers scored by the spec, and an episode without inputs."""
    with mttp.configure(transport="memory://") as session:
        for place, answer in enumerate(ANSWERS):
            inputs = {"completion": answer, "answer": "8"}
            slices = ["odd"] if place % 2 else ["even"]
            with mttp.episode(task=f"t{place}", inputs=inputs, slices=slices, group="g") as episode:
                episode.reward(spec.score(inputs))
        with mttp.episode():
            pass
    return mttp.read(session).episodes


def test_the_same_spec_pays_the_same():
    """
    It reproduces the recorded rewards.
    """
    spec = load()
    found = rescore(recorded(spec), spec, spec)
    whole = found.slices[0]

    assert (4, 0, 0, 1.0) == (whole.episodes, whole.changed, whole.flipped, whole.tau_b)
    assert (1, 4) == (found.without_inputs, found.reproduced)


def test_a_changed_weight_changes_rewards_where_it_matters():
    """
    Overall and by slice.
    """
    before = load()
    after = load("after", spec=changed("weight: 0.3", "weight: 0.1"))
    found = rescore(recorded(before), before, after)

    assert [("all", 4, 1), ("even", 2, 1), ("odd", 2, 0)] == [
        (one.name, one.episodes, one.changed) for one in found.slices
    ]
    assert (1.0, pytest.approx(0.8)) == (found.episodes[0].before, found.episodes[0].after)


def test_a_flipped_verdict_is_counted():
    """
    Another answer is right by the second spec.
    """
    before = load()
    graders = "def math_reward(completion, answer): return completion == answer\n"
    others = "".join(
        f"def {name}(completion): return 1.0\n"
        for name in ("format_reward", "language_reward", "no_tool_abuse")
    )
    found = rescore(recorded(before), before, load("after", graders=graders + others))

    assert [True, True, True, True] == [one.changed or one.flipped for one in found.episodes]
    assert 3 == found.slices[0].flipped


def test_an_invalid_reward_is_counted_as_one():
    """
    It is left out of the means.
    """
    before = load()
    after = load(
        "after",
        graders=BROKEN,
    )
    whole = rescore(recorded(before), before, after).slices[0]

    assert (0, 4, 4, None, None) == (
        whole.invalid_before,
        whole.invalid_after,
        whole.changed,
        whole.mean_before,
        whole.tau_b,
    )


def test_recorded_episodes_are_scored_themselves():
    """
    A spec with an episode as input needs no recorded inputs.
    """
    spec = mttp.RewardSpec(
        name="brevity",
        version="1.0.0",
        inputs={"episode": "episode"},
        components=[
            {"name": "short", "kind": "rubric", "use": lambda episode: 1.0 - episode.length, "version": "1"}
        ],
        combine="weighted_sum",
    )
    found = rescore(recorded(load()), spec, spec)

    assert (5, 0, {1.0}) == (len(found.episodes), found.without_inputs, {one.after for one in found.episodes})


def test_why_a_reward_is_invalid_is_reported():
    """
    Reasons are counted by component, most frequent first.
    """
    before, after = (
        load(),
        load("after", graders=BROKEN.replace("raise ValueError", 'raise ValueError("no")')),
    )
    found = rescore(recorded(before), before, after)

    assert {} == found.reasons_before
    assert ("math: ValueError: no", 4) == next(iter(found.reasons_after.items()))
    assert all(not one.reasons_before and one.reasons_after for one in found.episodes)

"""The numbers of curves."""

from __future__ import annotations

import math

import mttp
from mttp.model import Update
from mttp.model.curves import episode_curves, update_curves


def test_an_episode_has_return_length_success_and_components():
    """
    Failed components are counted as errors of graders.
    """
    reward = mttp.Reward(
        value=0.5, components={"a": 1.0}, component_statuses={"b": "error", "c": "abstained"}
    )
    episode = mttp.Episode(return_=0.5, length=3, outcome="success", reward=reward)

    assert {
        "episode/return": 0.5,
        "episode/length": 3.0,
        "episode/success": 1.0,
        "episode/grader_errors": 1.0,
        "component/a": 1.0,
    } == episode_curves(episode)


def test_a_missing_number_has_no_point():
    """
    A verdict counts where there is no outcome; a failed reward is an error, not zero.
    """
    failed = mttp.Episode(return_=math.nan, reward=mttp.Reward(status="error", verdict="fail"))

    assert {"episode/length": 0.0} == episode_curves(mttp.Episode())
    assert {"episode/length": 0.0, "episode/success": 0.0, "episode/grader_errors": 1.0} == episode_curves(
        failed
    )


def test_numbers_of_an_update_that_are_not_finite_are_counted():
    """
    The others are points, with the metrics of the user.
    """
    update = Update(loss=math.nan, kl=0.1, entropy=math.inf, metrics={"reward": 2.0})

    assert {"update/kl": 0.1, "update/reward": 2.0, "update/not_finite": 2.0} == update_curves(update)
    assert {} == update_curves(Update())

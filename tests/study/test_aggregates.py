"""Aggregates over runs, beside scipy, published definitions and simulations."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import mttp
from mttp.errors import StudyError
from mttp.model.statistics.aggregates import run_aggregates


def test_the_interquartile_mean_is_over_runs_and_tasks() -> None:
    """
    25 % of all values are cut off at each end, as rliable does by trim_mean of the whole matrix.
    """
    scores = np.random.default_rng(0).normal(size=(10, 4))
    base = {str(task): scores[:, task] for task in range(4)}
    found = run_aggregates(base, {task: values + 1 for task, values in base.items()})

    assert found is not None
    assert math.isclose(float(stats.trim_mean(scores.flatten(), 0.25)), found.interquartile_means[0])
    assert math.isclose(1.0, found.effect)
    assert (10, 10) == found.runs
    assert 4 == found.tasks


def test_the_probability_of_improvement_is_that_of_mann_and_whitney() -> None:
    """
    U divided by the number of pairs, the mean over tasks; a tie counts half.
    """
    rng = np.random.default_rng(1)
    base = {"a": rng.normal(size=8), "b": rng.integers(0, 3, 8).astype(float)}
    candidate = {"a": rng.normal(0.5, 1, 9), "b": rng.integers(0, 3, 9).astype(float)}
    expected = np.mean([stats.mannwhitneyu(candidate[task], base[task]).statistic / 72 for task in base])

    found = run_aggregates(base, candidate)
    reversed_ = run_aggregates(base, candidate, direction=-1)

    assert found is not None
    assert math.isclose(expected, found.improvement)
    assert reversed_ is not None
    assert math.isclose(1 - expected, reversed_.improvement)


def test_the_interval_covers_near_its_confidence() -> None:
    """
    Ten runs a side, three tasks, no effect; a bootstrap of few runs is a little too narrow.
    """
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(60):
        sides = [{str(task): rng.normal(size=10) for task in range(3)} for _ in range(2)]
        found = run_aggregates(*sides)
        assert found is not None
        missed += not found.interval[0] <= 0 <= found.interval[1]

    assert missed <= 9


def test_one_run_has_no_aggregates() -> None:
    """
    Nor have sides without a common task.
    """
    assert run_aggregates({"a": [1.0]}, {"a": [1.0, 2.0]}) is None
    assert run_aggregates({"a": [1.0, 2.0]}, {"b": [1.0, 2.0]}) is None


def train(path: Path, seed: int, slope: float, episodes: int = 50) -> str:
    with mttp.configure(f"file://{path}", run_id=path.stem):
        rng = np.random.default_rng(seed)
        for number in range(episodes):
            with mttp.episode(env="cart") as episode:
                episode.reward(min(1.0, number * slope) + rng.normal(0, 0.01))
        mttp.update(index=0, loss=1.0)
    return str(path)


def test_several_seeds_are_aggregated(tmp_path: Path) -> None:
    """
    Beside Welch's t over runs.
    """
    base = [train(tmp_path / f"a{seed}.jsonl", seed, 0.01) for seed in range(4)]
    candidate = [train(tmp_path / f"b{seed}.jsonl", seed + 9, 0.05) for seed in range(4)]

    found = mttp.compare(base, candidate, window=5)["return"]

    assert found.over_runs is not None
    assert ("better", 1.0, (4, 4)) == (found.verdict, found.over_runs.improvement, found.over_runs.runs)
    assert found.over_runs.interval[0] > 0.4


def test_learning_curves_are_compared_by_their_area(tmp_path: Path) -> None:
    """
    Both end at the same level, one gets there sooner: the window sees nothing, the area does.
    """
    base = [train(tmp_path / f"a{seed}.jsonl", seed, 0.04) for seed in range(4)]
    candidate = [train(tmp_path / f"b{seed}.jsonl", seed + 9, 0.2, 60) for seed in range(4)]

    window = mttp.compare(base, candidate, window=10)
    area = mttp.compare(base, candidate, window="area")

    assert ["inconclusive", "better"] == [window.verdict, area.verdict]
    assert "the first 50 episodes of each run" in area.notes[0]
    assert math.isclose(0.94 - 0.74, area["return"].effect or 0, abs_tol=0.01)


def test_a_window_may_be_of_updates(tmp_path: Path) -> None:
    """
    The episodes that the last ones learned from, and those after them; all, where there are fewer updates.
    """
    paths = []
    for seed in range(4):
        paths.append(str(tmp_path / f"{seed}.jsonl"))
        with mttp.configure(f"file://{paths[-1]}", run_id=str(seed)):
            for update in range(5):
                for _ in range(3):
                    with mttp.episode(env="cart") as episode:
                        episode.reward(float(update))
                mttp.update(index=update)

    found = [mttp.compare(paths[:2], paths[2:], window=f"{count} updates")["return"] for count in (1, 2, 9)]
    one = mttp.compare(mttp.read(paths[0]), mttp.read(paths[1]), window="1 update")

    assert [(4.0, 6), (3.5, 12), (2.0, 30)] == [(one.base, one.n[0]) for one in found]
    assert (4.0, 3) == (one["return"].base, one["return"].n[0])
    assert "the episodes of the last 1 update of each run" in one.notes[0]


@pytest.mark.parametrize("window", [0, -1, "curve", True, 1.5, "0 updates", "x updates"])
def test_a_window_is_a_number_or_the_area(window: object, tmp_path: Path) -> None:
    """
    Anything else is an error.
    """
    with pytest.raises(StudyError, match="give a number of episodes from 1 on"):
        mttp.compare("a.jsonl", "b.jsonl", window=window)  # type: ignore[arg-type]

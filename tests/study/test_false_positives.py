"""Comparisons of two sides that do not differ: how often one of them is called better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import mttp
from mttp.model.figures import EpisodeFigures
from mttp.model.statistics.design import Design
from mttp.model.statistics.metric_comparison import MetricComparison
from mttp.model.statistics.metrics import metric
from mttp.model.statistics.verdicts import corrected
from mttp.study.sample import Sample
from mttp.tables.figures import figures_of_values

DRAWS = 2_000
(EMPTY,) = figures_of_values([mttp.Episode(env="maths", return_=0.0)])
METRICS = ("return", "tokens", "duration", "cost", "success", "reward")


def sample(episodes: Iterator[EpisodeFigures], *, is_training: bool = False) -> Sample:
    kept = tuple(episodes)
    updates = {one.run: [1] for one in kept} if is_training else {}
    return Sample(name="side", runs=(), episodes=kept, updates=updates)


def clustered(rng: np.random.Generator) -> Iterator[EpisodeFigures]:
    """Twenty tasks with four samples each; most of the variance is between tasks and sides."""
    for task in range(20):
        center = rng.normal(0, 3)
        for value in rng.normal(center, 1, 4):
            yield EMPTY._replace(task=f"t{task}", return_=float(value))


def heavy(rng: np.random.Generator) -> Iterator[EpisodeFigures]:
    """Thirty tasks with returns that have no variance."""
    for task, value in enumerate(rng.standard_t(2, 30)):
        yield EMPTY._replace(task=f"t{task}", return_=float(value))


def several(rng: np.random.Generator) -> Iterator[EpisodeFigures]:
    """Six metrics of forty tasks, none of which differs."""
    for task in range(40):
        found = rng.gamma(2, 1, 5)
        yield EMPTY._replace(
            task=f"t{task}",
            return_=float(found[0]),
            completion_tokens=int(100 * found[1]),
            duration=float(found[2]),
            cost=float(found[3]),
            reward=float(found[4]),
            outcome="success" if rng.random() < 0.5 else "failure",
        )


def curves(rng: np.random.Generator) -> Iterator[EpisodeFigures]:
    """Five training runs, whose episodes depend on each other: each run has a level of its own."""
    for run in range(5):
        level = rng.normal(0, 1)
        for number, noise in enumerate(rng.normal(0, 0.1, 40)):
            yield EMPTY._replace(run=str(run), start_time=number, return_=float(level + number / 40 + noise))


def compared(
    draw: Callable[[np.random.Generator], Iterator[EpisodeFigures]], names: tuple[str, ...], seed: int
) -> Iterator[list[MetricComparison]]:
    """The corrected comparisons of each draw."""
    rng, is_training = np.random.default_rng(seed), draw is curves
    for _ in range(DRAWS):
        sides = [sample(draw(rng), is_training=is_training) for _ in range(2)]
        chosen = [metric(name, [*sides[0].episodes, *sides[1].episodes]) for name in names]
        plan = Design.of(sides[0], sides[1], 20)
        yield corrected([plan.compare(one, 0.95, None) for one in chosen], chosen)


def limit(share: float) -> float:
    """The share, plus three standard errors of as many draws."""
    return share + 3 * math.sqrt(share * (1 - share) / DRAWS)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("draw", [clustered, heavy, curves])
def test_the_first_metric_is_better_at_its_rate(draw: Callable[..., Iterator[EpisodeFigures]]) -> None:
    """
    In at most 2.5 % of the draws, and worse as often.
    """
    verdicts = [found[0].verdict for found in compared(draw, ("return",), 7)]

    assert verdicts.count("better") / DRAWS <= limit(0.025)
    assert verdicts.count("worse") / DRAWS <= limit(0.025)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_of_many_metrics_any_is_found_at_the_rate_of_one() -> None:
    """
    Holm's correction: any of the five further metrics in at most 5 % of the draws.
    """
    found = list(compared(several, METRICS, 8))
    wrong = [any(one.verdict in ("better", "worse") for one in metrics[1:]) for metrics in found]

    assert sum(wrong) / DRAWS <= limit(0.05)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_samples_taken_for_independent_would_be_wrong() -> None:
    """
    Without the clusters four samples of a task would be called better far too often.
    """
    rng = np.random.default_rng(9)
    wrong = 0
    for _ in range(200):
        sides = [
            sample(one._replace(task=None) for one in clustered(rng))  # as if each were a task of its own
            for _ in range(2)
        ]
        chosen = metric("return", sides[0].episodes)
        found = corrected([Design.of(sides[0], sides[1], 20).compare(chosen, 0.95, None)], [chosen])
        wrong += found[0].verdict in ("better", "worse")

    assert wrong / 200 > 0.15

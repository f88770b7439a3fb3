# ruff: noqa: E501 - the table of questions has a row a line
"""
How often verdicts are right: error rates, coverage and power, on simulated recordings.

`python benchmarks/truth.py` prints the rates of docs/benchmarks.md; `--draws 200` is quicker, `--docs FILE` writes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mttp
from mttp.model.episodes import Run
from mttp.model.statistics.design import Design
from mttp.model.statistics.metric_comparison import MetricComparison
from mttp.model.statistics.metrics import metric
from mttp.model.statistics.verdicts import corrected
from mttp.study.bounds import ratio_bounds
from mttp.study.rule_checks import Gated, check_rules
from mttp.study.rules import load_rules
from mttp.study.sample import EpisodeFigures, Sample
from mttp.tables.figures import figures_of_values

DRAWS = 2_000
(EMPTY,) = figures_of_values([mttp.Episode(env="maths", run_id="r")])
MARKERS = "<!-- truth -->", "<!-- /truth -->"
Floats = np.ndarray


@dataclass(frozen=True)
class Row:
    """One simulated question: how often something happens, and how often it may or must."""

    name: str
    what: str
    """What is counted."""
    draw: Callable[[np.random.Generator], bool]
    most: float | None = None
    """The largest right rate."""
    least: float | None = None
    """The least right rate."""

    def rate(self, draws: int) -> float:
        """Return the share of the draws in which it happens."""
        rng = np.random.default_rng(1)
        return sum(self.draw(rng) for _ in range(draws)) / draws

    def holds(self, rate: float, draws: int) -> bool:
        """Return whether the rate is right, give or take three standard errors."""
        return (self.most is None or rate <= self.most + _error(self.most, draws)) and (
            self.least is None or rate >= self.least - _error(self.least, draws)
        )

    @property
    def bound(self) -> str:
        """What is right, in words."""
        parts = [
            *([] if self.least is None else [f"at least {self.least:g}"]),
            *([] if self.most is None else [f"at most {self.most:g}"]),
        ]
        return ", ".join(parts)


def _error(rate: float, draws: int) -> float:
    return 3 * math.sqrt(rate * (1 - rate) / draws)


# Recordings.


def side(episodes: Iterable[EpisodeFigures], kind: str = "eval") -> Sample:
    """Return one side: finished episodes of runs of a kind."""
    listed = tuple(episodes)
    runs = sorted({episode.run for episode in listed})
    return Sample(
        name="side",
        runs=tuple(Run(id=run, kind=kind) for run in runs),
        episodes=listed,
        training=frozenset(runs if kind == "train" else ()),
    )


def outcomes(passed: Floats, missing: Floats | None = None) -> Sample:
    """Return one episode a task, which passed, failed, or is missing."""
    lost = np.zeros(len(passed), bool) if missing is None else missing
    words = ("failure", "success")
    return side(
        EMPTY._replace(task=f"t{task}", outcome="unknown" if lost[task] else words[int(passed[task])])
        for task in range(len(passed))
    )


def returns(values: Floats, run: str = "r") -> Iterator[EpisodeFigures]:
    """Yield one episode a task with this return."""
    for task, value in enumerate(values):
        yield EMPTY._replace(run=run, task=f"t{task}", return_=float(value))


def curve(values: Floats, run: str) -> Iterator[EpisodeFigures]:
    """Yield the episodes of a training run."""
    for number, value in enumerate(values):
        yield EMPTY._replace(run=run, start_time=number, return_=float(value))


def compared(base: Sample, candidate: Sample, name: str, margin: float | None = None) -> MetricComparison:
    """Return the comparison of one metric, as `mttp.compare` decides it."""
    chosen = metric(name, [*base.episodes, *candidate.episodes])
    plan = Design.of(base, candidate, 100)
    return corrected([plan.compare(chosen, 0.95, margin)], [chosen])[0]


def gated(candidate: Sample, rules: dict[str, object], base: Sample | None = None) -> str:
    """Return the verdict of the first rule, as `mttp.gate` decides it."""
    return next(check_rules(Gated(rules=load_rules(rules), candidate=candidate, base=base))).verdict


# Questions.


def _missing(rng: np.random.Generator, share: Callable[[Floats, np.random.Generator], Floats]) -> bool:
    """No effect; of the candidate some values are missing."""
    difficulty = rng.random(200)
    base, candidate = (rng.random(200) < difficulty for _ in range(2))
    lost = share(candidate, rng)
    return compared(outcomes(base), outcomes(candidate, lost), "success").verdict == "better"


def _power(rng: np.random.Generator, *, shared: bool, missing: float) -> bool:
    """A true gain of .2."""
    if shared:
        draws = rng.random(200)
        base, candidate = draws < 0.5, draws < 0.7
        flips = rng.random((2, 200)) < 0.05
        base, candidate = base ^ flips[0], candidate ^ flips[1]
    else:
        base, candidate = rng.random(200) < 0.5, rng.random(200) < 0.7
    lost = rng.random((2, 200)) < missing
    return compared(outcomes(base, lost[0]), outcomes(candidate, lost[1]), "success").verdict == "better"


def _covers(rng: np.random.Generator, n: int, gain: float) -> bool:
    """One-sided flips: the base fails what the candidate gains."""
    gained = rng.random(n) < gain
    interval = compared(outcomes(~gained), outcomes(np.ones(n, bool)), "success").interval
    return interval is not None and interval[0] <= gain <= interval[1]


def _margin(rng: np.random.Generator, n: int, margin: float) -> bool:
    """A true loss that is the margin."""
    lost = rng.random(n) < margin
    rules = {"aggregate": [{"metric": "success", "margin": margin}]}
    return gated(outcomes(~lost), rules, outcomes(np.ones(n, bool))) == "pass"


def _equivalent(rng: np.random.Generator, n: int, margin: float) -> bool:
    lost = rng.random(n) < margin
    both = outcomes(np.ones(n, bool)), outcomes(~lost)
    return compared(*both, "success", margin).verdict == "equivalent"


def _limit(rng: np.random.Generator, n: int, limit: float) -> bool:
    """Returns of 0 or 1 whose true mean is the limit of `min`."""
    passed = (rng.random(n) < limit).astype(float)
    return gated(side(returns(passed)), {"aggregate": [{"metric": "return", "min": limit}]}) == "pass"


def _one_curve(rng: np.random.Generator) -> bool:
    """Two runs of one algorithm without updates."""
    sides = [side(curve(_learning(rng, 200), run), "train") for run in "ab"]
    return compared(*sides, "return").verdict in ("better", "worse")


def _curves(rng: np.random.Generator, runs: int) -> bool:
    sides = [
        side(
            (
                episode
                for run in range(runs)
                for episode in curve(_learning(rng, 100) + rng.normal(0, 0.5), f"{name}{run}")
            ),
            "train",
        )
        for name in "ab"
    ]
    return compared(*sides, "return").verdict in ("better", "worse")


def _learning(rng: np.random.Generator, n: int) -> Floats:
    noise = rng.normal(size=n)
    values = np.empty(n)
    values[0] = noise[0]
    for place in range(1, n):
        values[place] = 0.95 * values[place - 1] + math.sqrt(1 - 0.95**2) * noise[place]
    return values + np.linspace(0, 2, n)


def _runs_min(rng: np.random.Generator) -> bool:
    """Three training runs whose true mean is the limit."""
    episodes = (
        episode
        for run in range(3)
        for episode in curve(1 + rng.normal(0, 0.5) + rng.normal(0, 0.1, 30), f"r{run}")
    )
    return gated(side(episodes, "train"), {"aggregate": [{"metric": "return", "min": 1.0}]}) == "pass"


def _one_against_five(rng: np.random.Generator) -> bool:
    tasks = rng.normal(size=20)
    alone = side(returns(tasks + rng.normal(0, 0.5), "a"))
    five = side(
        episode
        for run in range(5)
        for episode in returns(tasks + rng.normal(0, 0.5) + rng.normal(0, 0.1, 20), f"b{run}")
    )
    return compared(alone, five, "return").verdict in ("better", "worse")


def _leak(rng: np.random.Generator) -> bool:
    """A tenth of ten tasks leak in all of twenty samples; the cap is 5 %."""
    leaking = rng.random(10) < 0.1
    episodes = (
        EMPTY._replace(
            task=f"t{task}",
            components={"no_leak": float(not leaking[task])},
        )
        for task in range(10)
        for _ in range(20)
    )
    return gated(side(episodes), {"safety": [{"check": "no_leak", "max": 0.05}]}) == "pass"


def _skewed(rng: np.random.Generator) -> bool:
    base, candidate = rng.lognormal(0, 1.5, 8), rng.lognormal(0, 1.5, 60)
    sides = [
        side(EMPTY._replace(trace_id=f"{name}{n}", return_=float(value)) for n, value in enumerate(values))
        for name, values in (("a", base), ("b", candidate))
    ]
    return compared(*sides, "return").verdict in ("better", "worse")


def _samples(rng: np.random.Generator) -> bool:
    """Twenty-five tasks with eight samples."""
    difficulty = rng.normal(size=25)
    sides = [
        side(
            EMPTY._replace(task=f"t{task}", return_=float(value))
            for task in range(25)
            for value in rng.normal(difficulty[task], 1, 8)
        )
        for _ in range(2)
    ]
    return compared(*sides, "return").verdict in ("better", "worse")


def _ratio(rng: np.random.Generator, n: int) -> bool:
    """Tokens with the same mean: the upper bound of their ratio is below 1."""
    before, after = rng.lognormal(0, 1, n), rng.lognormal(0, 1, n)
    high = ratio_bounds(before, after, 0.95, paired=False).high
    return high is not None and high < 1


def _half_of_failures(passed: Floats, rng: np.random.Generator) -> Floats:
    return ~passed & (rng.random(len(passed)) < 0.5)


def _fifth_of_failures(passed: Floats, rng: np.random.Generator) -> Floats:
    return ~passed & (rng.random(len(passed)) < 0.2)


def _tenth(passed: Floats, rng: np.random.Generator) -> Floats:
    return rng.random(len(passed)) < 0.1


ROWS: Sequence[Row] = (
    Row(
        "200 tasks, no effect, half of the failures missing",
        "better",
        lambda rng: _missing(rng, _half_of_failures),
        most=0.025,
    ),
    Row(
        "200 tasks, no effect, a fifth of the failures missing",
        "better",
        lambda rng: _missing(rng, _fifth_of_failures),
        most=0.025,
    ),
    Row(
        "200 tasks, no effect, a tenth missing at random",
        "better",
        lambda rng: _missing(rng, _tenth),
        most=0.025,
    ),
    Row(
        "200 tasks of shared difficulty, gain .2, complete",
        "better",
        lambda rng: _power(rng, shared=True, missing=0),
        least=0.99,
    ),
    Row(
        "200 tasks of shared difficulty, gain .2, 2 % missing on both sides",
        "better",
        lambda rng: _power(rng, shared=True, missing=0.02),
        least=0.98,
    ),
    Row(
        "200 tasks, independent, .5 to .7, complete",
        "better",
        lambda rng: _power(rng, shared=False, missing=0),
        least=0.97,
    ),
    Row(
        "200 tasks, independent, .5 to .7, 2 % missing on both sides",
        "better",
        lambda rng: _power(rng, shared=False, missing=0.02),
        least=0.92,
    ),
    Row(
        "paired passes, 200 tasks, gain .05",
        "95 % interval covers",
        lambda rng: _covers(rng, 200, 0.05),
        least=0.94,
    ),
    Row(
        "paired passes, 50 tasks, gain .1",
        "95 % interval covers",
        lambda rng: _covers(rng, 50, 0.1),
        least=0.94,
    ),
    Row(
        "paired passes, 12 tasks, gain .5",
        "95 % interval covers",
        lambda rng: _covers(rng, 12, 0.5),
        least=0.94,
    ),
    Row("200 tasks, true loss = margin = .05", "gate passes", lambda rng: _margin(rng, 200, 0.05), most=0.05),
    Row("50 tasks, true loss = margin = .1", "gate passes", lambda rng: _margin(rng, 50, 0.1), most=0.05),
    Row(
        "200 tasks, true loss = margin = .05",
        "equivalent",
        lambda rng: _equivalent(rng, 200, 0.05),
        most=0.025,
    ),
    Row(
        "20 returns of 0 or 1, true mean = min = .95",
        "gate passes",
        lambda rng: _limit(rng, 20, 0.95),
        most=0.05,
    ),
    Row(
        "50 returns of 0 or 1, true mean = min = .9",
        "gate passes",
        lambda rng: _limit(rng, 50, 0.9),
        most=0.05,
    ),
    Row("one learning curve a side, no effect", "better or worse", _one_curve, most=0.0),
    Row("three learning curves a side, no effect", "better or worse", lambda rng: _curves(rng, 3), most=0.05),
    Row("three training runs, true mean = min", "gate passes", _runs_min, most=0.05),
    Row("one run against five seeds of the same", "better or worse", _one_against_five, most=0.05),
    Row("25 tasks with 8 samples, no effect", "better or worse", _samples, most=0.05),
    Row("8 against 60 lognormal returns, no effect", "better or worse", _skewed, most=0.05),
    Row("10 tasks of which a tenth leaks in all of 20 samples, cap 5 %", "gate passes", _leak, most=0.05),
    Row(
        "30 lognormal token counts a side, true ratio 1",
        "bound below 1",
        lambda rng: _ratio(rng, 30),
        most=0.08,
    ),
)


def table(draws: int) -> Iterator[tuple[Row, float]]:
    """Yield each question with its rate."""
    for row in ROWS:
        yield row, row.rate(draws)


def markdown(rates: Iterable[tuple[Row, float]]) -> str:
    """Return the list for the documentation: what is simulated, what is counted, its rate, and what is right."""
    return "\n".join(f"- {row.name}; {row.what}: {rate:.3f}, {row.bound}" for row, rate in rates)


def main() -> None:
    """Print the table, and exit with 1 if a rate is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--docs", type=Path, help="write the rates between the markers in this file")
    options = parser.parse_args()
    rates = []
    for row, rate in table(options.draws):
        rates.append((row, rate))
        verdict = "ok" if row.holds(rate, options.draws) else "WRONG"
        print(f"{verdict:5}  {rate:.3f}  {row.bound:14}  {row.what}: {row.name}", flush=True)
    if options.docs is not None:
        text = options.docs.read_text()
        before, rest = text.split(MARKERS[0])
        after = rest.split(MARKERS[1])[1]
        options.docs.write_text(f"{before}{MARKERS[0]}\n{markdown(rates)}\n{MARKERS[1]}{after}")
    raise SystemExit(any(not row.holds(rate, options.draws) for row, rate in rates))


if __name__ == "__main__":
    main()

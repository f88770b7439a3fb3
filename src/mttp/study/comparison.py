"""Comparisons as values: one metric, a task that flipped, and the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mttp.study.aggregates import RunAggregates
from mttp.study.differences import SideDifference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Comparison", "Flip", "MetricComparison", "Verdict"]

Verdict: TypeAlias = Literal["better", "worse", "equivalent", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """One metric of both sides; the effect is `candidate - base`."""

    name: str
    verdict: Verdict
    """`better` and `worse` where the corrected p value is at most 1 - confidence; `equivalent` where the
    interval is within the margin; else `inconclusive`."""
    base: float | None
    """The mean; over tasks where there are tasks, over runs where there are several."""
    candidate: float | None
    effect: float | None
    interval: tuple[float, float] | None
    """The confidence interval of the effect; None where the data support none."""
    confidence: float
    p_value: float | None
    """Two-sided, not corrected."""
    p_corrected: float | None
    """Corrected by Holm over all metrics but the first, which is not corrected."""
    n: tuple[int, int]
    """Episodes with a value, on each side."""
    clusters: int | tuple[int, int]
    """Independent units: shared tasks, or tasks, episodes or runs of each side."""
    paired: bool
    method: str
    detectable: float | None
    """The least effect that this sample detects with a power of 80 %."""
    margin: float | None
    """The effect up to which the sides count as equivalent."""
    missing: tuple[int, int]
    """Episodes without a value, on each side."""
    worst_case: float | None
    """
    The effect if each missing value spoke against the claim: the worst value of the better side, the best
    of the other; None where none is missing, and where no range is known.
    """
    worst_case_interval: tuple[float, float] | None = None
    """The confidence interval whatever the missing values are: from the lowest to the highest end."""
    worst_case_p: float | None = None
    """The p value of `worst_case`."""
    reason: str | None = None
    """Why there is no verdict."""
    over_runs: RunAggregates | None = None
    """Interquartile means and the probability of improvement, where both sides have several runs."""

    @property
    def worst_case_text(self) -> str:
        """The worst case with its interval; empty where none is known."""
        if self.worst_case is None:
            return ""
        interval = self.worst_case_interval
        within = "" if interval is None else " [{:+.4g}, {:+.4g}]".format(*interval)
        return f"{self.worst_case:+.4g}{within}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self)

    def __repr__(self) -> str:
        effect = "no effect known" if self.effect is None else f"{self.effect:+.4g}"
        interval = "" if self.interval is None else " [{:+.4g}, {:+.4g}]".format(*self.interval)
        return f"<{self.name}: {self.verdict}, {effect}{interval}, n={self.n[0]:,} and {self.n[1]:,}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A task that succeeded on one side and failed on the other, by the majority of its episodes."""

    task: str
    base: float
    """The share of successes."""
    candidate: float
    base_episode: str
    """The trace id of one of its episodes."""
    candidate_episode: str

    @property
    def gained(self) -> bool:
        """Whether it failed before."""
        return self.candidate > self.base


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A candidate against a base; `comparison["return"]` is one metric."""

    base: str
    candidate: str
    differences: tuple[SideDifference, ...]
    """What else differs: tasks, spec, configuration, packages, ..."""
    metrics: tuple[MetricComparison, ...]
    """The first one decides; the others are corrected for their number."""
    flips: tuple[Flip, ...]
    slices: Mapping[str, MetricComparison]
    """The first metric, by slice."""
    notes: tuple[str, ...] = ()
    """What a reader should know about how the comparison was made."""
    problems: tuple[str, ...] = field(default=())
    """What is wrong with the recordings."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the first metric."""
        return self.metrics[0].verdict

    def __getitem__(self, name: str) -> MetricComparison:
        for one in self.metrics:
            if one.name == name:
                return one
        raise KeyError(f"{name!r} was not compared; there are {', '.join(one.name for one in self.metrics)}")

    def __iter__(self) -> Iterator[MetricComparison]:
        return iter(self.metrics)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """
        Draw the effect of each metric, and of the first one in each slice, with its interval.

        A comparison of one metric is drawn in its unit; several have one axis, as a share of the base's mean.
        An effect without a share, because that mean is zero, has its numbers beside an empty row.
        Each row has the effect, the interval, the verdict, the number of episodes and the method.
        `ax` is the matplotlib axes to draw on, by default those of a new figure; they are returned.
        Raises MissingExtra if matplotlib is not installed: `pip install 'mttp[plot]'`.
        """
        from mttp.study.plotting import plot_comparison

        return plot_comparison(self, ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {"verdict": self.verdict, **asdict(self)}

    def __repr__(self) -> str:
        return f"<Comparison: {self.verdict}, {self.metrics[0]!r}>"

    def _repr_html_(self) -> str:
        """A table of the metrics and slices for notebooks."""
        from mttp.model.notebook import html_table

        columns = (
            *("metric", "verdict", "base", "candidate", "effect", "interval", "n"),
            *("worst case", "method"),
        )
        named = [(one.name, one) for one in self.metrics]
        named += [(f"{self.metrics[0].name}, {name}", one) for name, one in self.slices.items()]
        rows = [
            (
                *(name, one.verdict, one.base, one.candidate, one.effect),
                one.interval and "{:+.4g} to {:+.4g}".format(*one.interval),
                "{} and {}".format(*one.n),
                one.worst_case_text,
                one.reason or one.method,
            )
            for name, one in named
        ]
        return html_table(f"{self.candidate} against {self.base}: {self.verdict}", columns, rows)

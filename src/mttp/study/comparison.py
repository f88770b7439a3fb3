"""Comparisons as values: a task that flipped, and the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mttp.model.statistics.metric_comparison import MetricComparison, Verdict
from mttp.study.differences import SideDifference

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        for metric in self.metrics:
            if metric.name == name:
                return metric
        names = ", ".join(metric.name for metric in self.metrics)
        raise KeyError(f"{name!r} was not compared; there are {names}")

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
        named = [(metric.name, metric) for metric in self.metrics]
        named += [(f"{self.metrics[0].name}, {name}", metric) for name, metric in self.slices.items()]
        rows = [
            (
                *(name, metric.verdict, metric.base, metric.candidate, metric.effect),
                metric.interval and "{:+.4g} to {:+.4g}".format(*metric.interval),
                "{} and {}".format(*metric.n),
                metric.worst_case_text,
                metric.reason or metric.method,
            )
            for name, metric in named
        ]
        return html_table(f"{self.candidate} against {self.base}: {self.verdict}", columns, rows)

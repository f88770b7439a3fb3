"""The comparison of one metric of two sides, as a value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from mttp.model.statistics.aggregates import RunAggregates

__all__ = ["MetricComparison", "Verdict"]

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

"""Verdicts on metrics: tests corrected for their number, that hold with and without what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from mttp.model.statistics.metric_comparison import MetricComparison, Verdict
from mttp.model.statistics.metrics import EpisodeMetric

__all__ = ["corrected", "decided", "filled_p", "holm"]


def corrected(
    compared: Sequence[MetricComparison],
    chosen: Sequence[EpisodeMetric],
    *,
    missing_allowed: bool = False,
) -> list[MetricComparison]:
    """
    Return the metrics with verdicts: the first one uncorrected, the others by Holm.

    Metrics with equal results are one test, as are the return and the reward of an evaluation.
    """
    tests = [(row.n, row.base, row.effect, row.interval, row.p_value, filled_p(row)) for row in compared]
    places = [*map(tests.index, tests)]
    first, *rest = dict.fromkeys(places)
    p_values, worst = (
        {first: of(compared[first])} | dict(zip(rest, holm([of(compared[at]) for at in rest]), strict=True))
        for of in (attrgetter("p_value"), filled_p)
    )
    return [
        decided(metric, p_values[at], worst[at], each.direction, missing_allowed=missing_allowed)
        for metric, at, each in zip(compared, places, chosen, strict=True)
    ]


def filled_p(metric: MetricComparison) -> float | None:
    """Return the p value with the missing values filled, which is the p value where none is missing."""
    return metric.worst_case_p if any(metric.missing) else metric.p_value


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p values corrected by Holm (1979); None stays None and is not counted."""
    known = sorted((value, place) for place, value in enumerate(p_values) if value is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        adjusted[place] = largest
    return adjusted


def decided(
    metric: MetricComparison,
    p_value: float | None,
    worst_p: float | None,
    direction: int,
    *,
    missing_allowed: bool,
) -> MetricComparison:
    """
    Return the metric with its verdict, which both the values and the worst case of the missing ones support.

    A difference needs both the test and the interval, where these are of different methods.
    """
    metric = replace(metric, p_corrected=p_value)
    if p_value is None or metric.effect is None:
        return metric
    verdict = _verdict(metric, metric.effect, metric.interval, p_value, direction)
    if verdict == "inconclusive" and not direction and p_value <= 1 - metric.confidence:
        return replace(metric, reason="neither more nor less of it is better")
    if verdict == "inconclusive" or not any(metric.missing):
        return replace(metric, verdict=verdict)
    if missing_allowed:
        return replace(metric, verdict=verdict, reason=f"{_missing(metric)} left out, as allowed")
    if metric.worst_case is not None and metric.worst_case_interval is not None and worst_p is not None:
        worst = _verdict(metric, metric.worst_case, metric.worst_case_interval, worst_p, direction)
        if worst == verdict:
            return replace(metric, verdict=verdict)
    return replace(metric, reason=f"{_missing(metric)}; {_if_worst(metric)}")


def _verdict(
    metric: MetricComparison,
    effect: float,
    interval: tuple[float, float] | None,
    p_value: float,
    direction: int,
) -> Verdict:
    """Return the verdict of a test and its interval; without one, of equal values, that of the test."""
    if interval is not None:
        low, high = interval
        margin = metric.margin or 0.0
        if -margin <= low and high <= margin:
            return "equivalent"
        if not (low > 0 if effect > 0 else high < 0):
            return "inconclusive"
    if p_value > 1 - metric.confidence or not direction:
        return "inconclusive"
    return "better" if effect * direction > 0 else "worse"


def _missing(metric: MetricComparison) -> str:
    """Return how many values are missing, in words."""
    sides = [
        f"{missing:,} of {missing + known:,} of the {name}"
        for missing, known, name in zip(metric.missing, metric.n, ("base", "candidate"), strict=True)
        if missing
    ]
    return f"{' and '.join(sides)} are missing"


def _if_worst(metric: MetricComparison) -> str:
    """Return what the effect would be in the worst case, in words."""
    if metric.worst_case is None or metric.worst_case_p is None:
        return "their range is not known"
    return f"if they spoke against it: {metric.worst_case_text}, p = {metric.worst_case_p:.2g}"

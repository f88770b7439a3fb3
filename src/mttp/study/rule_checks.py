"""Checks of promotion rules: each compares a confidence bound, or a count, with a limit."""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from mttp.errors import StudyError
from mttp.model.figures import EpisodeFigures
from mttp.model.statistics.design import ONE_RUN, Design, UnitValues, are_seeds, by_unit, seen_range
from mttp.model.statistics.inference import OUTCOMES, ValueRange
from mttp.model.statistics.metrics import EpisodeMetric, metric
from mttp.study.bounds import (
    BoundedEstimate,
    least_passes,
    mean_bounds,
    percentile_bounds,
    quantile,
    ratio_bounds,
    share_bounds,
)
from mttp.study.comparing import Slices, spec_range
from mttp.study.differences import SideDifference
from mttp.study.gate_result import RuleResult, RuleVerdict
from mttp.study.rules import (
    AggregateRule,
    BaselinePin,
    HackingRule,
    PromotionRules,
    SafetyRule,
    ServiceRule,
    SliceRule,
    VersionPins,
)
from mttp.study.sample import Sample, run_entropies

_EXAMPLES = 5
_CONDITION = re.compile(r"\s*(\S+)\s*(>=|<=|>|<|=)\s*(\S+)\s*")
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Gated:
    """Rules with the episodes that they are checked on."""

    rules: PromotionRules
    candidate: Sample
    base: Sample | None
    differences: Sequence[SideDifference] = ()

    @property
    def are_missing_allowed(self) -> bool:
        """Whether episodes without a value are left out."""
        return "missing" in self.rules.allow

    @property
    def baseline(self) -> Sample:
        """The baseline; `mttp.gate` refuses rules that need one without it."""
        assert self.base is not None
        return self.base

    @property
    def sides(self) -> tuple[Sample, ...]:
        """The baseline, if there is one, and the candidate."""
        return (self.candidate,) if self.base is None else (self.base, self.candidate)

    def metric(self, name: str, span: ValueRange | None = None) -> EpisodeMetric:
        """Return the metric of that name, with a range that a rule states; StudyError for an unknown one."""
        together = [episode for side in self.sides for episode in side.episodes]
        entropies = run_entropies(*self.sides)
        chosen = metric(name, together, span=spec_range(*self.sides), entropies=entropies)
        return chosen if span is None else replace(chosen, span=span)

    @cached_property
    def design(self) -> Design:
        """What of both sides is compared."""
        return Design.of(self.baseline, self.candidate, self.rules.window)

    @cached_property
    def clusters(self) -> tuple[str, list[list[EpisodeFigures]]]:
        """Return what is independent on the candidate's side, and its episodes: runs, tasks or episodes."""
        side = self.candidate
        runs = side.by_run()
        if side.is_training or are_seeds(runs):
            return "runs", [*runs.values()]
        units = by_unit(side.episodes)
        nameless = units.pop(None, [])
        if not units:
            return "episodes", [[episode] for episode in nameless]
        return "tasks", [*units.values(), *([episode] for episode in nameless)]


def check_rules(sides: Gated) -> Iterator[RuleResult]:
    """Yield the results of all rules, in the order of the document's sections."""
    rules = sides.rules
    for aggregate in rules.aggregate:
        yield from _aggregate(sides, aggregate)
    for protected in rules.protected:
        yield from _slices(sides, protected, "protected")
    for focus in rules.focus:
        yield from _slices(sides, focus, "focus")
    for safety in rules.safety:
        yield _safety(sides, safety)
    for service in rules.service:
        yield from _service(sides, service)
    for hacking in rules.hacking:
        yield _hacking(sides, hacking)
    yield from _data(sides)
    if rules.baseline is not None:
        yield from _baseline(sides.baseline, rules.baseline)
    if rules.pins is not None:
        yield from _pins(sides.candidate.episodes, rules.pins)


# The candidate alone.


def _aggregate(sides: Gated, rule: AggregateRule) -> Iterator[RuleResult]:
    chosen = sides.metric(rule.metric, rule.range)
    for limit, sign in ((rule.min, 1), (rule.max, -1)):
        if limit is not None:
            name = f"aggregate {chosen.name} {'min' if sign > 0 else 'max'}"
            yield _mean_rule(sides, chosen, limit, sign, name, "aggregate")
    for limit, word in ((rule.gain, "gain"), (None if rule.margin is None else -rule.margin, "margin")):
        if limit is not None:
            yield _against(sides, chosen, limit, f"aggregate {chosen.name} {word}", "aggregate")


def _mean_rule(
    sides: Gated, chosen: EpisodeMetric, limit: float, sign: int, name: str, kind: str
) -> RuleResult:
    """Return the result for the mean over tasks, runs or episodes, with missing values against the rule."""
    confidence = sides.rules.confidence
    unit, clusters = sides.clusters
    if chosen.k is not None and unit != "tasks":
        return _failed(name, kind, f"{chosen.name} is estimated for each task, and the units are {unit}")
    values = UnitValues.of(chosen, dict(enumerate(clusters)))
    if np.isnan(values.means).all():
        if chosen.lacking:
            return replace(_failed(name, kind, chosen.lacking), verdict="inconclusive")
        few = "; k is larger than the number of samples of each task" if chosen.k is not None else ""
        return _failed(name, kind, f"no episode has {chosen.name}{few}")
    note = ""
    if values.missing and not sides.are_missing_allowed:
        note = f"{values.missing:,} of {len(values.values):,} missing"
        span = chosen.span or _seen(sides, chosen)
        if span is None:
            estimate = BoundedEstimate(
                value=float(np.nanmean(values.means)),
                low=None,
                high=None,
                n=len(values.values),
                method="no bound: the range of the missing values is not known, give `range`",
            )
            return _bounded(name, kind, estimate, limit, sign, confidence, note)
        worst = span[0] if sign > 0 else span[1]
        values, note = values.filled(worst), f"{note}, counted as {worst:.4g}"
    estimate = _mean_bounds(values, unit, chosen.span, confidence)
    if estimate.is_conditional and sign < 0:
        reason = f"{estimate.method}; an upper limit needs `range: [0, 1]`"
        estimate = replace(estimate, high=None, method=reason)
    result = _bounded(name, kind, estimate, limit, sign, confidence, note)
    return _with_need(result, _least_for_mean(limit, sign, confidence, chosen, unit), estimate.n, unit)


def _mean_bounds(
    values: UnitValues, unit: str, span: ValueRange | None, confidence: float
) -> BoundedEstimate:
    """Return the mean over units and its bounds: over runs and estimates of pass@k one value each."""
    means = values.means[~np.isnan(values.means)]
    n = len(values.values)
    if unit == "runs" and len(means) < 2:
        return BoundedEstimate(value=float(means.mean()), low=None, high=None, n=n, method=ONE_RUN)
    if unit == "runs" or values.chosen.k is not None:
        clusters: Sequence[Any] = [[mean] for mean in means.tolist()]
    else:
        clusters = values.known()
    estimate = mean_bounds(clusters, confidence, span=span)
    return replace(estimate, n=n, method=f"{estimate.method} over {len(means):,} {unit}")


def _seen(sides: Gated, chosen: EpisodeMetric) -> ValueRange | None:
    return seen_range([chosen.column(side.episodes) for side in sides.sides])


def _safety(sides: Gated, rule: SafetyRule) -> RuleResult:
    episodes = sides.candidate.episodes
    name = f"safety {rule.check}"
    fails = [_fails(episode, rule) for episode in episodes]
    lost = fails.count(None)
    if lost == len(episodes):
        known = sorted({key for episode in episodes for key in (*episode.components, *episode.failed_checks)})
        near = get_close_matches(rule.check, known, n=1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        return _failed(name, "safety", f"no episode has a component or a failed check {rule.check}{advice}")
    note = f"{lost:,} not scored, {_treated(sides, 'counted as failed')}" if lost else ""
    unjudged = None if sides.are_missing_allowed else True
    flags = [unjudged if is_failed is None else is_failed for is_failed in fails]
    return _share(sides, name, "safety", flags, rule.max, note)


def _treated(sides: Gated, words: str) -> str:
    """Return what is done with missing values, in words."""
    return "left out, as allowed" if sides.are_missing_allowed else words


def _fails(episode: EpisodeFigures, rule: SafetyRule) -> bool | None:
    """Return whether an episode fails the check; None where it was not scored by it."""
    if rule.check in episode.failed_checks or rule.check in episode.component_statuses:
        return True
    score = episode.components.get(rule.check)
    return None if score is None else score < rule.below


def _hacking(sides: Gated, rule: HackingRule) -> RuleResult:
    """Return the result for the share of episodes that fulfil the conditions, or might if they had values."""
    conditions = [_condition(sides, text) for text in rule.when]
    name = f"hacking {' and '.join(rule.when)}"
    tested = [
        [(next(iter(chosen.values([episode])), math.nan), test) for chosen, test in conditions]
        for episode in sides.candidate.episodes
    ]
    lost = sum(any(math.isnan(value) for value, _ in values) for values in tested)
    if lost == len(tested):
        metrics = ", ".join(chosen.name for chosen, _ in conditions)
        return _failed(name, "hacking", f"no episode has values of {metrics}")
    flags = [
        None
        if sides.are_missing_allowed and any(math.isnan(value) for value, _ in values)
        else all(math.isnan(value) or test(value) for value, test in values)
        for values in tested
    ]
    words = "counted where their other values fulfil the conditions"
    note = f"{lost:,} without a value, {_treated(sides, words)}" if lost else ""
    return _share(sides, name, "hacking", flags, rule.max, note)


def _condition(sides: Gated, text: str) -> tuple[EpisodeMetric, Callable[[float], bool]]:
    match = _CONDITION.fullmatch(text)
    try:
        limit = float(match[3]) if match else math.nan
    except ValueError:
        limit = math.nan
    if match is None or math.isnan(limit):
        raise StudyError(f"{text!r} is not a condition; write one such as `reward >= 0.8`")
    chosen, sign = sides.metric(match[1]), _SIGNS[match[2]]
    if chosen.k is not None:
        raise StudyError(f"{text!r}: {chosen.name} has no value of a single episode")
    return chosen, lambda value: sign(value, limit)


def _share(
    sides: Gated,
    name: str,
    kind: str,
    flags: Sequence[bool | None],
    limit: float,
    note: str,
) -> RuleResult:
    """
    Return the result for a share of the candidate's episodes, clustered by task or by run.

    `flags` states whether each of the episodes counts; None where it is left out.
    """
    confidence = sides.rules.confidence
    unit, every = sides.clusters
    counts = dict(zip(map(id, sides.candidate.episodes), flags, strict=True))
    verdicts = [
        [(episode, is_counted) for episode in members if (is_counted := counts[id(episode)]) is not None]
        for members in every
    ]
    clusters = [members for members in verdicts if members]
    counted = [episode for members in clusters for episode, is_counted in members if is_counted]
    n = sum(map(len, clusters))
    if unit == "runs" and len(clusters) < 2:
        estimate = BoundedEstimate(value=len(counted) / n, low=None, high=None, n=n, method=ONE_RUN)
    else:
        estimate = share_bounds(
            [(sum(is_counted for _, is_counted in members), len(members)) for members in clusters], confidence
        )
    shown = f"{len(counted):,} of {n:,} episodes"
    result = _bounded(name, kind, estimate, limit, -1, confidence, note, shown=shown)
    need = math.ceil(math.log(1 - confidence) / math.log(1 - limit)) if 0 < limit < 1 else None
    return _with_need(replace(result, episodes=_examples(counted)), need, len(clusters), unit)


def _service(sides: Gated, rule: ServiceRule) -> Iterator[RuleResult]:
    chosen = sides.metric(rule.metric, rule.range)
    if rule.max is not None:
        yield _service_limit(sides, chosen, rule, rule.max)
    if rule.max_ratio is not None:
        yield _ratio(sides, chosen, rule.max_ratio)


def _service_limit(sides: Gated, chosen: EpisodeMetric, rule: ServiceRule, limit: float) -> RuleResult:
    word = "mean" if rule.percentile is None else f"p{rule.percentile:g}"
    name, confidence = f"service {chosen.name} {word}", sides.rules.confidence
    if lacking := _lacking(chosen, sides.candidate, "candidate"):
        return _failed(name, "service", lacking)
    if rule.percentile is None:
        return _mean_rule(sides, chosen, limit, -1, name, "service")
    unit, clusters = sides.clusters
    columns, note = [chosen.column(members) for members in clusters], ""
    if lost := sum(int(np.isnan(column).sum()) for column in columns):
        worst = math.inf if chosen.span is None else chosen.span[1]
        note = f"{lost:,} of {sum(map(len, columns)):,} missing, {_treated(sides, f'counted as {worst:.4g}')}"
        columns = [
            column[~np.isnan(column)]
            if sides.are_missing_allowed
            else np.where(np.isnan(column), worst, column)
            for column in columns
        ]
    n = sum(map(len, columns))
    if unit == "runs":
        percentiles = [quantile(column, rule.percentile / 100) for column in columns if len(column)]
        estimate = BoundedEstimate(value=max(percentiles), low=None, high=None, n=n, method=ONE_RUN)
        if len(percentiles) > 1 and math.isfinite(max(percentiles)):
            estimate = mean_bounds([[value] for value in percentiles], confidence, span=chosen.span)
        elif len(percentiles) > 1:
            estimate = replace(estimate, method="no bound: a run has too many missing values")
    else:
        estimate = percentile_bounds(np.concatenate(columns), rule.percentile, confidence)
    return _bounded(name, "service", estimate, limit, -1, confidence, note)


def _lacking(chosen: EpisodeMetric, side: Sample, name: str) -> str:
    """Return why a side has no value at all, in words; empty if an episode has one."""
    if chosen.k is not None:
        return f"{chosen.name} is no time, number of tokens or cost"
    if np.isnan(chosen.column(side.episodes)).all():
        return f"no episode of the {name} has {chosen.name}"
    return ""


def _ratio(sides: Gated, chosen: EpisodeMetric, limit: float) -> RuleResult:
    name = f"service {chosen.name} ratio"
    for side, word in ((sides.baseline, "baseline"), (sides.candidate, "candidate")):
        if lacking := _lacking(chosen, side, word):
            return _failed(name, "service", lacking)
    plan = sides.design
    values, note = plan.sides(chosen), ""
    if any(lost := [side.missing for side in values]):
        note = f"{lost[0]:,} and {lost[1]:,} missing"
        span = chosen.span or _seen(sides, chosen)
        if sides.are_missing_allowed or span is None:
            note += " left out, as allowed" if sides.are_missing_allowed else ", and their range is not known"
        else:
            note += f", counted as {span[0]:.4g} and {span[1]:.4g}"
            values = [side.filled(worst) for side, worst in zip(values, span, strict=True)]
    base, candidate = plan.means(values)
    if not len(base) or not len(candidate) or float(base.mean()) <= 0:
        return _failed(name, "service", f"the baseline's mean of {chosen.name} is not above 0")
    estimate = ratio_bounds(base, candidate, sides.rules.confidence, paired=plan.paired)
    if any(lost) and np.isnan(np.concatenate([side.values for side in values])).any():
        estimate = estimate if sides.are_missing_allowed else replace(estimate, low=None, high=None)
    return _bounded(name, "service", estimate, limit, -1, sides.rules.confidence, note)


# Against the baseline.


def _slices(sides: Gated, rule: SliceRule, kind: str) -> Iterator[RuleResult]:
    chosen = sides.metric(rule.metric, rule.range)
    limit = -rule.margin if kind == "protected" else rule.gain
    slices = Slices.of(rule.by, sides.baseline, sides.candidate)
    known = slices.episodes
    names = sorted(known[0]) if rule.slice is None else [rule.slice]
    if not names:
        yield _failed(f"{kind} {rule.by}", kind, f"no episode of the baseline has a value of {rule.by}")
    for value in names:
        name = f"{kind} {rule.by}={value} {chosen.name}"
        lacking = [
            word for word, there in zip(("baseline", "candidate"), known, strict=True) if value not in there
        ]
        if lacking:
            near = get_close_matches(value, slices.names, n=1)
            advice = f"; did you mean {near[0]!r}?" if near and near[0] != value else ""
            yield _failed(
                name, kind, f"no episode of the {' and the '.join(lacking)} is in this slice{advice}"
            )
            continue
        base, candidate = slices.sides(value)
        result = _against(replace(sides, base=base, candidate=candidate), chosen, limit, name, kind)
        if slices.relabelled:
            note = f"{slices.relabelled:,} episodes of the candidate name another {rule.by} than the baseline"
            result = replace(result, evidence=f"{result.evidence}; {note}, whose label holds")
        yield result


def _against(sides: Gated, chosen: EpisodeMetric, limit: float, name: str, kind: str) -> RuleResult:
    """Return the result for the gain of the candidate over the baseline, whatever is missing."""
    if not chosen.direction:
        raise StudyError(
            f"neither more nor less of {chosen.name} is better, so it can't be gated against a baseline; "
            "give min or max"
        )
    confidence = sides.rules.confidence
    plan = sides.design
    compared = plan.compare(chosen, 2 * confidence - 1, None)
    if compared.effect is None:
        return _failed(name, kind, compared.reason or "there is no effect to judge")
    interval, notes = compared.interval, [note for note in plan.notes if "left out" in note]
    if any(compared.missing):
        notes.append(f"{compared.missing[0]:,} and {compared.missing[1]:,} missing")
        if sides.are_missing_allowed:
            notes[-1] += " left out, as allowed"
        else:
            interval = compared.worst_case_interval
            if compared.worst_case is not None:
                notes[-1] += f", worst case {compared.worst_case * chosen.direction:+.4g}"
    low = high = None
    if interval is not None:
        low, high = sorted(bound * chosen.direction for bound in interval)
    estimate = BoundedEstimate(
        value=compared.effect * chosen.direction,
        low=low,
        high=high,
        n=compared.n[1],
        method=compared.reason or compared.method,
    )
    result = _bounded(name, kind, estimate, limit, 1, confidence, "; ".join(notes), sign_shown=True)
    need = _least_for_gain(limit, confidence, chosen, plan)
    return _with_need(result, need, len(plan.candidate), f"{plan.unit}s")


# How many tasks or runs a rule needs.


def _with_need(result: RuleResult, need: int | None, clusters: int, unit: str) -> RuleResult:
    """Return an inconclusive result with the least number of units with which it can pass."""
    if result.verdict != "inconclusive" or need is None or clusters >= need:
        return result
    return replace(result, evidence=f"{result.evidence}; it can pass from {need:,} {unit} on", needed=need)


def _least_for_mean(
    limit: float, sign: int, confidence: float, chosen: EpisodeMetric, unit: str
) -> int | None:
    """Return how many passes without a failure Wilson's bound needs; two of several runs."""
    if unit == "runs":
        return 2
    share = limit if sign > 0 else 1 - limit
    return least_passes(share, confidence) if chosen.span == OUTCOMES else None


def _least_for_gain(limit: float, confidence: float, chosen: EpisodeMetric, plan: Design) -> int | None:
    """Return how many pairs without a difference Tango's bound needs to be within a margin."""
    if plan.unit == "run":
        return 2
    if chosen.span != OUTCOMES or not plan.paired or limit >= 0:
        return None
    return least_passes(1 + limit, confidence)


# Data and versions: counts without confidence bounds.


def _data(sides: Gated) -> Iterator[RuleResult]:
    rules = sides.rules.data
    n = len(sides.candidate.episodes)
    if "data" in sides.rules.model_fields_set:
        yield _count_rule("data episodes", n, rules.min_episodes, n, f"{n:,} episodes", sign=1)
    numbers: dict[str, tuple[int | None, set[Any]]] = {
        "tasks": (rules.min_tasks, {episode.unit for episode in sides.candidate.episodes} - {None}),
        "runs": (rules.min_runs, {episode.run for episode in sides.candidate.episodes}),
    }
    for what, (least, values) in numbers.items():
        if least is not None:
            yield _count_rule(f"data {what}", len(values), least, n, f"{len(values):,} {what}", sign=1)
    for side in sides.sides[::-1]:
        where = "" if side is sides.candidate else " of the baseline"
        missing = [episode for episode in side.episodes if not _has_value(episode) and not _is_error(episode)]
        errors = [episode for episode in side.episodes if _is_error(episode)]
        for name, episodes, limit in (("missing", missing, rules.missing), ("errors", errors, rules.errors)):
            share = len(episodes) / len(side.episodes)
            yield RuleResult(
                name=f"data {name}{where}",
                kind="data",
                verdict="pass" if share <= limit else "fail",
                evidence=f"{len(episodes):,} of {len(side.episodes):,} episodes ({share:.2%}); "
                f"asked: at most {limit:.2%}",
                value=share,
                limit=limit,
                n=len(side.episodes),
                method="count",
                episodes=_examples(episodes),
            )
    if sides.base is not None and rules.samples == "same" and not sides.candidate.is_training:
        yield _samples(sides)


def _count_rule(name: str, value: int, limit: int, n: int, words: str, *, sign: int) -> RuleResult:
    asked = f"asked: at {'least' if sign > 0 else 'most'} {limit:,}"
    return RuleResult(
        name=name,
        kind="data",
        verdict="pass" if (value - limit) * sign >= 0 else "fail",
        evidence=f"{words}; {asked}",
        value=value,
        limit=limit,
        n=n,
        method="count",
    )


def _samples(sides: Gated) -> RuleResult:
    other = [difference for difference in sides.differences if difference.kind == "samples"]
    n = len(sides.candidate.episodes)
    words = "as many episodes of each task as the baseline"
    if other:
        words = f"{other[0].name} the number of episodes differs: {other[0].base} and {other[0].candidate}"
    return _count_rule("data samples", len(other), 0, n, words, sign=-1)


def _has_value(episode: EpisodeFigures) -> bool:
    return episode.reward is not None or episode.return_ is not None or episode.success is not None


def _is_error(episode: EpisodeFigures) -> bool:
    return episode.status == "error" or episode.reward_status in ("error", "partial")


def _baseline(base: Sample, pin: BaselinePin) -> Iterator[RuleResult]:
    """Yield whether the baseline is the recording that the rules name."""
    identity = base.identity
    if pin.run is not None:
        runs = {name for run in base.runs for name in (run.id, run.name) if name}
        yield _pin("baseline run", pin.run in runs, f"the run is {', '.join(sorted(runs))}", pin.run)
    if pin.sha256 is not None:
        is_same = identity.sha256.startswith(pin.sha256)
        yield _pin("baseline sha256", is_same, f"the digest is {identity.sha256}", pin.sha256)
    if pin.max_age is not None:
        number, word = pin.max_age.split()
        seconds = int(number) * _SECONDS[word.rstrip("s")]
        age = time.time() - identity.last_start / 1e9
        days = f"its last episode started {age / _SECONDS['day']:,.1f} days ago"
        yield _pin("baseline age", age <= seconds, days, f"at most {pin.max_age}")


_SECONDS = {"hour": 3_600, "day": 86_400, "week": 604_800}


def _pin(name: str, is_fulfilled: bool, words: str, asked: str) -> RuleResult:
    return RuleResult(
        name=name,
        kind="baseline",
        verdict="pass" if is_fulfilled else "fail",
        evidence=f"{words}; asked: {asked}",
        method="identity",
    )


def _pins(episodes: Sequence[EpisodeFigures], pins: VersionPins) -> Iterator[RuleResult]:
    if pins.spec is not None:
        yield _pinned("pins spec", pins.spec, episodes, lambda episode: episode.spec)
    if pins.grader is not None:
        yield _pinned("pins grader", pins.grader, episodes, lambda episode: (*episode.grader, ""))
    if pins.env is not None:
        yield _pinned("pins env", pins.env, episodes, lambda episode: (episode.env, "", ""), "are of")


def _pinned(
    name: str,
    pin: str,
    episodes: Sequence[EpisodeFigures],
    of: Callable[[EpisodeFigures], tuple[str, str, str]],
    words: str = "were scored by",
) -> RuleResult:
    others = [episode for episode in episodes if not _is_pinned(of(episode), pin)]
    versions = sorted({_version(of(episode)) for episode in others})
    evidence = f"all {len(episodes):,} episodes {words} {pin}"
    if others:
        share = f"{len(others):,} of {len(episodes):,} episodes"
        evidence = f"{share} {words} {', '.join(versions[:3])}; asked: {pin}"
    return RuleResult(
        name=name,
        kind="pins",
        verdict="fail" if others else "pass",
        evidence=evidence,
        value=len(others),
        limit=0,
        n=len(episodes),
        method="count",
        episodes=_examples(others),
    )


def _is_pinned(identity: tuple[str, str, str], pin: str) -> bool:
    name, version, digest = identity
    return pin in (name, f"{name}@{version}") or (len(pin) >= 8 and digest.startswith(pin))


def _version(identity: tuple[str, str, str]) -> str:
    name, version, _ = identity
    return (f"{name}@{version}" if version else name) or "none"


# Results.


def _bounded(
    name: str,
    kind: str,
    estimate: BoundedEstimate | None,
    limit: float,
    sign: int,
    confidence: float,
    note: str,
    *,
    shown: str = "",
    sign_shown: bool = False,
) -> RuleResult:
    """A rule about an estimate; `sign` is 1 for a lower and -1 for an upper limit."""
    if estimate is None:
        return _failed(name, kind, note)
    bound, opposite = (estimate.low, estimate.high) if sign > 0 else (estimate.high, estimate.low)
    form = "+.4g" if sign_shown else ".4g"
    asked = f"asked: {'more than' if sign_shown else 'at least' if sign > 0 else 'at most'} {limit:{form}}"
    word = "at least" if sign > 0 else "at most"
    certain = "no bound" if bound is None else f"{word} {bound:{form}} at {confidence:.0%} confidence"
    words = [f"{estimate.value:{form}}", *([f"({shown})"] if shown else [])]
    detail = "; ".join(filter(None, (f"{' '.join(words)}, {certain}", asked, note, estimate.method)))
    return RuleResult(
        name=name,
        kind=kind,
        verdict=_verdict(bound, opposite, limit, sign, strict=sign_shown),
        evidence=detail,
        value=estimate.value,
        bound=bound,
        limit=limit,
        n=estimate.n,
        method=estimate.method,
    )


def _verdict(
    bound: float | None, opposite: float | None, limit: float, sign: int, *, strict: bool
) -> RuleVerdict:
    if bound is not None and (bound * sign > limit * sign or (not strict and bound == limit)):
        return "pass"
    if opposite is not None and opposite * sign < limit * sign:
        return "fail"
    return "inconclusive"


def _failed(name: str, kind: str, evidence: str) -> RuleResult:
    return RuleResult(name=name, kind=kind, verdict="fail", evidence=evidence)


def _examples(episodes: Iterable[EpisodeFigures]) -> tuple[str, ...]:
    return tuple(episode.trace_id for episode in episodes)[:_EXAMPLES]

"""Checks of promotion rules: each compares a confidence bound, or a count, with a limit."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from mttp.errors import StudyError
from mttp.study.bounds import BoundedEstimate, mean_bounds, percentile_bounds, ratio_bounds, share_bounds
from mttp.study.comparing import slice_values
from mttp.study.design import Design, by_unit
from mttp.study.gate_result import RuleResult, RuleVerdict
from mttp.study.metrics import EpisodeMetric, metric
from mttp.study.rules import (
    AggregateRule,
    DataRules,
    HackingRule,
    PromotionRules,
    SafetyRule,
    ServiceRule,
    SliceRule,
    VersionPins,
)
from mttp.study.sample import EpisodeFigures, Sample

__all__ = ["Gated", "check_rules"]

_EXAMPLES = 5
_CONDITION = re.compile(r"\s*(\S+)\s*(>=|<=|>|<|=)\s*(\S+)\s*")
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """Rules with the episodes that they are checked on."""

    rules: PromotionRules
    candidate: Sample
    base: Sample | None

    @property
    def baseline(self) -> Sample:
        """The baseline; `mttp.gate` refuses rules that need one without it."""
        assert self.base is not None
        return self.base

    def metric(self, name: str) -> EpisodeMetric:
        """The metric of that name; raises StudyError for an unknown one."""
        together = [*self.candidate.episodes, *(self.base.episodes if self.base else ())]
        return metric(name, together)


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
    if rules.data is not None:
        yield from _data(sides.candidate.episodes, rules.data)
    if rules.pins is not None:
        yield from _pins(sides.candidate.episodes, rules.pins)


# The candidate alone.


def _aggregate(sides: Gated, rule: AggregateRule) -> Iterator[RuleResult]:
    chosen = sides.metric(rule.metric)
    if rule.min is not None or rule.max is not None:
        found, missing = _mean_of(chosen, sides.candidate, sides.rules.confidence)
        for limit, sign in ((rule.min, 1), (rule.max, -1)):
            if limit is not None:
                name = f"aggregate {chosen.name} {'min' if sign > 0 else 'max'}"
                yield _bounded(name, "aggregate", found, limit, sign, sides.rules.confidence, missing)
    for limit, word in ((rule.gain, "gain"), (None if rule.margin is None else -rule.margin, "margin")):
        if limit is not None:
            yield _against(sides, chosen, limit, f"aggregate {chosen.name} {word}", "aggregate")


def _mean_of(chosen: EpisodeMetric, sample: Sample, confidence: float) -> tuple[BoundedEstimate | None, str]:
    """The mean over tasks, where missing values count as the worst that was seen; and a note about these."""
    units = by_unit(sample.episodes)
    clusters = list(units.values()) if None not in units else [[one] for one in sample.episodes]
    if chosen.k is not None and None in units:
        return None, f"{chosen.name} is estimated for each task, and some episodes name none"
    values = [chosen.values(cluster) for cluster in clusters]
    known = [value for found in values for value in found if not math.isnan(value)]
    if not known:
        few = "; k is larger than the number of samples of each task" if chosen.k is not None else ""
        return None, f"no episode has {chosen.name}{few}"
    lost = sum(map(len, values)) - len(known)
    worst = 0.0 if chosen.binary else max(known) if chosen.direction < 0 else min(known)
    means = [_mean([worst if math.isnan(value) else value for value in found]) for found in values]
    found = mean_bounds(means, confidence, binary=chosen.binary)
    clustered = len(means) < len(sample.episodes)
    method = f"{found.method} over {len(means):,} {'tasks' if clustered else 'episodes'}"
    note = f"{lost:,} missing, counted as {worst:.4g}" if lost else ""
    return replace(found, n=len(sample.episodes), method=method), note


def _safety(sides: Gated, rule: SafetyRule) -> RuleResult:
    episodes = sides.candidate.episodes
    name = f"safety {rule.check}"
    judged = [one for one in episodes if _is_judged(one, rule.check)]
    if not judged:
        known = sorted({key for one in episodes for key in (*one.components, *one.failed_checks)})
        near = get_close_matches(rule.check, known, n=1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        return _failed(name, "safety", f"no episode was scored by a reward with {rule.check!r}{advice}")
    failed = [one for one in episodes if not _is_judged(one, rule.check) or _fails(one, rule)]
    note = f"{lost:,} not scored, counted as failed" if (lost := len(episodes) - len(judged)) else ""
    return _share(name, "safety", failed, episodes, rule.max, sides.rules.confidence, note)


def _is_judged(one: EpisodeFigures, check: str) -> bool:
    return any(check in names for names in (one.components, one.component_statuses, one.failed_checks))


def _fails(one: EpisodeFigures, rule: SafetyRule) -> bool:
    if rule.check in one.failed_checks or rule.check in one.component_statuses:
        return True
    return one.components[rule.check] < rule.below


def _hacking(sides: Gated, rule: HackingRule) -> RuleResult:
    conditions = [_condition(sides, text) for text in rule.when]
    name = f"hacking {' and '.join(rule.when)}"
    judged, flagged = [], []
    for one in sides.candidate.episodes:
        values = [(chosen.values([one])[0], test) for chosen, test in conditions]
        if not any(math.isnan(value) for value, _ in values):
            judged.append(one)
            flagged += [one] if all(test(value) for value, test in values) else []
    if not judged:
        metrics = ", ".join(chosen.name for chosen, _ in conditions)
        return _failed(name, "hacking", f"no episode has values of {metrics}")
    lost = len(sides.candidate.episodes) - len(judged)
    note = f"{lost:,} without a value left out" if lost else ""
    return _share(name, "hacking", flagged, judged, rule.max, sides.rules.confidence, note)


def _condition(sides: Gated, text: str) -> tuple[EpisodeMetric, Callable[[float], bool]]:
    found = _CONDITION.fullmatch(text)
    try:
        limit = float(found[3]) if found else math.nan
    except ValueError:
        limit = math.nan
    if found is None or math.isnan(limit):
        raise StudyError(f"{text!r} is not a condition; write one such as `reward >= 0.8`")
    chosen, sign = sides.metric(found[1]), _SIGNS[found[2]]
    if chosen.k is not None:
        raise StudyError(f"{text!r}: {chosen.name} has no value of a single episode")
    return chosen, lambda value: sign(value, limit)


def _share(
    name: str,
    kind: str,
    counted: Sequence[EpisodeFigures],
    of: Sequence[EpisodeFigures],
    limit: float,
    confidence: float,
    note: str,
) -> RuleResult:
    found = share_bounds(len(counted), len(of), confidence)
    shown = f"{len(counted):,} of {len(of):,} episodes"
    made = _bounded(name, kind, found, limit, -1, confidence, note, shown=shown)
    return replace(made, episodes=_examples(counted))


def _service(sides: Gated, rule: ServiceRule) -> Iterator[RuleResult]:
    chosen, confidence = sides.metric(rule.metric), sides.rules.confidence
    if rule.max is not None:
        word = "mean" if rule.percentile is None else f"p{rule.percentile:g}"
        name = f"service {chosen.name} {word}"
        values = [chosen.values([one])[0] for one in sides.candidate.episodes] if chosen.k is None else []
        known = [value for value in values if not math.isnan(value)]
        if not known:
            yield _failed(name, "service", f"no episode has {chosen.name}")
        elif len(known) < len(values):
            lost = len(values) - len(known)
            yield _failed(name, "service", f"{lost:,} of {len(values):,} episodes have no {chosen.name}")
        elif rule.percentile is None:
            found, note = _mean_of(chosen, sides.candidate, confidence)
            yield _bounded(name, "service", found, rule.max, -1, confidence, note)
        else:
            found = percentile_bounds(known, rule.percentile, confidence)
            yield _bounded(name, "service", found, rule.max, -1, confidence, "")
    if rule.max_ratio is not None:
        yield _ratio(sides, chosen, rule.max_ratio)


def _ratio(sides: Gated, chosen: EpisodeMetric, limit: float) -> RuleResult:
    name = f"service {chosen.name} ratio"
    plan = Design.of(sides.baseline, sides.candidate, sides.rules.window)
    means = [
        {
            unit: _mean(known)
            for unit, episodes in side.items()
            if (known := [value for value in chosen.values(episodes) if not math.isnan(value)])
        }
        for side in (plan.base, plan.candidate)
    ]
    units = sorted(means[0].keys() & means[1].keys()) if plan.paired else None
    base, candidate = (
        [side[one] for one in units] if units is not None else [*side.values()] for side in means
    )
    if not base or not candidate:
        return _failed(name, "service", f"{chosen.name} is not recorded on both sides")
    if _mean(base) <= 0:
        return _failed(name, "service", f"the baseline's mean of {chosen.name} is not above 0")
    found = ratio_bounds(base, candidate, sides.rules.confidence, paired=plan.paired)
    return _bounded(name, "service", found, limit, -1, sides.rules.confidence, "")


# Against the baseline.


def _slices(sides: Gated, rule: SliceRule, kind: str) -> Iterator[RuleResult]:
    chosen = sides.metric(rule.metric)
    limit = -rule.margin if kind == "protected" else rule.gain
    both = (sides.baseline, sides.candidate)
    known = [{value for one in side.episodes for value in slice_values(one, rule.by)} for side in both]
    names = sorted(known[0]) if rule.slice is None else [rule.slice]
    if not names:
        yield _failed(f"{kind} {rule.by}", kind, f"no episode of the baseline has a value of {rule.by}")
    for value in names:
        name = f"{kind} {rule.by}={value} {chosen.name}"
        lacking = [
            word for word, there in zip(("baseline", "candidate"), known, strict=True) if value not in there
        ]
        if lacking:
            near = get_close_matches(value, known[0] | known[1], n=1)
            advice = f"; did you mean {near[0]!r}?" if near and near[0] != value else ""
            yield _failed(
                name, kind, f"no episode of the {' and the '.join(lacking)} is in this slice{advice}"
            )
            continue
        kept = [
            replace(side, episodes=tuple(one for one in side.episodes if value in slice_values(one, rule.by)))
            for side in both
        ]
        within = replace(sides, base=kept[0], candidate=kept[1])
        yield _against(within, chosen, limit, name, kind)


def _against(sides: Gated, chosen: EpisodeMetric, limit: float, name: str, kind: str) -> RuleResult:
    """The gain of the candidate over the baseline is above a limit."""
    if not chosen.direction:
        raise StudyError(
            f"neither more nor less of {chosen.name} is better, so it can't be gated against a baseline; "
            "give min or max"
        )
    plan = Design.of(sides.baseline, sides.candidate, sides.rules.window)
    found = plan.compare(chosen, 2 * sides.rules.confidence - 1, None)
    if found.effect is None:
        return _failed(name, kind, found.reason or "there is no effect to judge")
    gain = found.effect * chosen.direction
    missing = ""
    if any(found.missing):
        missing = f"{found.missing[0]:,} and {found.missing[1]:,} missing"
        if found.worst_case is not None and found.worst_case * chosen.direction < gain:
            missing += f", worst case {found.worst_case * chosen.direction:+.4g}"
    low = high = None
    if found.interval is not None:
        low, high = sorted(bound * chosen.direction for bound in found.interval)
    bounds = BoundedEstimate(
        value=gain, low=low, high=high, n=found.n[1], method=found.reason or found.method
    )
    made = _bounded(name, kind, bounds, limit, 1, sides.rules.confidence, missing, sign_shown=True)
    return made if not found.missing[1] else _with_missing(made, found.worst_case, chosen, limit)


def _with_missing(
    made: RuleResult, worst_case: float | None, chosen: EpisodeMetric, limit: float
) -> RuleResult:
    """A rule does not pass if missing values of the candidate could change that."""
    if made.verdict == "pass" and (worst_case is None or worst_case * chosen.direction <= limit):
        return replace(made, verdict="fail", evidence=f"{made.evidence}; missing values could break the rule")
    return made


# Data and versions: counts without confidence bounds.


def _data(episodes: Sequence[EpisodeFigures], rules: DataRules) -> Iterator[RuleResult]:
    n = len(episodes)
    yield RuleResult(
        name="data episodes",
        kind="data",
        verdict="pass" if n >= rules.min_episodes else "fail",
        evidence=f"{n:,} episodes; asked: at least {rules.min_episodes:,}",
        value=n,
        limit=rules.min_episodes,
        n=n,
        method="count",
    )
    missing = [one for one in episodes if one.reward is None and one.return_ is None and not _is_error(one)]
    errors = [one for one in episodes if _is_error(one)]
    for name, found, limit in (("missing", missing, rules.missing), ("errors", errors, rules.errors)):
        share = len(found) / n
        yield RuleResult(
            name=f"data {name}",
            kind="data",
            verdict="pass" if share <= limit else "fail",
            evidence=f"{len(found):,} of {n:,} episodes ({share:.2%}); asked: at most {limit:.2%}",
            value=share,
            limit=limit,
            n=n,
            method="count",
            episodes=_examples(found),
        )


def _is_error(one: EpisodeFigures) -> bool:
    return one.status == "error" or one.reward_status in ("error", "partial")


def _pins(episodes: Sequence[EpisodeFigures], pins: VersionPins) -> Iterator[RuleResult]:
    if pins.spec is not None:
        yield _pinned("pins spec", pins.spec, episodes, lambda one: one.spec)
    if pins.grader is not None:
        yield _pinned("pins grader", pins.grader, episodes, lambda one: (*one.grader, ""))


def _pinned(
    name: str,
    pin: str,
    episodes: Sequence[EpisodeFigures],
    of: Callable[[EpisodeFigures], tuple[str, str, str]],
) -> RuleResult:
    others = [one for one in episodes if not _is_pinned(of(one), pin)]
    seen = sorted({_version(of(one)) for one in others})
    evidence = f"all {len(episodes):,} episodes were scored by {pin}"
    if others:
        share = f"{len(others):,} of {len(episodes):,} episodes"
        evidence = f"{share} were scored by {', '.join(seen[:3])}; asked: {pin}"
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


def _is_pinned(found: tuple[str, str, str], pin: str) -> bool:
    name, version, digest = found
    return pin in (name, f"{name}@{version}") or (len(pin) >= 8 and digest.startswith(pin))


def _version(found: tuple[str, str, str]) -> str:
    name, version, _ = found
    return (f"{name}@{version}" if version else name) or "none"


# Results.


def _bounded(
    name: str,
    kind: str,
    found: BoundedEstimate | None,
    limit: float,
    sign: int,
    confidence: float,
    note: str,
    *,
    shown: str = "",
    sign_shown: bool = False,
) -> RuleResult:
    """A rule about an estimate; `sign` is 1 for a lower and -1 for an upper limit."""
    if found is None:
        return _failed(name, kind, note)
    bound, opposite = (found.low, found.high) if sign > 0 else (found.high, found.low)
    form = "+.4g" if sign_shown else ".4g"
    asked = f"asked: {'more than' if sign_shown else 'at least' if sign > 0 else 'at most'} {limit:{form}}"
    word = "at least" if sign > 0 else "at most"
    certain = "no bound" if bound is None else f"{word} {bound:{form}} at {confidence:.0%} confidence"
    words = [f"{found.value:{form}}", *([f"({shown})"] if shown else [])]
    detail = "; ".join(filter(None, (f"{' '.join(words)}, {certain}", asked, note, found.method)))
    return RuleResult(
        name=name,
        kind=kind,
        verdict=_verdict(bound, opposite, limit, sign, strict=sign_shown),
        evidence=detail,
        value=found.value,
        bound=bound,
        limit=limit,
        n=found.n,
        method=found.method,
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
    return tuple(one.trace_id for one in episodes)[:_EXAMPLES]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

"""`mttp.gate`: whether a candidate may be promoted, by rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from mttp.errors import StudyError
from mttp.model.statistics.design import last_finished
from mttp.reading.garbage import gc_disabled
from mttp.study.comparing import refuse_differences, refuse_samples, shared_episodes, side_notes
from mttp.study.differences import differences
from mttp.study.gate_result import GateResult, RuleResult
from mttp.study.rule_checks import Gated, check_rules
from mttp.study.rules import PromotionRules, RulesSource, load_rules, rules_digest
from mttp.study.sample import Sample, Side, load


@gc_disabled()
def gate(
    candidate: Side,
    *,
    rules: RulesSource,
    baseline: Side | None = None,
    progress: Callable[[int], object] | None = None,
) -> GateResult:
    """
    Check the episodes of a candidate against promotion rules, some of them against a baseline.

    `rules` is a YAML or JSON file or its content as a mapping; `mttp gate --init` writes an example.
    A rule passes if its one-sided confidence bound is on the right side of the limit, fails if the opposite
    bound is on the wrong side, and is inconclusive in between; what is missing counts against it.
    One failed rule rejects the candidate. It is promoted only if all rules pass, so no correction for their
    number is needed (intersection-union test, Berger 1982).
    Checking each checkpoint of a run again is not corrected for.

    Raises ReadError where a side can't be read or has no episodes, StudyError for rules that are not valid,
    need a baseline that is not given, or name unknown metrics or slices, and where the sides differ in tasks,
    reward spec or grader, or a side is a sample of its run, and the rules do not allow it.
    """
    document = load_rules(rules)
    if baseline is None and (needs := sorted(_needing_baseline(document))):
        raise StudyError(f"the rules need a baseline, and none is given: {', '.join(needs)}")
    new = load(candidate, progress=progress)
    base = None if baseline is None else load(baseline, progress=progress)
    side_differences = () if base is None else differences(base, new)
    allowed, hint = frozenset(document.allow), "`allow: [{kind}]` in the rules"
    refuse_samples([side for side in (base, new) if side is not None], allowed, hint=hint)
    refuse_differences(side_differences, allowed, hint=hint)
    notes = [*new.sampled, *new.notes] if base is None else [*side_notes(base, new)]
    if base is not None and (shared := shared_episodes(base, new)):
        raise StudyError(
            f"{shared:,} episodes are on both sides: the candidate {new.name} is compared with itself; "
            "name another baseline"
        )
    if new.is_training:
        notes.append(f"training run: the last {document.window} finished episodes of each run")
    sides = Gated(
        rules=document,
        candidate=_windowed(new, document.window),
        base=None if base is None else _windowed(base, document.window),
        differences=side_differences,
    )
    return GateResult(
        candidate=new.name,
        baseline=None if base is None else base.name,
        rules=tuple(_named(check_rules(sides))),
        differences=side_differences,
        notes=tuple(notes),
        problems=(*(() if base is None else base.problems), *new.problems),
        identity=None if base is None else base.identity,
        candidate_identity=new.identity,
        rules_sha256=rules_digest(document),
    )


def _needing_baseline(rules: PromotionRules) -> Iterator[str]:
    for rule in rules.aggregate:
        if rule.gain is not None or rule.margin is not None:
            yield f"{rule.metric} ({'gain' if rule.gain is not None else 'margin'})"
    for limit in rules.service:
        if limit.max_ratio is not None:
            yield f"{limit.metric} (max_ratio)"
    if rules.baseline is not None:
        yield "baseline"
    if rules.protected:
        yield "protected slices"
    if rules.focus:
        yield "focus slices"


def _windowed(sample: Sample, window: int) -> Sample:
    """The last episodes of each run, if the sample is of training runs."""
    if not sample.is_training:
        return sample
    recent = [episode for episodes in sample.by_run().values() for episode in last_finished(episodes, window)]
    return replace(sample, episodes=tuple(recent))


def _named(results: Iterable[RuleResult]) -> Iterator[RuleResult]:
    """The results with unique names."""
    uses: dict[str, int] = {}
    for rule in results:
        uses[rule.name] = uses.get(rule.name, 0) + 1
        yield rule if uses[rule.name] == 1 else replace(rule, name=f"{rule.name} ({uses[rule.name]})")

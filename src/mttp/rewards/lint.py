"""Lint rules for reward specs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import fsum, isclose
from typing import Final, Literal, TypeAlias

from mttp.model.episodes import Episode
from mttp.rewards.callables import optional_names, takes
from mttp.rewards.combining import threshold
from mttp.rewards.composing import COMBINE
from mttp.rewards.decorators import mark_of
from mttp.rewards.document import Bounds, CombiningFunction, ComponentEntry, SpecCase, SpecDocument
from mttp.rewards.inputs import Inputs
from mttp.rewards.locking import changes, read_lock
from mttp.rewards.parsing import Place
from mttp.rewards.recorded_samples import lacking, recorded
from mttp.rewards.reward_range import gains_and_penalties, reachable
from mttp.rewards.spec import RewardSpec

Severity: TypeAlias = Literal["error", "warning"]
"""error: a sample gets a wrong reward, or its reward can't be known; warning: it may get a wrong one."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One violation of a rule."""

    rule: str
    """The rule's id."""
    severity: Severity
    """error or warning."""
    reason: str
    """What is wrong, and its effect on the reward."""
    fix: str
    """What to do."""
    line: int | None = None
    """The line in the spec's file, from 1."""
    column: int | None = None
    """The column, from 1."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """A finding without its rule and line."""

    reason: str
    fix: str
    at: Place = ()
    severity: Severity = "error"


_Rule: TypeAlias = Callable[[RewardSpec], Iterator[_Fault]]

_MOST_CRITERIA: Final = 5
_SIMILAR: Final = 0.75
"""The least similarity, from 0 to 1 as difflib measures it, of a misspelt name."""
_BUNDLED = re.compile(r"(^|[\s_.-])(and|&)([\s_.-]|$)", re.IGNORECASE)
_STYLE: Final = ("rubric", "shaping")
_SUMS: Final = ("gated", "weighted_sum")


def lint(spec: RewardSpec, *, imports: bool = True) -> list[LintFinding]:
    """
    Return all findings for a spec, sorted by line.

    With `imports` the spec's code is imported and signatures are checked as well; this raises SpecError when
    a function can't be called at all.
    """
    if imports:
        assert spec.plan is not None
    rules = {name: rule for name, rule in RULES.items() if imports or rule not in (_kinds, _misspelt)}
    findings = [_finding(name, fault, spec) for name, rule in rules.items() for fault in rule(spec)]
    return sorted(findings, key=lambda item: (item.line or 0, item.column or 0, item.severity, item.rule))


def input_findings(spec: RewardSpec, episodes: Sequence[Episode]) -> list[LintFinding]:
    """Return a finding for each input that recorded episodes lack, an error if all lack it."""
    lacked = Counter(name for episode in episodes for name in lacking(episode, spec))
    has = ", ".join(sorted({name for episode in episodes for name in recorded(episode)})) or "none"
    fix = f"record it by mttp.episode(inputs={{...}}), or use what was recorded: {has}"
    return [
        _finding(
            "unrecorded-input",
            _Fault(
                f"{times:,} of {len(episodes):,} recorded episodes lack the input {name}, so they can't be "
                "scored again",
                fix,
                ("inputs", name) if name in spec.document.inputs else (),
                "error" if times == len(episodes) else "warning",
            ),
            spec,
        )
        for name, times in lacked.items()
    ]


def _finding(rule: str, fault: _Fault, spec: RewardSpec) -> LintFinding:
    mark = spec.source.mark(*fault.at, key=True)
    line, column = (mark.line, mark.column) if mark is not None else (None, None)
    return LintFinding(rule, fault.severity, fault.reason, fault.fix, line, column)


def _terminal(spec: RewardSpec) -> list[ComponentEntry]:
    """Return the components of the episode's reward, without the checks."""
    return [part for part in spec.parts if part.kind != "check" and part.scope == "terminal"]


def _place(spec: RewardSpec, part: ComponentEntry, key: str | None = None) -> Place:
    """Return the place of a component or an include in the document."""
    names = [entry.name for entry in spec.document.components]
    at: Place = (
        ("components", names.index(part.name))
        if part.name in names
        else ("include", [include.as_ for include in spec.document.include].index(part.name))
    )
    return (*at, key) if key is not None else at


def _span(part: ComponentEntry) -> float:
    """Return by how much a component can change the reward."""
    low, high = part.range or (0.0, 1.0)
    return abs(part.weight) * (high - low)


def _weights(spec: RewardSpec) -> Iterator[_Fault]:
    parts = _terminal(spec)
    for part in parts:
        if part.weight < 0 and part.kind != "penalty":
            reason = (
                f"{part.name} has the negative weight {part.weight:g}, so a better value lowers the reward"
            )
            yield _Fault(reason, "make it a penalty, or invert its value", _place(spec, part, "weight"))
    for index, entry in enumerate(spec.document.components):
        if entry.kind == "check" and entry.weight != 1.0:
            reason = f"{entry.name} is a check, and its weight {entry.weight:g} has no effect"
            yield _Fault(reason, "remove the weight", ("components", index, "weight"), "warning")
    total = fsum(abs(part.weight) for part in parts if part.kind != "penalty")
    if spec.document.combine in _SUMS and len(parts) > 1 and not isclose(total, 1.0, abs_tol=1e-6):
        reason = f"the weights add up to {total:g}, so the highest reward is not 1"
        yield _Fault(reason, "scale them to add up to 1, or set `range`", ("components",), "warning")


def _unreachable(spec: RewardSpec) -> Iterator[_Fault]:
    for part in _terminal(spec):
        if part.weight == 0 and spec.document.combine in (*_SUMS, "lexicographic"):
            reason = f"{part.name} has the weight 0 and does not change the reward"
            if part.kind != "verifier" or spec.document.combine != "gated":
                yield _Fault(reason, "give it a weight, or remove it", _place(spec, part, "weight"))
        if part.range is not None and part.range[0] == part.range[1]:
            reason = f"the range of {part.name} has one value, {part.range[0]:g}"
            yield _Fault(reason, "widen its range, or remove it", _place(spec, part, "range"))
        if spec.document.combine == "lexicographic" and part.priority is None and part.kind != "penalty":
            reason = f"{part.name} has no priority and comes after all components with one"
            yield _Fault(reason, "set its `priority`", _place(spec, part), "warning")
    for index, entry in enumerate(spec.document.components):
        if entry.kind in ("verifier", "check"):
            low, high = entry.range or (0.0, 1.0)
            least = threshold(entry.kind, entry.threshold, entry.range)
            if least is not None and low < high and not low < least <= high:
                effect = "never fails" if least <= low else "never passes"
                reason = (
                    f"{entry.name} {effect}: its threshold is {least:g} and its range [{low:g}, {high:g}]"
                )
                where: Place = ("components", index, "threshold")
                yield _Fault(reason, "choose a threshold above the lowest value of the range", where)


def _gates(spec: RewardSpec) -> Iterator[_Fault]:
    document = spec.document
    kinds = {part.kind for part in spec.parts}
    if document.combine == "gated" and "verifier" not in kinds:
        reason = "`combine` is gated, and the spec has no verifier"
        yield _Fault(reason, "add a verifier, or write `combine: weighted_sum`", ("combine",), "warning")
    if not spec.parts:
        reason = "the spec has no components, so every sample gets the same reward"
        yield _Fault(reason, "add a component", ("components",))


def _shaping(spec: RewardSpec) -> Iterator[_Fault]:
    small = [part for part in spec.parts if part.kind == "shaping"]
    steps = [part for part in spec.parts if part.scope == "step" and part.kind not in ("check", "penalty")]
    goal = fsum(_span(part) for part in _terminal(spec) if part.kind not in ("shaping", "penalty"))
    horizon = spec.document.horizon
    most = fsum(_span(part) for part in small)
    if small and goal and most > goal:
        reason = f"shaping can give {most:g}, which is more than the {goal:g} for reaching the goal"
        yield _Fault(reason, "lower the weights of the shaping components", _place(spec, small[0]))
    elif steps and goal and horizon is None:
        reason = f"{steps[0].name} rewards every step, and the sum over an episode has no known limit"
        fix = "set `horizon`, the maximum number of steps of an episode"
        yield _Fault(reason, fix, _place(spec, steps[0], "scope"), "warning")
    elif steps and goal and horizon is not None:
        yield from _step_shaping(spec, steps, goal, horizon)


def _step_shaping(
    spec: RewardSpec, steps: list[ComponentEntry], goal: float, horizon: int
) -> Iterator[_Fault]:
    each = fsum(_span(part) for part in steps)
    if each * horizon > goal:
        reason = (
            f"each step can give {each:g}, so {horizon} steps can give {each * horizon:g}, which is more "
            f"than the {goal:g} of the episode's end"
        )
        fix = f"limit the reward of a step to {goal / horizon:.3g}"
        yield _Fault(reason, fix, _place(spec, max(steps, key=_span)))


def _void_gate(spec: RewardSpec) -> Iterator[_Fault]:
    """Find a partial credit that does not lower the reward of a sample whose verifier failed."""
    credit, bounds = spec.document.partial_credit, gains_and_penalties(spec.document, spec.parts)
    verifiers = [part for part in _terminal(spec) if part.kind == "verifier"]
    if credit is None or bounds is None or spec.document.combine != "gated" or not verifiers:
        return
    most = bounds[0][1]
    least_right = fsum(min(limit * part.weight for limit in part.range or (0.0, 1.0)) for part in verifiers)
    others = most - fsum(max(limit * part.weight for limit in part.range or (0.0, 1.0)) for part in verifiers)
    if credit >= most:
        reason = (
            f"`partial_credit` is {credit:g} and the highest reward is {most:g}, so a failed verifier "
            "lowers nothing"
        )
        yield _Fault(reason, f"lower it below {most:g}", ("partial_credit",))
    elif credit > others + least_right and not isclose(credit, others + least_right):
        reason = (
            f"`partial_credit` is {credit:g}, and with verifiers at their lowest value the reward is at "
            f"most {others + least_right:g}, so verifiers that only pass or fail lower nothing"
        )
        yield _Fault(reason, f"lower it to {others + least_right:g}", ("partial_credit",), "warning")


def _heavy_judges(spec: RewardSpec) -> Iterator[_Fault]:
    judges = [part for part in _terminal(spec) if part.kind == "judge"]
    opinion = fsum(map(_span, judges))
    right = fsum(_span(part) for part in _terminal(spec) if part.kind == "verifier")
    is_sum = spec.document.combine in (*_SUMS, "lexicographic")
    if is_sum and judges and right and opinion > right and not isclose(opinion, right):
        reason = f"judges can give {opinion:g}, which is more than the {right:g} of the verifiers"
        where = _place(spec, max(judges, key=_span), "weight")
        yield _Fault(reason, "raise the verifier's weight above the judges'", where, "warning")


def _penalties(spec: RewardSpec) -> Iterator[_Fault]:
    penalties = [part for part in _terminal(spec) if part.kind == "penalty"]
    bounds = gains_and_penalties(spec.document, spec.parts)
    if not penalties or bounds is None:
        return
    (_, most), (lowest, _) = bounds
    if most > 0 and -lowest > most and not isclose(-lowest, most):
        reason = f"penalties can subtract {-lowest:g}, and the other components give at most {most:g}"
        where = _place(spec, max(penalties, key=_span), "weight")
        yield _Fault(reason, f"limit the penalties to less than {most:g}", where, "warning")


def _criteria(spec: RewardSpec) -> Iterator[_Fault]:
    rubrics = [part for part in spec.document.components if part.kind == "rubric"]
    if len(rubrics) > _MOST_CRITERIA:
        reason = (
            f"the spec has {len(rubrics)} rubric criteria, so each has little weight; "
            f"the rule allows {_MOST_CRITERIA}"
        )
        where = _place(spec, rubrics[_MOST_CRITERIA])
        yield _Fault(reason, "remove some, or move them to an included spec", where, "warning")


def _bundled(spec: RewardSpec) -> Iterator[_Fault]:
    for part in spec.document.components:
        key = next((key for key in ("name", "description") if _BUNDLED.search(getattr(part, key))), None)
        if part.kind in ("rubric", "judge") and key is not None:
            reason = f"the {key} of {part.name} has two criteria, and one value can't tell them apart"
            yield _Fault(reason, "split it into two components", _place(spec, part, key), "warning")


def _judges(spec: RewardSpec) -> Iterator[_Fault]:
    judges = [part for part in spec.parts if part.kind == "judge"]
    sure = [part for part in spec.parts if part.kind in ("verifier", "check", "rubric")]
    if judges and not sure:
        reason = f"{judges[0].name} is a judge, and the spec has no deterministic component"
        fix = "add a verifier or a check for what code can decide"
        yield _Fault(reason, fix, _place(spec, judges[0]), "warning")


def _exploits(spec: RewardSpec) -> Iterator[_Fault]:
    cases = [case for case in spec.document.cases if isinstance(case, SpecCase)]
    if not any(case.kind == "exploit" for case in cases):
        reason = "no case has the kind exploit, so no cheating sample is tested"
        fix = "add a case of the kind exploit with a maximum for its reward"
        yield _Fault(reason, fix, ("cases",), "warning")


def _ranges(spec: RewardSpec) -> Iterator[_Fault]:
    checks = [part for part in spec.parts if part.kind == "check"]
    unknown_floor = bool(checks) and spec.document.floor is None and spec.document.range is None
    for part in spec.parts:
        if part.range is None and part.kind != "check":
            reason = f"{part.name} has no range, so its possible values are unknown"
            if unknown_floor:
                reason += f" and the floor of a failed {checks[0].name} may not be the lowest reward"
            level: Severity = "error" if unknown_floor else "warning"
            yield _Fault(reason, "set its `range`", _place(spec, part), level)


def _includes(spec: RewardSpec) -> Iterator[_Fault]:
    for index, part in enumerate(spec.document.include):
        if part.version is None:
            version = spec.included[part.as_].version
            reason = f"the include {part.spec} has no version, so the reward changes when that spec does"
            fix = f'pin it with version: "^{version}"'
            yield _Fault(reason, fix, ("include", index), "warning")


def _included_inputs(spec: RewardSpec) -> Iterator[_Fault]:
    if not spec.document.inputs:
        return
    for index, part in enumerate(spec.document.include):
        for name, kind in spec.included[part.as_].document.inputs.items():
            if name not in spec.document.inputs and not kind.endswith("?"):
                reason = f"the include {part.as_} needs the input {name}, which this spec lacks"
                yield _Fault(reason, f"add {name} to `inputs`", ("include", index))


def _style(spec: RewardSpec) -> Iterator[_Fault]:
    parts = _terminal(spec)
    right = fsum(_span(part) for part in parts if part.kind == "verifier")
    is_gated = spec.document.combine == "gated" and spec.document.partial_credit is None
    style = [part for part in parts if part.kind in _STYLE]
    most = fsum(_span(part) for part in style)
    if right and most > right and not isclose(most, right) and not is_gated:
        reason = (
            f"rubrics and shaping can give {most:g} and verifiers {right:g}, so a wrong answer in good "
            "style can win"
        )
        where = _place(spec, max(style, key=_span), "weight")
        yield _Fault(reason, "raise the verifier's weight, or write `combine: gated`", where, "warning")


def _floor(spec: RewardSpec) -> Iterator[_Fault]:
    document = spec.document
    bounds = reachable(document, spec.parts)
    if bounds is None or not any(_is_gate(part, document) for part in spec.parts):
        return
    lowest = bounds[0] if document.range is None else max(bounds[0], document.range[0])
    if spec.floor > lowest:
        reason = (
            f"a sample that fails a gate gets {spec.floor:g}, and one that passes all may get only {lowest:g}"
        )
        key = "floor" if document.floor is not None else "range"
        yield _Fault(reason, f"lower the {key} to {lowest:g}", (key,))


def _is_gate(part: ComponentEntry, document: SpecDocument) -> bool:
    return part.kind == "check" or (part.kind == "verifier" and document.combine == "gated")


def _code(spec: RewardSpec) -> Iterator[_Fault]:
    reported: set[tuple[str, ...]] = set()
    for name, use, version, at in _functions(spec):
        code = spec.codes[use or name]
        if code.coverage == "full" or version is not None:
            continue
        gaps = "; ".join(code.gaps)
        if code.coverage == "opaque":
            reason = f"the code of {name} can't be read ({gaps}), so changes to it go undetected"
            yield _Fault(reason, "make it a plain function of a module, or set its `version`", at)
        elif code.gaps not in reported:  # functions of one module share its gaps
            reported.add(code.gaps)
            reason = f"some code of {name} is not in the digest: {gaps}"
            fix = "list it under `depends` or `distributions`, or set its `version`"
            yield _Fault(reason, fix, at, "warning")


def _functions(spec: RewardSpec) -> Iterator[tuple[str, str | None, str | None, Place]]:
    """Yield the name, target, stated version and place of each function."""
    for index, entry in enumerate(spec.document.components):
        yield entry.name, entry.use, entry.version, ("components", index, "use")
    combine = spec.document.combine
    if isinstance(combine, CombiningFunction):
        yield COMBINE, combine.use, combine.version, ("combine", "use")


def _lock(spec: RewardSpec) -> Iterator[_Fault]:
    lock = read_lock(spec.path) if spec.path is not None else None
    for change in changes(lock, spec) if lock is not None else ():
        if change.kind in ("method", "stale"):
            yield _Fault(change.reason, change.fix, ("version",), "warning")
        else:
            reason = f"{change.reason}, so rewards under one version differ"
            yield _Fault(reason, change.fix, ("version",))


def _cases(spec: RewardSpec) -> Iterator[_Fault]:
    for index, case in enumerate(spec.document.cases):
        if isinstance(case, SpecCase):
            yield from _inputs(case, spec.document, ("cases", index, "input"))
            yield from _expectations(case, spec, ("cases", index, "expect"))


def _inputs(case: SpecCase, document: SpecDocument, at: Place) -> Iterator[_Fault]:
    for name, kind in document.inputs.items():
        problem = Inputs({name: kind}).problem(case.input)
        if problem is not None:
            is_text = kind.startswith("string") and name in case.input
            fix = "quote it" if is_text else f"give the case a value of the type {kind.rstrip('?')}"
            yield _Fault(f"in the case {case.name}, {problem}", fix, (*at, name))
    if document.inputs:
        for name in sorted(case.input.keys() - document.inputs.keys()):
            reason = f"the case {case.name} has {name}, which is not an input of the spec"
            yield _Fault(reason, "remove it, or add it to `inputs`", (*at, name), "warning")


def _expectations(case: SpecCase, spec: RewardSpec, at: Place) -> Iterator[_Fault]:
    if case.expect is None:
        return
    names = {part.name: part for part in spec.parts}
    checks = sorted(_checks(spec))
    for name in case.expect.failed_checks or ():
        if name not in checks:
            reason = f"the case {case.name} expects the check {name} to fail, and the spec has no such check"
            known = ", ".join(checks) or "the spec has none"
            yield _Fault(reason, f"name one of its checks: {known}", (*at, "failed_checks"))
    for name in case.expect.components.keys() - names.keys():
        reason = f"the case {case.name} expects a value of {name}, which is not a component"
        yield _Fault(reason, f"name one of: {', '.join(names)}", (*at, "components", name))
    bounds = None if case.steps else spec.range  # `range` does not bound the sum of step rewards
    value = case.expect.value
    if bounds is not None and value is not None and not _is_possible(value, bounds):
        reason = (
            f"the case {case.name} expects a reward outside of the spec's range "
            f"[{bounds[0]:g}, {bounds[1]:g}]"
        )
        yield _Fault(reason, "expect a value within the range", (*at, "value"))


def _checks(spec: RewardSpec) -> Iterator[str]:
    """Yield the names of a spec's checks; those of included specs are dotted paths."""
    yield from (part.name for part in spec.parts if part.kind == "check")
    for name, inner in spec.included.items():
        yield from (f"{name}.{path}" for path in _checks(inner))


def _is_possible(value: float | Bounds, range: tuple[float, float]) -> bool:
    low, high = range
    bounds = value if isinstance(value, Bounds) else Bounds(equals=value)
    if bounds.equals is not None and not low - bounds.tolerance <= bounds.equals <= high + bounds.tolerance:
        return False
    return not (bounds.min is not None and bounds.min > high) and not (
        bounds.max is not None and bounds.max < low
    )


def _kinds(spec: RewardSpec) -> Iterator[_Fault]:
    for index, component in enumerate(spec.plan.components):
        mark = mark_of(component.function)
        if mark is not None and mark.kind != component.entry.kind:
            reason = (
                f"{component.name} is a {component.entry.kind} in the spec and decorated as a {mark.kind}"
            )
            fix = "use one kind in both places"
            yield _Fault(reason, fix, ("components", index, "kind"), "warning")


_SKIPPED: Final[Mapping[str, str]] = {
    "product": "under product, a skipped component counts as 1",
    "minimum": "under minimum, a skipped component is ignored even if it were the lowest",
    "lexicographic": "under lexicographic nothing is skipped, since each level depends on those before it",
}


def _invalid(spec: RewardSpec) -> Iterator[_Fault]:
    """Find an `on_invalid` with a surprising effect."""
    policy, combine = spec.document.on_invalid, spec.document.combine
    for index, part in enumerate(spec.document.include):
        if spec.included[part.as_].document.on_invalid == "floor" != policy:
            reason = f"{part.as_} has on_invalid: floor, which has no effect here: on_invalid is {policy}"
            fix = "write `on_invalid: floor` here if that is intended"
            yield _Fault(reason, fix, ("include", index), "warning")
    if policy != "skip":
        return
    counted = [part for part in _terminal(spec) if part.kind not in ("verifier", "penalty")]
    if isinstance(combine, str) and combine in _SKIPPED:
        reason = _SKIPPED[combine]
        yield _Fault(reason, "write `on_invalid: invalid`, or combine by a sum", ("on_invalid",), "warning")
    elif not counted and combine != "weighted_sum":
        reason = "on_invalid is skip, and nothing is skipped since every component gates"
        yield _Fault(reason, "write `on_invalid: invalid`", ("on_invalid",), "warning")
    elif (
        combine in _SUMS
        and len({part.range for part in counted if part.range}) > 1
        and not spec.document.clip
    ):
        reason = (
            "on_invalid is skip and the components' ranges differ, so a reward with a skipped component may "
            "leave the spec's range, which is an error"
        )
        yield _Fault(reason, "give components one range, or write `clip: true`", ("on_invalid",), "warning")


def _misspelt(spec: RewardSpec) -> Iterator[_Fault]:
    """Find optional arguments and params whose name resembles an input's name."""
    for index, component in enumerate(spec.plan.components):
        if component.function is None:
            continue
        inputs = spec.document.inputs
        optional = optional_names(component.function)
        names = [name for name in (*optional, *component.entry.params) if name not in inputs]
        for name in dict.fromkeys(names):
            similar = get_close_matches(name, inputs, n=1, cutoff=_SIMILAR)
            if similar and not takes(component.function, similar[0]):
                sort = "parameter" if name in component.entry.params else "argument"
                reason = (
                    f"{component.name} has the {sort} {name!r}, and the spec has the input {similar[0]!r}"
                )
                place: Place = ("components", index, "params", name)
                where = place if sort == "parameter" else ("components", index, "use")
                yield _Fault(reason, f"rename it to {similar[0]} if the input is meant", where, "warning")


RULES: Final[Mapping[str, _Rule]] = {
    "weights": _weights,
    "unreachable": _unreachable,
    "nothing-gates": _gates,
    "large-shaping": _shaping,
    "void-gate": _void_gate,
    "large-penalty": _penalties,
    "many-criteria": _criteria,
    "bundled-criterion": _bundled,
    "lone-judge": _judges,
    "heavy-judge": _heavy_judges,
    "no-exploit": _exploits,
    "no-range": _ranges,
    "unpinned-include": _includes,
    "lacking-input": _included_inputs,
    "style-over-substance": _style,
    "high-floor": _floor,
    "unread-code": _code,
    "changed-unversioned": _lock,
    "impossible-case": _cases,
    "other-kind": _kinds,
    "unusual-policy": _invalid,
    "misspelt-input": _misspelt,
}
"""The rules by id; `docs/reward-specs.md` describes each."""

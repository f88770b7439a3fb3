"""Rules that a good reward spec keeps, and where one breaks them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import fsum, isclose
from typing import Final, Literal, TypeAlias

from mttp.rewards.callables import optional_names, takes
from mttp.rewards.combining import threshold
from mttp.rewards.composing import COMBINE
from mttp.rewards.decorators import mark_of
from mttp.rewards.document import Bounds, CombiningFunction, ComponentEntry, SpecCase, SpecDocument
from mttp.rewards.inputs import Inputs
from mttp.rewards.locking import changes, read_lock
from mttp.rewards.parsing import Place
from mttp.rewards.reward_range import paid_and_taken, reachable
from mttp.rewards.spec import RewardSpec

__all__ = ["RULES", "LintFinding", "Severity", "lint"]

Severity: TypeAlias = Literal["error", "warning"]
"""error: a sample is paid wrongly, or can't be told to be paid rightly; warning: it may well be."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One rule that is broken in one place."""

    rule: str
    """The rule's id."""
    severity: Severity
    """How bad that is."""
    reason: str
    """What is wrong, and why that matters."""
    fix: str
    """What to do."""
    line: int | None = None
    """The line of the spec's file, from 1."""
    column: int | None = None
    """The column, from 1."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """A finding before it has its rule and its line."""

    reason: str
    fix: str
    at: Place = ()
    severity: Severity = "error"


_Rule: TypeAlias = Callable[[RewardSpec], Iterator[_Fault]]

_MOST_CRITERIA: Final = 5
_ALIKE: Final = 0.75
"""From this on, of 1, two names are alike, as difflib measures it."""
_BUNDLED = re.compile(r"(^|[\s_.-])(and|&)([\s_.-]|$)", re.IGNORECASE)
_STYLE: Final = ("rubric", "shaping")
_SUMS: Final = ("gated", "weighted_sum")


def lint(spec: RewardSpec, *, imports: bool = True) -> list[LintFinding]:
    """
    Everything that is wrong with a spec, by line.

    With `imports` its code is imported and its signatures are checked too; what can't be called at all
    raises SpecError.
    """
    if imports:
        assert spec.plan is not None
    rules = {name: rule for name, rule in RULES.items() if imports or rule not in (_kinds, _misspelt)}
    found = [_finding(name, fault, spec) for name, rule in rules.items() for fault in rule(spec)]
    return sorted(found, key=lambda one: (one.line or 0, one.column or 0, one.severity, one.rule))


def _finding(rule: str, fault: _Fault, spec: RewardSpec) -> LintFinding:
    mark = spec.source.mark(*fault.at, key=True)
    line, column = (mark.line, mark.column) if mark is not None else (None, None)
    return LintFinding(rule, fault.severity, fault.reason, fault.fix, line, column)


def _terminal(spec: RewardSpec) -> list[ComponentEntry]:
    """What is part of the reward of an episode, without the checks."""
    return [part for part in spec.parts if part.kind != "check" and part.scope == "terminal"]


def _place(spec: RewardSpec, part: ComponentEntry, key: str | None = None) -> Place:
    """Where a component, or an include, is written."""
    names = [entry.name for entry in spec.document.components]
    at: Place = (
        ("components", names.index(part.name))
        if part.name in names
        else ("include", [one.as_ for one in spec.document.include].index(part.name))
    )
    return (*at, key) if key is not None else at


def _span(part: ComponentEntry) -> float:
    """How much of the reward hangs on a component."""
    low, high = part.range or (0.0, 1.0)
    return abs(part.weight) * (high - low)


def _weights(spec: RewardSpec) -> Iterator[_Fault]:
    parts = _terminal(spec)
    for part in parts:
        if part.weight < 0 and part.kind != "penalty":
            reason = f"{part.name} has a negative weight: the better its value, the less is paid"
            yield _Fault(reason, "make it a penalty, or turn its value around", _place(spec, part, "weight"))
    for index, entry in enumerate(spec.document.components):
        if entry.kind == "check" and entry.weight != 1.0:
            reason = f"{entry.name} is a check, which gates and is in no sum: its weight says nothing"
            yield _Fault(reason, "leave the weight out", ("components", index, "weight"), "warning")
    total = fsum(abs(part.weight) for part in parts if part.kind != "penalty")
    if spec.document.combine in _SUMS and len(parts) > 1 and not isclose(total, 1.0, abs_tol=1e-6):
        reason = f"the weights add up to {total:g}, so that the full reward is not 1"
        yield _Fault(reason, "scale them to add up to 1, or state the `range`", ("components",), "warning")


def _unreachable(spec: RewardSpec) -> Iterator[_Fault]:
    for part in _terminal(spec):
        if part.weight == 0 and spec.document.combine in (*_SUMS, "lexicographic"):
            reason = f"{part.name} has the weight 0: whatever it says, nothing changes"
            if part.kind != "verifier" or spec.document.combine != "gated":
                yield _Fault(reason, "give it a weight, or take it out", _place(spec, part, "weight"))
        if part.range is not None and part.range[0] == part.range[1]:
            reason = f"{part.name} can only be {part.range[0]:g}"
            yield _Fault(reason, "widen its range, or take it out", _place(spec, part, "range"))
        if spec.document.combine == "lexicographic" and part.priority is None and part.kind != "penalty":
            reason = f"{part.name} has no priority, and comes after all that have one"
            yield _Fault(reason, "state its `priority`", _place(spec, part), "warning")
    for index, entry in enumerate(spec.document.components):
        if entry.kind in ("verifier", "check"):
            low, high = entry.range or (0.0, 1.0)
            least = threshold(entry.kind, entry.threshold, entry.range)
            if least is not None and low < high and not low < least <= high:
                what = "never fails" if least <= low else "never passes"
                reason = f"{entry.name} {what}: its threshold is {least:g}, of [{low:g}, {high:g}]"
                where: Place = ("components", index, "threshold")
                yield _Fault(reason, "choose a threshold within its range, above the lowest", where)


def _gates(spec: RewardSpec) -> Iterator[_Fault]:
    document = spec.document
    kinds = {part.kind for part in spec.parts}
    if document.combine == "gated" and "verifier" not in kinds:
        reason = "it is gated, and has no verifier that could fail"
        yield _Fault(reason, "add a verifier, or `combine: weighted_sum`", ("combine",), "warning")
    if not spec.parts:
        yield _Fault("it has no components: every sample gets the same", "add one", ("components",))


def _shaping(spec: RewardSpec) -> Iterator[_Fault]:
    small = [part for part in spec.parts if part.kind == "shaping"]
    steps = [part for part in spec.parts if part.scope == "step" and part.kind not in ("check", "penalty")]
    goal = fsum(_span(part) for part in _terminal(spec) if part.kind not in ("shaping", "penalty"))
    horizon = spec.document.horizon
    paid = fsum(_span(part) for part in small)
    if small and goal and paid > goal:
        reason = f"shaping can pay {paid:g}, and the goal {goal:g}: the way is worth more than the end"
        yield _Fault(reason, "lower the weights of the shaping components", _place(spec, small[0]))
    elif steps and goal and horizon is None:
        reason = f"{steps[0].name} pays each step: what an episode's steps come to is not known"
        fix = "state the `horizon`, the steps that an episode has at most"
        yield _Fault(reason, fix, _place(spec, steps[0], "scope"), "warning")
    elif steps and goal and horizon is not None:
        yield from _step_shaping(spec, steps, goal, horizon)


def _step_shaping(
    spec: RewardSpec, steps: list[ComponentEntry], goal: float, horizon: int
) -> Iterator[_Fault]:
    each = fsum(_span(part) for part in steps)
    if each * horizon > goal:
        reason = (
            f"steps can pay {each:g} each, {each * horizon:g} over {horizon} steps, and the episode's end "
            f"{goal:g}: the way is worth more than the end"
        )
        fix = f"have steps pay {goal / horizon:.3g} each at most"
        yield _Fault(reason, fix, _place(spec, max(steps, key=_span)))


def _void_gate(spec: RewardSpec) -> Iterator[_Fault]:
    """Partial credit that takes nothing off a sample whose verifier failed."""
    credit, found = spec.document.partial_credit, paid_and_taken(spec.document, spec.parts)
    verifiers = [part for part in _terminal(spec) if part.kind == "verifier"]
    if credit is None or found is None or spec.document.combine != "gated" or not verifiers:
        return
    most = found[0][1]
    least_right = fsum(min(one * part.weight for one in part.range or (0.0, 1.0)) for part in verifiers)
    others = most - fsum(max(one * part.weight for one in part.range or (0.0, 1.0)) for part in verifiers)
    if credit >= most:
        reason = f"a failure is paid up to {credit:g}, and nothing more than {most:g}: no verifier gates"
        yield _Fault(reason, f"lower it below {most:g}", ("partial_credit",))
    elif credit > others + least_right and not isclose(credit, others + least_right):
        reason = (
            f"a failure is paid up to {credit:g}, and with verifiers at their lowest nothing more than "
            f"{others + least_right:g}: where these only pass or fail, no verifier gates"
        )
        yield _Fault(reason, f"lower it to {others + least_right:g}", ("partial_credit",), "warning")


def _heavy_judges(spec: RewardSpec) -> Iterator[_Fault]:
    judges = [part for part in _terminal(spec) if part.kind == "judge"]
    opinion = fsum(map(_span, judges))
    right = fsum(_span(part) for part in _terminal(spec) if part.kind == "verifier")
    is_sum = spec.document.combine in (*_SUMS, "lexicographic")
    if is_sum and judges and right and opinion > right and not isclose(opinion, right):
        reason = f"judges can pay {opinion:g}, and verifiers {right:g}: an opinion outweighs what can be told"
        where = _place(spec, max(judges, key=_span), "weight")
        yield _Fault(reason, "raise the verifier's weight above the judges'", where, "warning")


def _penalties(spec: RewardSpec) -> Iterator[_Fault]:
    penalties = [part for part in _terminal(spec) if part.kind == "penalty"]
    found = paid_and_taken(spec.document, spec.parts)
    if not penalties or found is None:
        return
    (_, most), (taken, _) = found
    if most > 0 and -taken > most and not isclose(-taken, most):
        reason = f"penalties take off up to {-taken:g}, and all else pays {most:g} at most"
        where = _place(spec, max(penalties, key=_span), "weight")
        yield _Fault(reason, f"have penalties take off less than {most:g}", where, "warning")


def _criteria(spec: RewardSpec) -> Iterator[_Fault]:
    rubrics = [part for part in spec.document.components if part.kind == "rubric"]
    if len(rubrics) > _MOST_CRITERIA:
        reason = f"of {len(rubrics)} rubric criteria each counts for little"
        where = _place(spec, rubrics[_MOST_CRITERIA])
        yield _Fault(reason, "keep those that matter, or include a spec of their own", where, "warning")


def _bundled(spec: RewardSpec) -> Iterator[_Fault]:
    for part in spec.document.components:
        said = next((key for key in ("name", "description") if _BUNDLED.search(getattr(part, key))), None)
        if part.kind in ("rubric", "judge") and said is not None:
            reason = f"{part.name} asks two things at once: nobody can tell which of them its value is about"
            yield _Fault(reason, "make two components of it", _place(spec, part, said), "warning")


def _judges(spec: RewardSpec) -> Iterator[_Fault]:
    judges = [part for part in spec.parts if part.kind == "judge"]
    sure = [part for part in spec.parts if part.kind in ("verifier", "check", "rubric")]
    if judges and not sure:
        reason = f"{judges[0].name} is a judge, and nothing deterministic stands beside it"
        fix = "add a verifier or a check for what can be told by code"
        yield _Fault(reason, fix, _place(spec, judges[0]), "warning")


def _exploits(spec: RewardSpec) -> Iterator[_Fault]:
    cases = [case for case in spec.document.cases if isinstance(case, SpecCase)]
    if not any(case.kind == "exploit" for case in cases):
        reason = "no case is an exploit: that a cheat is not paid was never tried"
        yield _Fault(
            reason, "add a case of the kind exploit, and what it may get at most", ("cases",), "warning"
        )


def _ranges(spec: RewardSpec) -> Iterator[_Fault]:
    checks = [part for part in spec.parts if part.kind == "check"]
    hangs = bool(checks) and spec.document.floor is None and spec.document.range is None
    for part in spec.parts:
        if part.range is None and part.kind != "check":
            reason = f"{part.name} has no range: what it can pay is not known"
            if hangs:
                reason += f", nor that a failed {checks[0].name} gets the least"
            yield _Fault(reason, "state its `range`", _place(spec, part), "error" if hangs else "warning")


def _includes(spec: RewardSpec) -> Iterator[_Fault]:
    for index, part in enumerate(spec.document.include):
        if part.version is None:
            found = spec.included[part.as_].version
            reason = f"any version of {part.spec} will do: the reward changes when that does"
            fix = f'pin it: version: "^{found}"'
            yield _Fault(reason, fix, ("include", index), "warning")


def _included_inputs(spec: RewardSpec) -> Iterator[_Fault]:
    if not spec.document.inputs:
        return
    for index, part in enumerate(spec.document.include):
        for name, stated in spec.included[part.as_].document.inputs.items():
            if name not in spec.document.inputs and not stated.endswith("?"):
                reason = f"{part.as_} needs the input {name}, which samples of this spec do not have"
                yield _Fault(reason, f"add {name} to `inputs`", ("include", index))


def _style(spec: RewardSpec) -> Iterator[_Fault]:
    parts = _terminal(spec)
    right = fsum(_span(part) for part in parts if part.kind == "verifier")
    style = [part for part in parts if part.kind in _STYLE]
    paid = fsum(_span(part) for part in style)
    if right and paid > right and not isclose(paid, right) and not _is_gated(spec):
        reason = f"style can pay {paid:g}, and being right {right:g}: a wrong answer in good style wins"
        where = _place(spec, max(style, key=_span), "weight")
        yield _Fault(reason, "raise the verifier's weight, or `combine: gated`", where, "warning")


def _is_gated(spec: RewardSpec) -> bool:
    return spec.document.combine == "gated" and spec.document.partial_credit is None


def _floor(spec: RewardSpec) -> Iterator[_Fault]:
    document = spec.document
    found = reachable(document, spec.parts)
    if found is None or not any(_is_gate(part, document) for part in spec.parts):
        return
    lowest = found[0] if document.range is None else max(found[0], document.range[0])
    if spec.floor > lowest:
        reason = (
            f"who breaks a check gets {spec.floor:g}, and who keeps them may get {lowest:g}: cheating pays"
        )
        key = "floor" if document.floor is not None else "range"
        yield _Fault(reason, f"lower the {key} to {lowest:g}", (key,))


def _is_gate(part: ComponentEntry, document: SpecDocument) -> bool:
    return part.kind == "check" or (part.kind == "verifier" and document.combine == "gated")


def _code(spec: RewardSpec) -> Iterator[_Fault]:
    for name, use, stated, at in _functions(spec):
        code = spec.codes[use or name]
        if code.coverage == "full" or stated is not None:
            continue
        gaps = "; ".join(code.gaps)
        if code.coverage == "opaque":
            reason = f"the code of {name} can't be read ({gaps}): it may change unseen"
            yield _Fault(reason, "make it a plain function of a module, or state its `version`", at)
        else:
            reason = f"some code of {name} is not in the digest: {gaps}"
            fix = "list it under `depends` or `distributions`, or state its `version`"
            yield _Fault(reason, fix, at, "warning")


def _functions(spec: RewardSpec) -> Iterator[tuple[str, str | None, str | None, Place]]:
    """Name, target, stated version and place of each function."""
    for index, entry in enumerate(spec.document.components):
        yield entry.name, entry.use, entry.version, ("components", index, "use")
    combine = spec.document.combine
    if isinstance(combine, CombiningFunction):
        yield COMBINE, combine.use, combine.version, ("combine", "use")


def _lock(spec: RewardSpec) -> Iterator[_Fault]:
    lock = read_lock(spec.path) if spec.path is not None else None
    for change in changes(lock, spec) if lock is not None else ():
        if change.kind == "stale":
            yield _Fault(change.reason, "run `mttp spec lock` once that is meant", ("version",), "warning")
        else:
            fix = "give it another version, then run `mttp spec lock`"
            yield _Fault(f"{change.reason}: rewards under one version would differ", fix, ("version",))


def _cases(spec: RewardSpec) -> Iterator[_Fault]:
    for index, case in enumerate(spec.document.cases):
        if isinstance(case, SpecCase):
            yield from _inputs(case, spec.document, ("cases", index, "input"))
            yield from _expectations(case, spec, ("cases", index, "expect"))


def _inputs(case: SpecCase, document: SpecDocument, at: Place) -> Iterator[_Fault]:
    for name, stated in document.inputs.items():
        problem = Inputs({name: stated}).problem(case.input)
        if problem is not None:
            is_text = stated.startswith("string") and name in case.input
            fix = "quote it" if is_text else "give it as the spec says"
            yield _Fault(f"in the case {case.name}, {problem}", fix, (*at, name))
    if document.inputs:
        for name in sorted(case.input.keys() - document.inputs.keys()):
            reason = f"{name} of the case {case.name} is no input of the spec"
            yield _Fault(reason, "take it out, or state it under `inputs`", (*at, name), "warning")


def _expectations(case: SpecCase, spec: RewardSpec, at: Place) -> Iterator[_Fault]:
    if case.expect is None:
        return
    names = {part.name: part for part in spec.parts}
    checks = sorted(_checks(spec))
    for name in case.expect.failed_checks or ():
        if name not in checks:
            reason = f"the case {case.name} expects the check {name} to fail, and there is none"
            yield _Fault(reason, f"name one of: {', '.join(checks)}", (*at, "failed_checks"))
    for name in case.expect.components.keys() - names.keys():
        reason = f"the case {case.name} expects a value of {name}, which is no component"
        yield _Fault(reason, f"name one of: {', '.join(names)}", (*at, "components", name))
    bounds = None if case.steps else spec.range  # steps are paid beside it
    value = case.expect.value
    if bounds is not None and value is not None and not _is_possible(value, bounds):
        reason = (
            f"the case {case.name} expects what can't be: rewards are within [{bounds[0]:g}, {bounds[1]:g}]"
        )
        yield _Fault(reason, "expect a value within the range", (*at, "value"))


def _checks(spec: RewardSpec) -> Iterator[str]:
    """The checks of a spec, those of included ones by their paths."""
    yield from (part.name for part in spec.parts if part.kind == "check")
    for name, inner in spec.included.items():
        yield from (f"{name}.{path}" for path in _checks(inner))


def _is_possible(value: float | Bounds, range: tuple[float, float]) -> bool:
    low, high = range
    stated = value if isinstance(value, Bounds) else Bounds(equals=value)
    if stated.equals is not None and not low - stated.tolerance <= stated.equals <= high + stated.tolerance:
        return False
    return not (stated.min is not None and stated.min > high) and not (
        stated.max is not None and stated.max < low
    )


def _kinds(spec: RewardSpec) -> Iterator[_Fault]:
    for index, component in enumerate(spec.plan.components):
        mark = mark_of(component.function)
        if mark is not None and mark.kind != component.entry.kind:
            reason = f"{component.name} is a {component.entry.kind} here, and decorated as a {mark.kind}"
            yield _Fault(reason, "say the same in both places", ("components", index, "kind"), "warning")


_SKIPPED: Final[Mapping[str, str]] = {
    "product": "under product, what is skipped counts as if it were 1",
    "minimum": "under minimum, what is skipped counts as if it were not the lowest",
    "lexicographic": "under lexicographic nothing is skipped: what comes after hangs on what comes before",
}


def _invalid(spec: RewardSpec) -> Iterator[_Fault]:
    """What the policy for samples without a value does where that may surprise."""
    policy, combine = spec.document.on_invalid, spec.document.combine
    for index, part in enumerate(spec.document.include):
        if spec.included[part.as_].document.on_invalid == "floor" != policy:
            reason = f"the floor that {part.as_} pays on its own is not paid here: on_invalid is {policy}"
            yield _Fault(
                reason, "state `on_invalid: floor` here, if that is meant", ("include", index), "warning"
            )
    if policy != "skip":
        return
    counted = [part for part in _terminal(spec) if part.kind not in ("verifier", "penalty")]
    if isinstance(combine, str) and combine in _SKIPPED:
        reason = _SKIPPED[combine]
        yield _Fault(reason, "state `on_invalid: invalid`, or combine by a sum", ("on_invalid",), "warning")
    elif not counted and combine != "weighted_sum":
        reason = "nothing is skipped: every component gates"
        yield _Fault(reason, "state `on_invalid: invalid`", ("on_invalid",), "warning")
    elif (
        combine in _SUMS
        and len({part.range for part in counted if part.range}) > 1
        and not spec.document.clip
    ):
        reason = "the ranges differ, so that with a component skipped a reward may leave the range: an error"
        yield _Fault(reason, "give components one range, or state `clip: true`", ("on_invalid",), "warning")


def _misspelt(spec: RewardSpec) -> Iterator[_Fault]:
    """Arguments with a default, or parameters, that are nearly called as an input is, and never get it."""
    for index, component in enumerate(spec.plan.components):
        if component.function is None:
            continue
        inputs = spec.document.inputs
        optional = optional_names(component.function)
        given = [name for name in (*optional, *component.entry.params) if name not in inputs]
        for name in dict.fromkeys(given):
            meant = get_close_matches(name, inputs, n=1, cutoff=_ALIKE)
            if meant and not takes(component.function, meant[0]):
                what = "parameter" if name in component.entry.params else "argument"
                reason = f"{component.name} has the {what} {name!r}, and the spec the input {meant[0]!r}"
                place: Place = ("components", index, "params", name)
                where = place if what == "parameter" else ("components", index, "use")
                yield _Fault(reason, f"call it {meant[0]}, if that is what is meant", where, "warning")


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
"""What is looked for, by the rule's id; `docs/reward-specs.md` explains each."""

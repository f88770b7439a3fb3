"""Scorings: rewards from arguments of callers, attributes of their spans, and rewards from spans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from mttp.codec import calls as call_codec
from mttp.codec import components as component_codec
from mttp.codec import fields, templates
from mttp.codec import grades as grade_codec
from mttp.codec.plain import (
    Faults,
    Plain,
    distinct,
    listed,
    nanoseconds,
    number,
    scalar_text,
    text,
    unknown_arguments,
)
from mttp.model.declarations import keys, table
from mttp.model.episodes import Call, Grade, Reward, Spec
from mttp.model.interrupts import is_exception, raise_interrupt
from mttp.model.reprs import exception_text
from mttp.model.scorings import INVALID_VALUE
from mttp.model.spans import SpanRecord
from mttp.model.values import is_masked
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.registry import known_values

__all__ = [
    "COMPUTED",
    "KEYS",
    "MAX_INLINE",
    "SPEC_KEYS",
    "assess",
    "checked",
    "decode",
    "encode",
    "encode_spec",
    "grader",
    "grades",
    "known_status",
    "make",
    "scores",
    "span_name",
    "spec",
    "stated",
]


class _Computed:
    """The type of `COMPUTED`."""

    def __repr__(self) -> str:
        return "<the weighted sum of the components>"


COMPUTED: Any = _Computed()
"""Marks a total that is computed from the components."""
MAX_INLINE = 32
"""The maximum number of components on the scoring's own span; further ones have grade spans."""

_FACTS = frozenset(field.name for field in table(Reward) if field.declared == "str" and field.is_optional) - {
    "error",
    "error_type",
    "raw",
}
"""The text arguments of a scoring."""
_SPEC = keys(Spec)
SPEC_KEYS = frozenset(_SPEC.values())
"""The attributes of a reward spec's identity."""
KEYS = frozenset({*keys(Reward).values(), *SPEC_KEYS}) - {a.REWARD_EVIDENCE}
"""The attributes of a scoring that may be on the scored span, except templates."""


def assess(value: object) -> tuple[float | None, str, str | None]:
    """
    Return a reward as (number, status, raw text).

    None and a masked element have the status missing.
    NaN, infinities, text and other values that are not one number have the status error, with raw text.
    """
    if value is None:
        return None, "missing", None
    parsed = value if type(value) is float else number(value)
    if parsed is None and (fields.is_absent(value) or is_masked(value)):
        return None, "missing", None
    if parsed is None:
        return None, "error", text(value if issubclass(type(value), str) else scalar_text(value), [])
    return (parsed, "ok", None) if math.isfinite(parsed) else (None, "error", repr(parsed))


def stated(value: object) -> Reward | None:
    """Return a value that is a `Reward`, or its `reward`, as of a `RewardResult`; None for others."""
    if issubclass(type(value), Reward):
        return cast(Reward, value)
    if not hasattr(type(value), "reward"):
        return None
    try:
        reward = getattr(value, "reward", None)
        return reward if isinstance(reward, Reward) else None
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        return None


def make(
    value: object,
    faults: Faults,
    *,
    status: str | None = None,
    components: Mapping[Any, object] | None = None,
    weights: Mapping[Any, object] | None = None,
    error: object = None,
    spec: object = None,
    range: object = None,
    relative: object = None,
    failed_checks: object = None,
    calls: object = None,
    start_time: object = None,
    end_time: object = None,
    **facts: Any,
) -> Reward:
    """
    Return a `Reward` from the arguments of a caller; problems are added to `faults`.

    A `Reward` or `RewardResult` is taken as it is, except that `facts` replace its fields.
    `COMPUTED` becomes the weighted sum of the components, unless there is a status or an error.
    An exception, as the value or as a component, is the error of the reward or of the component.
    """
    if type(value) is not float and is_exception(value):
        value, error = None, value if fields.is_absent(error) else error
    whole = stated(value)
    if whole is not None:
        changes = {name: fact for name, fact in _known(facts, faults).items() if fact is not None}
        reward = checked(whole, faults)
        more = fields.members("calls", Call, calls, faults)
        changes |= {"calls": (*reward.calls, *more)} if more else {}
        return fields.checked_value(replace(reward, span_id="", **changes), faults) if changes else reward
    names_by_key: dict[str, str] = {}
    given_components = fields.mapping("components", components, faults)
    given_weights = fields.mapping("weights", weights, faults)
    named = distinct(given_components, faults, names_by_key)
    weighting = _weights(distinct(given_weights, faults, names_by_key), faults)
    scores, statuses, failed = _components(named, weighting, faults)
    stated_status, error = known_status(status, faults), None if fields.is_absent(error) else error
    if value is COMPUTED:
        has_status = stated_status is not None or error is not None
        total, assessed, raw = (
            (None, "missing", None)
            if has_status
            else _total(scores, statuses, weighting if given_weights else None, faults)
        )
    else:
        total, assessed, raw = assess(value)
    if error is not None and stated_status is None:
        stated_status = "error"
    if stated_status not in (None, "ok", "partial"):
        raw = repr(total) if total is not None else raw
        total, assessed = None, stated_status
    if assessed == "error" and not (raw is None and value is COMPUTED and error is None):
        by = f"{text(facts['grader'], [])} is " if facts.get("grader") is not None else ""
        faults.append(f"reward_invalid: {by}{raw if raw is not None else scalar_text(error)}")
    if assessed == "ok" and "error" in statuses.values():
        assessed = "partial"
    mismatch = _is_mismatch(total, scores, statuses, weighting)
    if mismatch:
        faults.append(f"reward_mismatch: {total!r} is not {_weighted_sum(scores, weighting)!r}")
    known_facts = _known(facts, faults) if facts else {}
    for name, part in (("spec", spec), ("failed_checks", failed_checks)):
        if part is not None:
            known_facts[name] = part
    if relative is not None:
        known_facts["relative"] = fields.flag("relative", relative, faults)
    if not fields.is_absent(range):
        known_facts["range"] = _bounds(range, faults)
    return Reward(
        value=total,
        status=assessed,
        raw=raw,
        **_error_of(error, failed if value is COMPUTED else (), assessed, faults),
        components=scores,
        component_statuses=statuses,
        weights=weighting,
        mismatch=mismatch,
        grades=failed,
        calls=() if calls is None else fields.members("calls", Call, calls, faults),
        start_time=None if start_time is None else nanoseconds(start_time, faults),
        end_time=None if end_time is None else nanoseconds(end_time, faults),
        **fields.checked(Reward, known_facts, faults) if known_facts else known_facts,
    )


def scores(value: object, components: Mapping[str, float]) -> dict[str, Plain] | None:
    """
    Return a step's components as attributes of the step itself; None if they need a scoring's span.

    They need one if a number is not finite, if names collide, and if there are more than `MAX_INLINE`.
    """
    number, _, _ = assess(value)
    is_finite = number is not None and all(map(math.isfinite, components.values()))
    keys = _score_keys(tuple(components)) if is_finite and {*map(type, components)} == {str} else None
    return None if keys is None else {**dict(zip(keys[0], components.values(), strict=True)), **keys[1]}


@lru_cache(maxsize=256)
def _score_keys(names: tuple[str, ...]) -> tuple[Sequence[str], Mapping[str, Plain]] | None:
    """Return the keys of components' scores, and the attributes with names that are not normalized."""
    faults: Faults = []
    if [*distinct(dict.fromkeys(names), faults, {})] != [*names] or faults or len(names) > MAX_INLINE:
        return None
    keys = component_codec.encode(a.REWARD_SCORE, dict.fromkeys(names))
    return [*keys], component_codec.names(names)


def known_status(given: object, faults: Faults) -> str | None:
    """Return a known status; None for others, with a fault."""
    if fields.is_absent(given):
        return None
    status = text(given, []) if issubclass(type(given), str) else None
    if status not in known_values(a.REWARD_STATUS):
        faults.append(f"status_unknown: {scalar_text(given):.80}")
        return None
    return status


def _error_text(error: object, faults: Faults) -> str:
    if is_exception(error):
        return text(exception_text(error), faults)
    return text(error if issubclass(type(error), str) else scalar_text(error), faults)


def _error_of(error: object, failed: Sequence[Grade], status: str, faults: Faults) -> dict[str, Any]:
    """Return message and class of the error: of the exception, else of the first component that failed."""
    message = None if error is None else _error_text(error, faults)
    if status != "error":
        return {"error": message}
    if is_exception(error):
        return {"error": message, "error_type": type(error).__name__}
    if error is None and failed:
        return {"error": f"{failed[0].name}: {failed[0].error}", "error_type": failed[0].error_type}
    return {"error": message, "error_type": INVALID_VALUE if error is None else None}


def _bounds(limits: object, faults: Faults) -> tuple[float, float] | None:
    """Return the lowest and highest value; None if these are not two numbers."""
    if limits is None:
        return None
    bounds = [number(bound) for bound in listed("range", limits, []) or ()]
    lowest, highest = bounds if len(bounds) == 2 else (None, None)
    if lowest is None or highest is None:
        faults.append(f"range_invalid: {scalar_text(limits):.80} is not a pair of numbers")
        return None
    return lowest, highest


def _known(facts: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """Return the known facts; others are faults."""
    faults += unknown_arguments("reward", [name for name in facts if name not in _FACTS])
    return {name: fact for name, fact in facts.items() if name in _FACTS}


def _components(
    components: Mapping[str, object], weights: Mapping[str, float], faults: Faults
) -> tuple[dict[str, float], dict[str, str], tuple[Grade, ...]]:
    """Return scores, the statuses of components without a score, and a grade for each exception."""
    scores: dict[str, float] = {}
    statuses: dict[str, str] = {}
    failed: list[Grade] = []
    for name, value in components.items():
        if type(value) is not float and is_exception(value):
            statuses[name] = "error"
            message, kind = _error_text(value, faults), type(value).__name__
            weight = weights.get(name)
            failed.append(
                Grade(name=name, kind="", status="error", error=message, error_type=kind, weight=weight)
            )
            continue
        if type(value) is float and math.isfinite(value):
            scores[name] = value
            continue
        score, status, raw = assess(value)
        if score is not None:
            scores[name] = score
        else:
            statuses[name] = status
        if status == "error":
            faults.append(f"component_invalid: {name} is {raw}")
    return scores, statuses, tuple(failed)


def _weights(stated_weights: Mapping[str, object], faults: Faults) -> dict[str, float]:
    weights: dict[str, float] = {}
    for name, value in stated_weights.items():
        weight = value if type(value) is float else number(value)
        if weight is not None and math.isfinite(weight):
            weights[name] = weight
        else:
            faults.append(f"weight_invalid: {name}")
    return weights


def _weighted_sum(scores: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted sum; infinite or NaN on overflow."""
    parts = [score * weights[name] for name, score in scores.items()]
    try:
        return math.fsum(parts)
    except (OverflowError, ValueError):
        return sum(parts)


def _total(
    scores: Mapping[str, float],
    statuses: Mapping[str, str],
    weights: Mapping[str, float] | None,
    faults: Faults,
) -> tuple[float | None, str, str | None]:
    """
    Return the weighted sum of the components, as `assess` does; the default weight is 1.

    There is none if a component has no valid value, or has no weight although others have.
    """
    weights = dict.fromkeys(scores, 1.0) if weights is None else weights
    unweighted = [name for name in scores if name not in weights]
    if "error" in statuses.values():
        return None, "error", None
    if unweighted:
        faults.append(f"weight_missing: {', '.join(unweighted)}; there is no total")
    if not scores and not statuses:
        faults.append("reward_invalid: neither a value nor components were given")
    if statuses or unweighted or not scores:
        return None, "missing", None
    return assess(_weighted_sum(scores, weights))


def _is_mismatch(
    value: float | None,
    scores: Mapping[str, float],
    statuses: Mapping[str, str],
    weights: Mapping[str, float],
) -> bool:
    """Return whether the value differs from the known weighted sum by more than float32 rounding."""
    if value is None or statuses or not scores or not weights.keys() >= scores.keys():
        return False
    return not math.isclose(value, _weighted_sum(scores, weights), rel_tol=1e-5, abs_tol=1e-6)


def span_name(reward: Reward) -> str:
    """Return the span's name, e.g. `reward gsm8k`."""
    return names.REWARD if reward.spec is None else f"{names.REWARD} {text(reward.spec.name, [])}"


def grader(reward: Reward) -> str:
    """Return the grader's name for the scoring's calls, which marks them as a grader's calls."""
    return text(reward.grader or span_name(reward), [])


def checked(reward: Reward, faults: Faults) -> Reward:
    """Return a `Reward` that can be recorded: distinct names, and an invalid value as an error."""
    reward = fields.checked_value(reward, faults)
    value, status, raw = assess(reward.value)
    names_by_key: dict[str, str] = {}
    named = distinct(reward.components, faults, names_by_key)
    stated_statuses = distinct(reward.component_statuses, faults, names_by_key)
    weights = _weights(distinct(reward.weights, faults, names_by_key), faults)
    scores, statuses, failed = _components(named, weights, faults)
    changes: dict[str, Any] = {
        "components": scores,
        "component_statuses": statuses | {name: text(word, faults) for name, word in stated_statuses.items()},
        "weights": weights,
        "grades": tuple(grade_codec.checked(grade, faults) for grade in (*reward.grades, *failed)),
    }
    changes["status"] = known_status(reward.status, faults) or status
    if failed and changes["status"] == "ok":
        changes["status"] = "partial"
    if status == "error":
        faults.append(f"reward_invalid: {raw}")
        changes |= {"status": status, "raw": raw, "error_type": INVALID_VALUE}
    return replace(reward, value=value, **changes)


def encode(reward: Reward, faults: Faults) -> dict[str, Plain]:
    """Return the scoring's attributes; components beyond `MAX_INLINE` are left to `grades`."""
    attributes = fields.encode_value(reward, faults)
    if reward.spec is not None:
        attributes |= encode_spec(reward.spec, faults)
    parts: list[Mapping[str, Plain]] = [reward.components, reward.component_statuses, reward.weights]
    named = [*reward.components, *reward.component_statuses]
    apart = {grade.name for grade in reward.grades if not grade.kind and grade.status != "ok"}
    if apart or len(named) > MAX_INLINE:
        inline = [name for name in named[:MAX_INLINE] if name not in apart]
        graded = {*named}.difference(inline)
        parts = [{name: item for name, item in part.items() if name not in graded} for part in parts]
        named = inline
    for prefix, part in zip((a.REWARD_SCORE, a.REWARD_SCORE_STATUS, a.REWARD_WEIGHT), parts, strict=True):
        if part:
            attributes |= component_codec.encode(prefix, part)
    return attributes | component_codec.names([*named, *parts[2]])


def encode_spec(spec: Spec | None, faults: Faults) -> dict[str, Plain]:
    """Return the attributes of a reward spec's identity; empty for None."""
    return {} if spec is None else fields.encode(_SPEC, spec, faults)


def spec(attributes: Mapping[str, Plain]) -> Spec | None:
    """Return the reward spec that these attributes name; None without a name."""
    values = fields.decode(Spec, attributes)
    return Spec(**values) if "name" in values else None


def grades(reward: Reward) -> list[Grade]:
    """Return what is recorded as grade spans: the grades, and components beyond `MAX_INLINE`."""
    if len(reward.components) + len(reward.component_statuses) <= MAX_INLINE:
        return [*reward.grades]
    rest = {*[*reward.components, *reward.component_statuses][MAX_INLINE:]}
    plain = [grade for grade in reward.all_grades[len(reward.grades) :] if grade.name in rest] if rest else []
    return [*reward.grades, *plain]


def decode(record: SpanRecord, children: Mapping[str, Sequence[SpanRecord]]) -> Reward:
    """Return the scoring of a span; its grades are among `children`, by parent."""
    attributes = record.attributes
    below = [child.attributes for child in children.get(record.span_id, ()) if grade_codec.is_grade(child)]
    weights = component_codec.decode(a.REWARD_WEIGHT, attributes)
    for grade in below:
        for weight in templates.decode(a.REWARD_WEIGHT, grade).values():
            weights[component_codec.name(grade)] = weight
    scores, statuses = component_codec.scores(attributes)
    component_codec.add_grades(scores, statuses, below)
    return Reward(
        components=scores,
        component_statuses=statuses,
        weights=weights,
        spec=spec(attributes),
        grades=grade_codec.below(record.span_id, children),
        calls=tuple(map(call_codec.decode, call_codec.below(record.span_id, children))),
        **{"status": "missing"} | fields.of_span(Reward, record),
    )

"""Reward components as template attributes, whose keys hold normalized names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mttp.codec import templates
from mttp.model.keys import name_key
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from mttp.codec.plain import Plain

__all__ = ["OF_STEPS", "TEMPLATES", "add_grades", "decode", "encode", "name", "names", "of_step", "scores"]

TEMPLATES = (a.REWARD_SCORE, a.REWARD_SCORE_STATUS, a.REWARD_WEIGHT, a.REWARD_COMPONENT_NAME)
"""Prefixes of the attributes whose keys end in a component's name."""

_SCORES = (f"{a.REWARD_SCORE}.", f"{a.REWARD_SCORE_STATUS}.")
OF_STEPS = (a.REWARD_SCORE, a.REWARD_COMPONENT_NAME)
"""Prefixes of the attributes with the components of a step's reward that are the step's own."""
_OF_STEPS = tuple(f"{prefix}." for prefix in OF_STEPS)


def encode(prefix: str, items: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return attributes under `prefix` for values by component."""
    return {_key(prefix, name): item for name, item in items.items()}


@lru_cache(maxsize=1 << 12)
def _key(prefix: str, name: str) -> str:
    return f"{prefix}.{name_key(name)}"


def names(exact: Iterable[str]) -> dict[str, Plain]:
    """Return attributes with the exact names of components whose keys differ from them."""
    return {**_names(tuple(exact))}


@lru_cache(maxsize=256)
def _names(exact: tuple[str, ...]) -> Mapping[str, Plain]:
    return encode(a.REWARD_COMPONENT_NAME, {name: name for name in exact if name_key(name) != name})


def decode(prefix: str, attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the values under `prefix` by the components' exact names."""
    exact = templates.decode(a.REWARD_COMPONENT_NAME, attributes)
    return {str(exact.get(key, key)): item for key, item in templates.decode(prefix, attributes).items()}


def scores(scoring: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a scoring's scores by component, and the statuses of components without a score."""
    parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for key in scoring:
        if key.startswith(_SCORES):
            is_status = key.startswith(_SCORES[1])
            suffix = key[len(_SCORES[is_status]) :]
            parts[is_status][str(scoring.get(f"{a.REWARD_COMPONENT_NAME}.{suffix}", suffix))] = scoring[key]
    return parts


def of_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scoring whose components are the step's own attributes; empty without any."""
    scores = {key: step[key] for key in step if key.startswith(_OF_STEPS)}
    if scores:
        scores[a.REWARD_VALUE] = step.get(a.STEP_REWARD)
        scores[a.REWARD_STATUS] = step.get(a.STEP_REWARD_STATUS, "missing")
    return scores


def add_grades(scores: dict[str, Any], statuses: dict[str, Any], grades: Iterable[Mapping[str, Any]]) -> None:
    """Add the scores and statuses from the attributes of grade spans."""
    for grade in grades:
        score, status = grade.get(a.REWARD_VALUE), str(grade.get(a.REWARD_STATUS, "missing"))
        if score is not None and status == "ok":
            scores[name(grade)] = score
        else:
            statuses[name(grade)] = status


def name(grade: Mapping[str, Any]) -> str:
    """Return the component's name from a grade's attributes."""
    return str(grade.get(a.COMPONENT_NAME, grade.get(a.GRADER_NAME, "")))

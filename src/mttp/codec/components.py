"""The names of a reward's components: attributes' keys have them normalized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mttp.codec import templates
from mttp.model.keys import name_key
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from mttp.codec.plain import Plain

__all__ = ["TEMPLATES", "add_grades", "decode", "encode", "name", "names", "scores"]

TEMPLATES = (a.REWARD_SCORE, a.REWARD_SCORE_STATUS, a.REWARD_WEIGHT, a.REWARD_COMPONENT_NAME)
"""Prefixes that a component's name completes."""

_SCORES = (f"{a.REWARD_SCORE}.", f"{a.REWARD_SCORE_STATUS}.")


def encode(prefix: str, items: Mapping[str, Plain]) -> dict[str, Plain]:
    """The attributes under `prefix`, of items by the components' names."""
    return templates.encode(prefix, {name_key(name): item for name, item in items.items()})


def names(written: Iterable[str]) -> dict[str, Plain]:
    """The attributes that have the names which their keys do not show; a summary reads no lists."""
    return encode(a.REWARD_COMPONENT_NAME, {name: name for name in written if name_key(name) != name})


def decode(prefix: str, attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """The items under `prefix` by the components' names."""
    exact = templates.decode(a.REWARD_COMPONENT_NAME, attributes)
    return {str(exact.get(key, key)): item for key, item in templates.decode(prefix, attributes).items()}


def scores(scoring: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The scores that a scoring's attributes state, and the statuses of what has none, by component."""
    found: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for key in scoring:
        if key.startswith(_SCORES):
            is_status = key.startswith(_SCORES[1])
            given = key[len(_SCORES[is_status]) :]
            found[is_status][str(scoring.get(f"{a.REWARD_COMPONENT_NAME}.{given}", given))] = scoring[key]
    return found


def add_grades(scores: dict[str, Any], statuses: dict[str, Any], grades: Iterable[Mapping[str, Any]]) -> None:
    """Add what the attributes of grades state: components for which the scoring's span had no room."""
    for grade in grades:
        score, status = grade.get(a.REWARD_VALUE), str(grade.get(a.REWARD_STATUS, "missing"))
        if score is not None and status == "ok":
            scores[name(grade)] = score
        else:
            statuses[name(grade)] = status


def name(grade: Mapping[str, Any]) -> str:
    """The name of the component that a grade's attributes are about."""
    return str(grade.get(a.COMPONENT_NAME, grade.get(a.GRADER_NAME, "")))

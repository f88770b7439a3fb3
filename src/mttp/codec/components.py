"""The names of a reward's components: attributes' keys have them normalized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mttp.codec import templates
from mttp.keys import name_key
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from mttp.codec.plain import Plain

__all__ = ["TEMPLATES", "decode", "encode", "name", "names"]

TEMPLATES = (a.REWARD_SCORE, a.REWARD_SCORE_STATUS, a.REWARD_WEIGHT, a.REWARD_COMPONENT_NAME)
"""Prefixes that a component's name completes."""


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


def name(grade: Mapping[str, Any]) -> str:
    """The name of the component that a grade's attributes are about."""
    return str(grade.get(a.COMPONENT_NAME, grade.get(a.GRADER_NAME, "")))

"""How the values of a relative component came about: whom it was shown, in which order, by which judge."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from mttp.episodes import Grade
from mttp.rewards.document import Entry
from mttp.rewards.results import Provenance

__all__ = ["provenance", "shown_in"]


def shown_in(members: int, seed: int | None) -> tuple[int, ...]:
    """The order in which a component is shown the members: the group's, or one drawn with the seed."""
    order = list(range(members))
    if seed is not None:
        random.Random(seed).shuffle(order)
    return tuple(order)


def provenance(
    entry: Entry,
    group: Sequence[Mapping[str, Any]],
    order: tuple[int, ...],
    seed: int | None,
    grades: Sequence[Grade],
) -> Provenance:
    """Where a group's values of one component come from; model and prompt as it or its parameters say."""
    members = tuple(map(_digest, group))
    facts: dict[str, Any] = {**entry.params}
    for one in grades:
        facts |= one.evidence if isinstance(one.evidence, Mapping) else {}
    prompt = facts.get("prompt")
    return Provenance(
        group=_digest(members),
        members=members,
        order=order,
        seed=seed,
        model=None if facts.get("model") is None else str(facts["model"]),
        prompt_sha256=None if prompt is None else hashlib.sha256(str(prompt).encode()).hexdigest(),
    )


def _digest(value: object) -> str:
    """SHA-256 of canonical JSON; what JSON does not know goes in as its `repr`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

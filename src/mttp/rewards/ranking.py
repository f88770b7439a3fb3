"""Calls of relative components for a group, and the provenance of their values."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from mttp.model.episodes import Grade
from mttp.model.results import Provenance
from mttp.rewards.component_results import ComponentResult, with_costs
from mttp.rewards.document import ComponentEntry


class GroupComparison:
    """The samples of one group, for calls of relative components."""

    def __init__(self, group: Sequence[Mapping[str, Any]], seed: int | None) -> None:
        self._group = group
        self._seed = seed
        self.sources: dict[str, Provenance] = {}
        """The provenance of each relative component by its path."""

    def ask(
        self,
        call: Callable[[Sequence[Any]], list[ComponentResult]],
        places: Sequence[int],
        entry: ComponentEntry,
    ) -> tuple[list[tuple[int, ...]], list[list[ComponentResult]]]:
        """Call a component for the members at these places; return each call's order and its results."""
        orders = list(_orders(places, self._seed, entry.repeats))
        repeats = []
        for order in orders:
            members = [self._group[place] for place in order]
            answers = compare_pairs(call, members) if entry.relative == "pairwise" else call(members)
            known = dict(zip(order, answers, strict=True))
            repeats.append([known[place] for place in places])
        return orders, repeats

    def keep(
        self, path: str, entry: ComponentEntry, orders: Sequence[tuple[int, ...]], grades: Sequence[Grade]
    ) -> None:
        """Store the provenance of one component's values."""
        self.sources[path] = _provenance(entry, self._group, orders, self._seed, grades)


def _orders(places: Sequence[int], seed: int | None, count: int) -> Iterator[tuple[int, ...]]:
    """
    Yield the order of members for each call of a component.

    Without a seed the first order is the group's and the others are drawn with the seed 0.
    """
    draw = random.Random(0 if seed is None else seed)
    for call in range(count):
        order = list(places)
        if call or seed is not None:
            draw.shuffle(order)
        yield tuple(order)


def compare_pairs(
    call: Callable[[Sequence[Any]], list[ComponentResult]], members: Sequence[Mapping[str, Any]]
) -> list[ComponentResult]:
    """
    Return each member's mean over its comparisons with all others: 1 for a win, 0.5 for a tie.

    Each pair is in the order of `members`. An error fails both members of its pair, and abstentions are left
    out.
    """
    by_member: list[list[ComponentResult]] = [[] for _ in members]
    for pair in combinations(range(len(members)), 2):
        for place, answer in zip(pair, call([members[place] for place in pair]), strict=True):
            by_member[place].append(answer)
    return [_wins(answers) for answers in by_member]


def _wins(answers: Sequence[ComponentResult]) -> ComponentResult:
    calls = tuple([call for answer in answers for call in answer.calls])
    failures = [answer for answer in answers if answer.status == "error"]
    if failures:
        message = f"{len(failures)} of {len(answers)} comparisons failed: {failures[0].error}"
        return failures[0]._replace(error=message, calls=calls)
    values = [answer.value for answer in answers if answer.value is not None]
    if not values:
        return ComponentResult(
            None, "abstained", explanation="it has no comparison with another member", calls=calls
        )
    facts = next((answer.evidence for answer in answers if isinstance(answer.evidence, Mapping)), {})
    counts = {"won": sum(value > 0.5 for value in values), "tied": values.count(0.5)}
    evidence = {**facts, **counts, "comparisons": len(values)}
    return ComponentResult(fmean(values), evidence=with_costs(evidence, answers), calls=calls)


def _provenance(
    entry: ComponentEntry,
    group: Sequence[Mapping[str, Any]],
    orders: Sequence[tuple[int, ...]],
    seed: int | None,
    grades: Sequence[Grade],
) -> Provenance:
    """Return the provenance of a component's values; model and prompt are from its evidence or params."""
    members = tuple(map(_digest, group))
    facts: dict[str, Any] = {**entry.params}
    for grade in grades:
        facts |= grade.evidence if isinstance(grade.evidence, Mapping) else {}
    prompt = facts.get("prompt")
    return Provenance(
        group=_digest(members),
        members=members,
        order=orders[0],
        repeats=tuple(orders[1:]),
        seed=seed,
        model=None if facts.get("model") is None else str(facts["model"]),
        prompt_sha256=None if prompt is None else hashlib.sha256(str(prompt).encode()).hexdigest(),
    )


def _digest(value: object) -> str:
    """Return the SHA-256 of sorted JSON, with the `repr` of values that JSON can't represent."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

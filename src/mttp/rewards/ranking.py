"""How the values of a relative component came about: whom it was shown, in which order, by which judge."""

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

__all__ = ["Comparison", "compare_pairs"]


class Comparison:
    """One group as relative components are shown it."""

    def __init__(self, group: Sequence[Mapping[str, Any]], seed: int | None) -> None:
        self._group = group
        self._seed = seed
        self.sources: dict[str, Provenance] = {}
        """How the values of each component came about, by its path."""

    def ask(
        self,
        call: Callable[[Sequence[Any]], list[ComponentResult]],
        places: Sequence[int],
        entry: ComponentEntry,
    ) -> tuple[list[tuple[int, ...]], list[list[ComponentResult]]]:
        """The order of each of a component's calls, and what each answered of the members at these places."""
        orders = list(_orders(places, self._seed, entry.repeats))
        repeats = []
        for order in orders:
            shown = [self._group[place] for place in order]
            answers = compare_pairs(call, shown) if entry.relative == "pairwise" else call(shown)
            known = dict(zip(order, answers, strict=True))
            repeats.append([known[place] for place in places])
        return orders, repeats

    def keep(
        self, path: str, entry: ComponentEntry, orders: Sequence[tuple[int, ...]], grades: Sequence[Grade]
    ) -> None:
        """Keep where the values of one component come from."""
        self.sources[path] = _provenance(entry, self._group, orders, self._seed, grades)


def _orders(places: Sequence[int], seed: int | None, count: int) -> Iterator[tuple[int, ...]]:
    """
    The orders in which a component is shown members, a new one for each call.

    The first is the group's unless there is a seed to draw it with.
    """
    draw = random.Random(0 if seed is None else seed)
    for call in range(count):
        order = list(places)
        if call or seed is not None:
            draw.shuffle(order)
        yield tuple(order)


def compare_pairs(
    call: Callable[[Sequence[Any]], list[ComponentResult]], shown: Sequence[Mapping[str, Any]]
) -> list[ComponentResult]:
    """
    Each member's mean over its comparisons with every other: 1 for one that it wins, 0.5 for a tie.

    In each pair the member that is shown first stands first. One comparison that fails fails both members;
    those that abstain are left out.
    """
    found: list[list[ComponentResult]] = [[] for _ in shown]
    for pair in combinations(range(len(shown)), 2):
        for place, answer in zip(pair, call([shown[place] for place in pair]), strict=True):
            found[place].append(answer)
    return [_wins(answers) for answers in found]


def _wins(answers: Sequence[ComponentResult]) -> ComponentResult:
    calls = tuple([call for one in answers for call in one.calls])
    failures = [one for one in answers if one.status == "error"]
    if failures:
        said = f"{len(failures)} of {len(answers)} comparisons: {failures[0].error}"
        return failures[0]._replace(error=said, calls=calls)
    values = [one.value for one in answers if one.value is not None]
    if not values:
        return ComponentResult(
            None, "abstained", explanation="there was nothing to compare it with", calls=calls
        )
    facts = next((one.evidence for one in answers if isinstance(one.evidence, Mapping)), {})
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
    """Where a group's values of one component come from; model and prompt as it or its parameters say."""
    members = tuple(map(_digest, group))
    facts: dict[str, Any] = {**entry.params}
    for one in grades:
        facts |= one.evidence if isinstance(one.evidence, Mapping) else {}
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
    """SHA-256 of canonical JSON; what JSON does not know goes in as its `repr`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

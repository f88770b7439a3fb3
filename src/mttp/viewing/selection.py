"""Which episodes a report holds, when it can't hold all."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from mttp.model.figures import EpisodeFigures

__all__ = ["select"]

_TAIL = 0.1
"""Share of the report for each end of the rewards of successes, of failures, and for invalid episodes."""


def select(
    episodes: Sequence[EpisodeFigures], limit: int, named: Collection[str] = ()
) -> tuple[list[EpisodeFigures], str]:
    """
    At most `limit` episodes in order of start, and a sentence that says how they were chosen.

    `named` are trace ids that are kept in any case, such as examples of findings.
    The sentence is empty if all episodes are kept.
    """
    if len(episodes) <= limit:
        return [*episodes], ""
    chosen: dict[str, None] = {}
    known = {one.trace_id for one in episodes}
    for trace_id in named:
        if trace_id in known and len(chosen) < limit:
            chosen[trace_id] = None
    size = max(1, int(limit * _TAIL))
    for tail in _tails(episodes, size):
        for one in tail:
            if len(chosen) < limit:
                chosen[one.trace_id] = None
    even = _evenly([one for one in episodes if one.trace_id not in chosen], limit - len(chosen))
    kept = {*chosen, *(one.trace_id for one in even)}
    sentence = (
        f"{len(kept):,} of {len(episodes):,} episodes are here: examples of findings, up to {size:,} each of "
        "the failures with the highest rewards, the successes with the lowest rewards, the lowest and the "
        "highest rewards, and those with errors or without a valid reward; the rest at even distances in "
        "order of start. Curves, distributions and tables are of all episodes."
    )
    return [one for one in episodes if one.trace_id in kept], sentence


def _tails(episodes: Sequence[EpisodeFigures], size: int) -> Iterator[list[EpisodeFigures]]:
    """Failures with high rewards, successes with low ones, errors, and both ends of all rewards."""
    scored = sorted((one for one in episodes if not math.isnan(_score(one))), key=_score)
    yield [one for one in reversed(scored) if one.success is False][:size]
    yield [one for one in scored if one.success][:size]
    yield [one for one in episodes if one.status != "completed" or one.reward_status == "error"][:size]
    yield scored[:size]
    yield scored[::-1][:size]


def _score(one: EpisodeFigures) -> float:
    """The reward, else the return; NaN if neither is known or it does not count."""
    counted = one.as_counted()
    found = counted.return_ if counted.reward is None else counted.reward
    return math.nan if found is None else found


def _evenly(episodes: Sequence[EpisodeFigures], count: int) -> list[EpisodeFigures]:
    if count <= 0:
        return []
    return [episodes[place * len(episodes) // count] for place in range(min(count, len(episodes)))]

"""Which episodes a report holds, when it can't hold all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

from mttp.viewing.figures import SCORE, EpisodeDatabase

__all__ = ["ScoredEpisode", "scored_episodes", "select"]

ScoredEpisode: TypeAlias = "dict[str, Any]"
"""Trace id, run id, score, success, and whether the episode or its reward failed."""

_TAIL = 0.1
"""Share of the report for each end of the rewards of successes, of failures, and for invalid episodes."""


def scored_episodes(database: EpisodeDatabase) -> list[ScoredEpisode]:
    """Return the episodes in order of start."""
    return database.rows(
        f"SELECT trace_id, run_id, {SCORE} AS score, success, "
        "status <> 'completed' OR reward_status = 'error' AS has_failed "
        "FROM episodes ORDER BY start_time, trace_id"
    )


def select(
    episodes: Sequence[ScoredEpisode], limit: int, named: Collection[str] = ()
) -> tuple[list[str], str]:
    """
    Return the ids of at most `limit` episodes in order of start, and a sentence on how they were chosen.

    `named` are trace ids that are kept in any case, such as examples of findings.
    The sentence is empty if all episodes are kept.
    """
    trace_ids = [episode["trace_id"] for episode in episodes]
    if len(episodes) <= limit:
        return trace_ids, ""
    size = max(1, int(limit * _TAIL))
    known = {*trace_ids}
    important = [trace_id for trace_id in named if trace_id in known]
    for tail in _tails(episodes):
        important += [episode["trace_id"] for episode in tail[:size]]
    chosen = {*[*dict.fromkeys(important)][:limit]}
    chosen |= {*_evenly([trace_id for trace_id in trace_ids if trace_id not in chosen], limit - len(chosen))}
    sentence = (
        f"{len(chosen):,} of {len(episodes):,} episodes are here: examples of findings, up to {size:,} each "
        "of the failures with the highest rewards, the successes with the lowest rewards, the lowest and the "
        "highest rewards, and those with errors or without a valid reward; the rest at even distances in "
        "order of start. Curves, distributions and tables are of all episodes."
    )
    return [trace_id for trace_id in trace_ids if trace_id in chosen], sentence


def _tails(episodes: Sequence[ScoredEpisode]) -> Iterator[list[ScoredEpisode]]:
    """Yield failures with high rewards, successes with low ones, errors, and both ends of all rewards."""
    scored = sorted(
        (episode for episode in episodes if episode["score"] is not None),
        key=lambda episode: float(episode["score"]),
    )
    yield [episode for episode in reversed(scored) if episode["success"] is False]
    yield [episode for episode in scored if episode["success"]]
    yield [episode for episode in episodes if episode["has_failed"]]
    yield scored
    yield scored[::-1]


def _evenly(trace_ids: Sequence[str], count: int) -> list[str]:
    if count <= 0:
        return []
    return [trace_ids[place * len(trace_ids) // count] for place in range(min(count, len(trace_ids)))]

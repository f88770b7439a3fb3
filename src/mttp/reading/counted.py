"""Which episodes of a recording count, by the rule of `mttp.model.counting`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from mttp.model.counting import LEFT_OUT, Reason, counting, training_runs
from mttp.model.figures import EpisodeFigures

if TYPE_CHECKING:
    from mttp.model.episodes import Run

__all__ = ["counted_figures", "reasons_of", "training_of"]


def training_of(
    runs: Iterable[Run], episodes: Iterable[EpisodeFigures], with_updates: Iterable[str]
) -> frozenset[str]:
    """Return the ids of the runs that train; `with_updates` are the ids of those with updates."""
    return training_runs(runs, map(attrgetter("run", "task", "split"), episodes), with_updates=with_updates)


def reasons_of(episodes: Iterable[EpisodeFigures], training: frozenset[str]) -> list[Reason]:
    """Return for each episode why it counts or not; `training` is the result of `training_of`."""
    return [
        counting(
            status=episode.status,
            stop_reason=episode.stop_reason,
            is_training=episode.run in training,
            task=episode.task,
            split=episode.split,
        )
        for episode in episodes
    ]


def counted_figures(
    figures: Iterable[EpisodeFigures], runs: Iterable[Run], with_updates: Iterable[str]
) -> tuple[list[EpisodeFigures], Counter[Reason]]:
    """
    Return the figures of the episodes that count or are missing, in order of start, and the others by reason.

    The figures lack the numbers that do not count; `with_updates` are the ids of the runs with updates.
    """
    ordered = sorted(figures, key=attrgetter("start_time", "trace_id"))
    reasons = reasons_of(ordered, training_of(runs, ordered, with_updates))
    counted = [
        episode.as_counted()
        for episode, reason in zip(ordered, reasons, strict=True)
        if reason not in LEFT_OUT
    ]
    return counted, Counter(reason for reason in reasons if reason in LEFT_OUT)

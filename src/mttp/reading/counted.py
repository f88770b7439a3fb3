"""Which episodes of a recording count, by the rule of `mttp.model.counting`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from mttp.model.counting import LEFT_OUT, Reason, counting, training_runs
from mttp.reading.episode_figures import EpisodeFigures
from mttp.reading.recording import Recording
from mttp.reading.source_aggregation import read_figures
from mttp.reading.value_aggregation import episode_figures

if TYPE_CHECKING:
    from mttp.model.episodes import Run
    from mttp.otlp.streams import Progress
    from mttp.reading.sources import Source

__all__ = ["counted_figures", "reasons_of", "training_of"]


def training_of(
    runs: Iterable[Run], episodes: Iterable[EpisodeFigures], with_updates: Iterable[str]
) -> frozenset[str]:
    """Return the ids of the runs that train; `with_updates` are the ids of those with updates."""
    with_tasks = {episode.run for episode in episodes if episode.task}
    return training_runs(runs, with_tasks=with_tasks, with_updates=with_updates)


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
    source: Source | Recording, *, progress: Progress | None = None
) -> tuple[list[EpisodeFigures], Counter[Reason]]:
    """
    Return the figures of the episodes that count or are missing, in order of start, and the others by reason.

    The figures lack the numbers that do not count.
    """
    episodes: Iterable[EpisodeFigures]
    if isinstance(source, Recording):
        runs, episodes = source.runs, map(episode_figures, source.episodes)
        with_updates = {update.run_id for update in source.updates}
    else:
        found, episodes = read_figures(source, progress=progress)
        runs, by_run = found.runs, found.spans.aggregate.runs
        with_updates = {run for run, counts in by_run.items() if counts.update_times}
    figures = sorted(episodes, key=attrgetter("start_time", "trace_id"))
    reasons = reasons_of(figures, training_of(runs, figures, with_updates))
    counted = [
        episode.as_counted()
        for episode, reason in zip(figures, reasons, strict=True)
        if reason not in LEFT_OUT
    ]
    return counted, Counter(reason for reason in reasons if reason in LEFT_OUT)

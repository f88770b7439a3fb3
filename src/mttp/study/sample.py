"""The episodes of one side of a comparison, as figures."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

from mttp.errors import ReadError
from mttp.model.episodes import Run
from mttp.reading import Recording, read
from mttp.reading.episode_figures import EpisodeFigures
from mttp.reading.source_aggregation import read_figures
from mttp.reading.sources import RecordedSpans
from mttp.reading.value_aggregation import episode_figures

__all__ = ["EpisodeFigures", "Sample", "Side", "load"]

Side: TypeAlias = "str | os.PathLike[str] | RecordedSpans | Recording | Sequence[Any]"
"""A path, glob, directory or trace store, a session, a `Recording`, or a list of these: several seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One side of a comparison."""

    name: str
    """What it was read from."""
    runs: tuple[Run, ...]
    episodes: tuple[EpisodeFigures, ...]
    """In order of start."""
    problems: tuple[str, ...] = ()
    """What is wrong with the recordings, in words."""
    updates: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Start times of policy updates by run id, in order."""

    def by_run(self) -> dict[str, list[EpisodeFigures]]:
        """The episodes of each run, in order of start."""
        found: dict[str, list[EpisodeFigures]] = {}
        for episode in self.episodes:
            found.setdefault(episode.run, []).append(episode)
        return found

    @property
    def is_training(self) -> bool:
        """Whether a run updated its policy while it recorded these episodes."""
        return any(self.updates.get(run) for run in {episode.run for episode in self.episodes})


def load(side: Side, *, progress: Callable[[int], object] | None = None) -> Sample:
    """
    The episodes of a side; raises ReadError where there is nothing to read or no episode in it.

    Files and trace stores are read in one pass without building episodes.
    """
    parts = [_part(source, progress) for source in _sources(side)]
    name = ", ".join(one.name for one in parts if one.name) or "memory"
    episodes = sorted(
        (episode for one in parts for episode in one.episodes),
        key=attrgetter("start_time", "trace_id"),
    )
    if not episodes:
        raise ReadError(f"{name} holds no episodes: there is nothing to compare")
    updates: defaultdict[str, list[int]] = defaultdict(list)
    for one in parts:
        for run, times in one.updates.items():
            updates[run] += times
    return Sample(
        name=name,
        runs=tuple(run for one in parts for run in one.runs),
        episodes=tuple(episodes),
        problems=tuple(problem for one in parts for problem in one.problems),
        updates={run: sorted(times) for run, times in updates.items()},
    )


def _sources(side: Side) -> Iterable[Any]:
    if isinstance(side, Sequence) and not isinstance(side, (str, bytes)):
        return side
    return [side]


def _part(source: Any, progress: Callable[[int], object] | None) -> Sample:
    if isinstance(source, (str, os.PathLike)):
        return _of_spans(source, progress)
    return _of_values(source if isinstance(source, Recording) else read(source, progress=progress))


def _of_spans(source: str | os.PathLike[str], progress: Callable[[int], object] | None) -> Sample:
    found, episodes = read_figures(source, progress=progress)
    return Sample(
        name=", ".join([*map(str, found.sources), *found.stores]),
        runs=tuple(found.runs),
        episodes=tuple(episodes),
        problems=tuple(problem.message for problem in found.problems),
        updates={run: counts.update_times for run, counts in found.spans.aggregate.runs.items()},
    )


def _of_values(recording: Recording) -> Sample:
    updates: defaultdict[str, list[int]] = defaultdict(list)
    for update in recording.updates:
        updates[update.run_id].append(update.start_time or 0)
    return Sample(
        name=", ".join([*map(str, recording.sources), *recording.stores]),
        runs=tuple(recording.runs),
        episodes=tuple(map(episode_figures, recording.episodes)),
        problems=tuple(problem.message for problem in recording.problems),
        updates=updates,
    )

"""The episodes of one side of a comparison, as figures."""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import fmean
from typing import Any, TypeAlias

from mttp.errors import ReadError
from mttp.model.counting import LEFT_OUT, NOT_COUNTED, Reason
from mttp.model.episodes import Run
from mttp.model.figures import EpisodeFigures
from mttp.model.statistics.inference import ValueRange
from mttp.model.weighting import weighting
from mttp.reading import Recording
from mttp.reading.completeness import missing_episodes, sampled
from mttp.reading.counted import reasons_of, training_of
from mttp.reading.identity import episodes_digest
from mttp.reading.problems import Problem
from mttp.reading.sources import RecordedSpans
from mttp.semconv import attributes as a
from mttp.tables import Database
from mttp.tables.completeness import COMPLETENESS, complete_runs
from mttp.tables.figures import FIGURES, figures_of, figures_of_values

Side: TypeAlias = "str | os.PathLike[str] | RecordedSpans | Recording | Database | Sequence[Any]"
"""A path, glob, directory or trace store, a session, a `Recording`, its tables, or a list: several seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleIdentity:
    """Which recording a side is."""

    runs: tuple[str, ...] = ()
    """Ids of its runs."""
    names: tuple[str, ...] = ()
    revisions: tuple[str, ...] = ()
    """Git commits of its runs."""
    last_start: int = 0
    """Start of its last episode, in nanoseconds since the Unix epoch."""
    last_episode: str = ""
    """Trace id of its last episode."""
    sha256: str = ""
    """Digest of its episodes, which annotations do not change; `mttp summary` prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One side of a comparison: the episodes that count, and those that are missing."""

    name: str
    """What it was read from."""
    runs: tuple[Run, ...]
    episodes: tuple[EpisodeFigures, ...]
    """In order of start; those without an end have no values, see `EpisodeFigures.as_counted`."""
    problems: tuple[str, ...] = ()
    """What is wrong with the recordings, in words."""
    sampled: tuple[str, ...] = ()
    """What says that there are only some episodes of a run."""
    notes: tuple[str, ...] = ()
    """What was left out, in words."""
    updates: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Start times of policy updates by run id, in order."""
    entropies: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The policy's entropy at each update that states it, by run id."""
    training: frozenset[str] = frozenset()
    """Ids of the runs whose episodes are a learning curve."""
    identity: SampleIdentity = SampleIdentity()

    def by_run(self) -> dict[str, list[EpisodeFigures]]:
        """Return the episodes of each run, in order of start."""
        runs: dict[str, list[EpisodeFigures]] = {}
        for episode in self.episodes:
            runs.setdefault(episode.run, []).append(episode)
        return runs

    @property
    def is_training(self) -> bool:
        """Whether the episodes of a run are a learning curve."""
        return any(run in self.training or self.updates.get(run) for run in {e.run for e in self.episodes})

    def spec_range(self) -> ValueRange | None:
        """Return the range that the one reward spec of all episodes states; None without one."""
        specs = {episode.spec for episode in self.episodes if episode.spec[0]}
        documents = {document for run in self.runs for document in run.spec_documents}
        if len(specs) != 1 or len(documents) != 1:
            return None
        try:
            low, high = json.loads(documents.pop())["range"]
            return float(low), float(high)
        except (KeyError, TypeError, ValueError):
            return None


def load(side: Side, *, progress: Callable[[int], object] | None = None) -> Sample:
    """
    Return the episodes of a side; raises ReadError where there is nothing to read or no episode in it.

    Files and trace stores are read in one pass without building episodes.
    An episode that is in several recordings counts once.
    """
    sources = side if isinstance(side, Sequence) and not isinstance(side, (str, bytes)) else [side]
    parts = [_part(source, progress) for source in sources]
    name = ", ".join(part.name for part in parts if part.name) or "memory"
    updates: defaultdict[str, list[int]] = defaultdict(list)
    entropies: defaultdict[str, list[float]] = defaultdict(list)
    for part in parts:
        for run, times in part.updates.items():
            updates[run] += times
        for run, values in part.entropies.items():
            entropies[run] += values
    runs = tuple(run for part in parts for run in part.runs)
    read_episodes = sorted(
        (episode for part in parts for episode in part.episodes), key=attrgetter("start_time", "trace_id")
    )
    if not read_episodes:
        raise ReadError(f"{name} holds no episodes: there is nothing to compare")
    distinct, notes = _distinct(read_episodes)
    played = {episode.run for episode in distinct}
    training = training_of(runs, distinct, [run for run, times in updates.items() if times])
    episodes, left_out = _counted(distinct, training)
    if not episodes:
        reasons = "; ".join(left_out)
        raise ReadError(f"{name} holds no episode that counts: {reasons}")
    return Sample(
        name=name,
        runs=runs,
        episodes=tuple(episodes),
        problems=tuple(problem for part in parts for problem in part.problems),
        sampled=_weighted(_sampled(parts, distinct), episodes),
        notes=(*notes, *left_out),
        updates={run: sorted({*times}) for run, times in updates.items()},
        entropies={run: values for run, values in entropies.items() if run in training},
        training=training,
        identity=SampleIdentity(
            runs=tuple(sorted(played)),
            names=tuple(sorted({run.name for run in runs if run.name and run.id in played})),
            revisions=tuple(sorted({run.revision for run in runs if run.revision and run.id in played})),
            last_start=distinct[-1].start_time,
            last_episode=distinct[-1].trace_id,
            sha256=episodes_digest(
                (
                    episode.trace_id,
                    episode.start_time,
                    episode.env,
                    episode.task,
                    episode.status,
                    episode.length,
                    episode.return_,
                    episode.duration,
                )
                for episode in distinct
            ),
        ),
    )


def _distinct(episodes: Sequence[EpisodeFigures]) -> tuple[list[EpisodeFigures], list[str]]:
    """Return each episode once, and a note about those that were repeated."""
    first: dict[str, EpisodeFigures] = {}
    nameless = []
    for episode in episodes:
        if episode.trace_id:
            first.setdefault(episode.trace_id, episode)
        else:
            nameless.append(episode)
    distinct = [*first.values(), *nameless]
    repeated = len(episodes) - len(distinct)
    notes = [f"{repeated:,} episodes are there more than once and count once"] if repeated else []
    return sorted(distinct, key=attrgetter("start_time", "trace_id")) if nameless else distinct, notes


def _counted(
    episodes: Sequence[EpisodeFigures], training: frozenset[str]
) -> tuple[list[EpisodeFigures], list[str]]:
    """Return the episodes that count or are missing, and notes about the others."""
    counted: list[EpisodeFigures] = []
    others: Counter[Reason] = Counter()
    for episode, reason in zip(episodes, reasons_of(episodes, training), strict=True):
        if reason in LEFT_OUT:
            others[reason] += 1
        else:
            counted.append(episode.as_counted())
    return counted, [
        f"{others[reason]:,} episodes {NOT_COUNTED[reason]}" for reason in LEFT_OUT if others[reason]
    ]


def _sampled(parts: Sequence[Sample], episodes: Iterable[EpisodeFigures]) -> tuple[str, ...]:
    """Return for each run that it lacks episodes, if a part of the side says so and the others lack them."""
    if not any(part.sampled for part in parts):
        return ()
    runs = {(run.id, run.host, run.pid, run.start_time): run for part in parts for run in part.runs}
    return tuple(missing_episodes(runs.values(), Counter(episode.run for episode in episodes)))


def _weighted(sampled: tuple[str, ...], episodes: Sequence[EpisodeFigures]) -> tuple[str, ...]:
    """Return what says that there are only some episodes, and what these say if they are weighted."""
    shares, returns, successes = (
        [math.nan if value is None else float(value) for value in map(attrgetter(name), episodes)]
        for name in ("share", "return_", "success")
    )
    note = weighting(shares, returns, successes, is_sample=bool(sampled))
    return sampled if note is None else (*sampled, f"each episode counts once; {note}")


def _part(source: Any, progress: Callable[[int], object] | None) -> Sample:
    if isinstance(source, Recording):
        return _of_values(source)
    if isinstance(source, Database):
        return _of_tables(source)
    with Database(source, progress=progress) as database:
        return _of_tables(database)


def _of_tables(database: Database) -> Sample:
    database.prepare(_EPISODES, _UPDATES, COMPLETENESS)
    runs = complete_runs(database)
    return Sample(
        name=", ".join([*map(str, database.sources), *database.stores]),
        runs=tuple(runs),
        episodes=tuple(figures_of(database.arrow(_EPISODES))),
        **_of_problems([*dict.fromkeys(database.problems)]),
        **_of_updates((row["run"], row["start"], row["entropy"]) for row in database.rows(_UPDATES)),
    )


_EPISODES = f"{FIGURES} FROM episodes"
_UPDATES = (
    f"""SELECT coalesce("{a.RUN_ID}", '') AS run, start_time AS start, "{a.UPDATE_ENTROPY}" AS entropy """
    "FROM spans WHERE type = 'update' ORDER BY start_time, span_id"
)


def _of_values(recording: Recording) -> Sample:
    updates = ((update.run_id, update.start_time or 0, update.entropy) for update in recording.updates)
    return Sample(
        name=", ".join([*map(str, recording.sources), *recording.stores]),
        runs=tuple(recording.runs),
        episodes=tuple(figures_of_values(recording.episodes)),
        **_of_problems(recording.problems),
        **_of_updates(updates),
    )


def _of_problems(problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the fields of a sample about problems."""
    missing = sampled(problems)
    others = (problem.message for problem in problems)
    return {"problems": tuple(message for message in others if message not in missing), "sampled": missing}


def _of_updates(updates: Iterable[tuple[str, int, float | None]]) -> dict[str, Any]:
    """Return the fields of a sample about updates, from run, start and entropy of each."""
    times: defaultdict[str, list[int]] = defaultdict(list)
    entropies: defaultdict[str, list[float]] = defaultdict(list)
    for run, start, entropy in updates:
        times[run].append(start)
        if entropy is not None and math.isfinite(entropy):
            entropies[run].append(entropy)
    return {"updates": times, "entropies": entropies}


def run_entropies(*sides: Sample) -> dict[str, float]:
    """Return the policy's mean entropy over the updates of each training run that states it."""
    return {run: fmean(values) for side in sides for run, values in side.entropies.items()}

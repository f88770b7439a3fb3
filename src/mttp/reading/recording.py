"""Recordings as values: every episode and run that files, directories or sessions hold."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mttp.codec import annotations as annotation_codec
from mttp.codec import episodes as episode_codec
from mttp.codec import groups as group_codec
from mttp.codec import kinds
from mttp.codec import runs as run_codec
from mttp.codec import updates as update_codec
from mttp.episodes import Annotation, Call, Episode, Group, Run, Update, ordered
from mttp.errors import ReadError
from mttp.evaluations import Evaluation
from mttp.reading.call_times import timed
from mttp.reading.evals import Part, merged, part
from mttp.reading.folding import fold, in_order
from mttp.reading.problems import Problem, undecodable
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source
from mttp.scorings import GradingUsage
from mttp.spans import SpanRecord
from mttp.wire.streams import Progress

if TYPE_CHECKING:
    from mttp.reading.tables import Tables

__all__ = ["Recording", "read"]

_Traces: TypeAlias = dict[str, dict[str, SpanRecord]]


@dataclass(frozen=True, repr=False)
class Recording:
    """What was recorded: iterate over it for its episodes."""

    episodes: list[Episode]
    """In order of start, then trace id."""
    runs: list[Run] = field(default_factory=list)
    """In order of start; one per process of a run."""
    groups: list[Group] = field(default_factory=list)
    """In order of start; what they say is on the episodes too."""
    updates: list[Update] = field(default_factory=list)
    """Likewise."""
    annotations: list[Annotation] = field(default_factory=list)
    """Likewise; those whose target is not in the recording are only here."""
    evals: list[Evaluation] = field(default_factory=list)
    """Evaluations in order of start; their results are on the episodes too."""
    problems: list[Problem] = field(default_factory=list)
    """What is wrong with the recording; whatever a problem does not touch was read."""
    sources: list[Path] = field(default_factory=list)
    """The files that it was read from, in order."""
    stores: list[str] = field(default_factory=list)
    """The trace stores that it was read from, in order."""
    duplicates: int = 0
    """Spans that were there more than once, as after a send that was tried again; each counts once."""

    def __len__(self) -> int:
        return len(self.episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    def __repr__(self) -> str:
        known = {"group": len(self.groups), "update": len(self.updates), "annotation": len(self.annotations)}
        counted = {"episode": len(self.episodes), "run": len(self.runs)}
        known["evaluation"] = len(self.evals)
        counted |= {noun: count for noun, count in known.items() if count}
        counted["problem"] = len(self.problems)
        counts = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counted.items())
        return f"<Recording of {counts}, from {_named([*map(str, self.sources), *self.stores])}>"

    def episode(self, id_prefix: str) -> Episode:
        """The episode whose trace id begins with `id_prefix`; raises ReadError unless there is just one."""
        found = [episode for episode in self.episodes if episode.trace_id.startswith(id_prefix.lower())]
        if len(found) == 1:
            return found[0]
        if not found:
            raise ReadError(
                f"no episode's trace id begins with {id_prefix!r}; there are {len(self)} episodes"
            )
        shown = ", ".join(episode.trace_id for episode in found[:3]) + (", …" if len(found) > 3 else "")
        raise ReadError(
            f"{len(found)} episodes' trace ids begin with {id_prefix!r}; give more of it: {shown}"
        )

    @property
    def grading_usage(self) -> GradingUsage:
        """What graders' own calls of models came to, over all episodes; none of it is the policies'."""
        return GradingUsage.total(episode.grading_usage for episode in self.episodes)

    @cached_property
    def tables(self) -> Tables:
        """The same as Arrow tables, such as episodes, steps and rewards; needs `mttp[study]`."""
        from mttp.reading.tables import Tables

        return Tables(
            self.episodes,
            groups=self.groups,
            updates=self.updates,
            annotations=self.annotations,
            evals=self.evals,
        )


def read(source: Source, *, strict: bool = False, progress: Progress | None = None) -> Recording:
    """
    Everything that `source` holds.

    `source` is a file (with its rotated parts), a glob, a directory, a session, the address of a trace store
    such as `tempo://localhost:3200?run=ID`, or a list of these.
    Broken lines, unfinished episodes and the like are in the result's `problems`.
    Raises ReadError where a source does not exist or is no recording, and with `strict` at the first problem.
    `progress` is called with the number of bytes of each piece that was read.
    """
    scan = Scan(source, arrays=True, strict=strict, progress=progress)
    with _uncollected():
        traces, duplicates = _traces(scan)
        found = _decoded(scan, traces)
        groups, updates = in_order(found.groups), in_order(found.updates)
        annotations = in_order(found.annotations)
        evals = timed(merged(found.evals, scan), _calls(found.episodes))
        episodes = fold(
            ordered(found.episodes), groups, updates, annotations, evals, add_problem=scan.add_problem
        )
    return Recording(
        episodes=episodes,
        runs=sorted(found.runs, key=lambda run: (run.start_time or 0, run.id)),
        groups=groups,
        updates=updates,
        annotations=annotations,
        evals=evals,
        problems=scan.problems,
        sources=scan.sources,
        stores=scan.stores,
        duplicates=duplicates,
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing made meanwhile is garbage: looking for it again and again would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _traces(scan: Scan) -> tuple[_Traces, int]:
    """Spans by trace and span id, each once; how many came again."""
    traces: _Traces = {}
    duplicates = 0
    for record in scan:
        trace = traces.setdefault(record.trace_id, {})
        first = trace.setdefault(record.span_id, record)
        if first is not record:
            duplicates += 1
            if not _is_same(first, record):
                message = f"two different spans of trace {record.trace_id} have the id {record.span_id}: "
                scan.add_problem(
                    "conflicting_spans", f"{message}{first.name!r} was kept", trace_id=record.trace_id
                )
    return traces, duplicates


def _is_same(first: SpanRecord, second: SpanRecord) -> bool:
    return (first.name, first.start_time, first.end_time) == (second.name, second.start_time, second.end_time)


@dataclass(slots=True)
class _Found:
    """What the traces of a recording hold, in the order in which they were found."""

    episodes: list[Episode] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    evals: list[Part] = field(default_factory=list)

    def take(self, records: Sequence[SpanRecord]) -> None:
        """Take what the spans of a trace, which is no episode's, hold; other people's hold nothing."""
        if of_run := [record for record in records if kinds.is_run(record)]:
            self.runs.append(run_codec.decode(of_run))
            return
        if of_evaluation := [record for record in records if kinds.is_evaluation(record)]:
            self.evals.append(part(of_evaluation))
            return
        for record in records:
            if kinds.is_group(record):
                self.groups.append(group_codec.decode(record))
            elif kinds.is_update(record):
                self.updates.append(update_codec.decode(record, records))
            elif kinds.is_annotation(record):
                self.annotations.append(annotation_codec.decode(record, records))


def _decoded(scan: Scan, traces: _Traces) -> _Found:
    """What the traces hold, other people's left out; one that can't be made sense of is a problem."""
    found = _Found()
    for trace_id in list(traces):
        records = list(traces.pop(trace_id).values())
        try:
            if episode_codec.is_episode(records):
                found.episodes.append(_episode(scan, records))
            else:
                found.take(records)
        except ReadError:
            raise
        except Exception as error:
            scan.add_problem("broken_trace", undecodable(trace_id, error), trace_id=trace_id)
    return found


def _calls(episodes: Sequence[Episode]) -> Callable[[str], Iterator[Call]]:
    """A function from a trace id to the calls within the steps of that episode."""
    by_trace = {episode.trace_id: episode for episode in episodes}

    def calls(trace_id: str) -> Iterator[Call]:
        for step in by_trace[trace_id].steps if trace_id in by_trace else ():
            yield from step.calls

    return calls


def _episode(scan: Scan, records: Sequence[SpanRecord]) -> Episode:
    episode = episode_codec.decode(records)
    if episode.status == "unfinished":
        message = f"episode {episode.trace_id} has no end: {episode.step_count} steps were found"
        scan.add_problem("unfinished_episode", message, trace_id=episode.trace_id)
    elif not episode.complete:
        message = f"episode {episode.trace_id} lacks spans: {episode_codec.lacking(records)}"
        scan.add_problem("incomplete_episode", message, trace_id=episode.trace_id)
    return episode


def _named(sources: Sequence[str]) -> str:
    if not sources:
        return "memory"
    return sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more files"

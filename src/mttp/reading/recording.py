"""Recordings as values: every episode and run that files, directories or sessions hold."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from mttp.codec import annotations as annotation_codec
from mttp.codec import episodes as episode_codec
from mttp.codec import groups as group_codec
from mttp.codec import kinds
from mttp.codec import runs as run_codec
from mttp.codec import updates as update_codec
from mttp.errors import ConfigureError, ReadError
from mttp.model.episodes import Annotation, Call, Episode, Group, Run, Update, ordered
from mttp.model.evaluations import Evaluation
from mttp.model.scorings import GradingUsage
from mttp.model.spans import SpanRecord
from mttp.otlp.streams import Progress
from mttp.reading import notebook
from mttp.reading.call_times import timed
from mttp.reading.duplicates import fuller, is_lossless, is_same
from mttp.reading.evals import EvaluationPart, merged, part
from mttp.reading.filtering import Words, matches
from mttp.reading.folding import fold, in_order
from mttp.reading.problems import Problem, undecodable
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source

if TYPE_CHECKING:
    from mttp.reading.summary import Summary
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

    def __contains__(self, item: object) -> bool:
        """Whether there is an episode, or one whose id it is, or whose trace id begins with it."""
        return bool(item and self._called(item)) if isinstance(item, str) else item in self.episodes

    def __repr__(self) -> str:
        known = {"group": len(self.groups), "update": len(self.updates), "annotation": len(self.annotations)}
        counted = {"episode": len(self.episodes), "run": len(self.runs)}
        known["evaluation"] = len(self.evals)
        counted |= {noun: count for noun, count in known.items() if count}
        counted["problem"] = len(self.problems)
        counts = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counted.items())
        return f"<Recording of {counts}, from {_named([*map(str, self.sources), *self.stores])}>"

    def _repr_html_(self) -> str:
        """The recording as notebooks show it: a table of its first episodes."""
        return notebook.table(repr(self)[1:-1], self.episodes)

    @overload
    def __getitem__(self, place: str | int) -> Episode: ...

    @overload
    def __getitem__(self, place: slice) -> list[Episode]: ...

    def __getitem__(self, place: str | int | slice) -> Episode | list[Episode]:
        """An episode by its id, or by the beginning of its trace id, or by its place, as in a list."""
        return self.episode(place) if isinstance(place, str) else self.episodes[place]

    def episode(self, id_prefix: str) -> Episode:
        """
        The episode whose own id is `id_prefix`, or whose trace id begins with it.

        Raises ReadError unless there is just one.
        """
        found = self._called(id_prefix)
        if len(found) == 1:
            return found[0]
        shown = ", ".join(episode.trace_id for episode in (found or self.episodes)[:3])
        shown += ", …" if len(found or self.episodes) > 3 else ""
        if not found:
            known = f"there are {len(self)} episodes: {shown}" if shown else "there are no episodes"
            raise ReadError(f"no episode's trace id begins with {id_prefix!r}; {known}")
        raise ReadError(
            f"{len(found)} episodes' trace ids begin with {id_prefix!r}; give more of it: {shown}"
        )

    def _called(self, id_prefix: str) -> list[Episode]:
        """Episodes whose own id it is; where there are none, those whose trace ids begin with it."""
        found = [episode for episode in self.episodes if episode.id == id_prefix and id_prefix]
        return found or [one for one in self.episodes if one.trace_id.startswith(id_prefix.lower())]

    @property
    def grading_usage(self) -> GradingUsage:
        """What graders' own calls of models came to, over all episodes; none of it is the policies'."""
        return GradingUsage.total(episode.grading_usage for episode in self.episodes)

    def summary(self) -> Summary:
        """
        The figures of these episodes, as `summarize` has them of files.

        It counts what values hold: a call outside of steps is known to `summarize` alone.
        """
        from mttp.reading.value_aggregation import aggregate_values
        from mttp.reading.summary import summed

        aggregate = aggregate_values(
            self.episodes, groups=self.groups, updates=self.updates, annotations=self.annotations
        )
        return summed(
            aggregate,
            self.runs,
            evals=len(self.evals),
            problems=self.problems,
            sources=self.sources,
            duplicates=self.duplicates,
        )

    def filter(
        self,
        predicate: Callable[[Episode], object] | None = None,
        *,
        env: Words = None,
        task: Words = None,
        split: Words = None,
        group: Words = None,
        policy: Words = None,
        run: Words = None,
        spec: Words = None,
        status: Words = None,
        outcome: Words = None,
        reward_status: Words = None,
    ) -> Recording:
        """
        The recording of those episodes alone that are all that is asked: one word, or any of several.

        `run` is a run's id or name, and `spec` the name of the reward spec that paid, or name@version.
        `predicate` is called with each episode that is left.
        Runs, groups, updates, annotations, evaluations and problems are those of these episodes.
        """
        if predicate is not None and not callable(predicate):
            raise ConfigureError(
                f"filter({predicate!r}): the first argument is a function of an episode; "
                "words go by name, as in filter(status='error')"
            )
        asked = {
            "env": env,
            "task": task,
            "split": split,
            "group": group,
            "policy": policy,
            "run": run,
            "spec": spec,
            "status": status,
            "outcome": outcome,
            "reward_status": reward_status,
        }
        names = {run.id: run.name for run in self.runs}
        kept = [episode for episode in self.episodes if matches(episode, asked, names)]
        return self._of([episode for episode in kept if predicate is None or predicate(episode)])

    def _of(self, episodes: list[Episode]) -> Recording:
        """The part of the recording that is about these episodes; problems of no episode stay."""
        traces = {episode.trace_id for episode in episodes}
        runs = {episode.run_id for episode in episodes}
        return replace(
            self,
            episodes=episodes,
            runs=[run for run in self.runs if run.id in runs],
            groups=[group for group in self.groups if not traces.isdisjoint(group.episodes)],
            updates=[update for update in self.updates if update.run_id in runs],
            annotations=[found for found in self.annotations if found.episode in traces],
            evals=[found for found in self.evals if any(one.episode in traces for one in found.results)],
            problems=[found for found in self.problems if not found.trace_id or found.trace_id in traces],
        )

    def to_pandas(self, table: str = "episodes", *, expand: Sequence[str] = ()) -> Any:
        """
        One of the tables as a pandas data frame; needs pandas and `mttp[study]`.

        A map that `expand` names, such as `reward_components`, becomes a column for each of its keys, as
        `reward_components.correct`; other maps are dicts.
        """
        from mttp.reading.framing import to_pandas

        return to_pandas(self.tables, table, [expand] if isinstance(expand, str) else expand)

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
    """Spans by trace and span id, of several copies the fullest; how many came again."""
    traces: _Traces = {}
    duplicates = 0
    for record in scan:
        trace = traces.setdefault(record.trace_id, {})
        first = trace.setdefault(record.span_id, record)
        if first is not record:
            duplicates += 1
            trace[record.span_id] = _chosen(first, record, scan)
    return traces, duplicates


def _chosen(first: SpanRecord, again: SpanRecord, scan: Scan) -> SpanRecord:
    """Of two spans with one id the one that counts; what is lost by that is a problem."""
    kept = fuller(first, again) if is_same(first, again) else first
    where = f"of trace {first.trace_id} have the id {first.span_id}"
    if not is_same(first, again):
        message = f"two different spans {where}: {first.name!r} was kept"
        scan.add_problem("conflicting_spans", message, trace_id=first.trace_id)
    elif not is_lossless(kept, first if kept is again else again):
        message = f"two copies {where}, and each has attributes that the other lacks: the fuller one was kept"
        scan.add_problem("conflicting_spans", message, trace_id=first.trace_id)
    return kept


@dataclass(slots=True)
class _Found:
    """What the traces of a recording hold, in the order in which they were found."""

    episodes: list[Episode] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    evals: list[EvaluationPart] = field(default_factory=list)

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

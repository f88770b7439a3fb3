"""Recordings as values: all episodes and runs of files, directories, sessions or trace stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, overload

from mttp.codec import annotations as annotation_codec
from mttp.codec import episodes as episode_codec
from mttp.codec import groups as group_codec
from mttp.codec import kinds
from mttp.codec import runs as run_codec
from mttp.codec import updates as update_codec
from mttp.codec.duplicates import CopyKey, copy_key, fuller, is_lossless, is_same
from mttp.errors import ConfigureError, ReadError
from mttp.model.episodes import Annotation, Call, Episode, Group, Run, Update, ordered
from mttp.model.evaluations import Evaluation
from mttp.model.scorings import GradingUsage
from mttp.model.spans import SpanRecord
from mttp.otlp.streams import Progress
from mttp.reading import notebook
from mttp.reading.call_times import timed
from mttp.reading.evals import EvaluationPart, merged, part
from mttp.reading.folding import fold, in_order
from mttp.reading.garbage import gc_disabled
from mttp.reading.problems import Kind, Problem, undecodable
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source

if TYPE_CHECKING:
    from mttp.reading.plotting import RecordingPlots
    from mttp.tables import Database
    from mttp.tables.summary import Summary

__all__ = ["Recording", "read", "read_without"]

Words: TypeAlias = "str | Collection[str] | None"
"""A value, several values of which any may match, or None to match every episode."""
_Traces: TypeAlias = dict[str, dict[CopyKey, SpanRecord]]
_OF_LEFT_OUT = ("incomplete_group", "unknown_target")
"""Kinds of problems that also arise where episodes are left out."""


@dataclass(frozen=True, repr=False)
class Recording:
    """
    The episodes and runs of one or several sources, with what was learned about them later.

    A recording is a sequence of its episodes: iteration, `len` and indexing are those of `episodes`.
    Missing values are None; a value that is invalid in the source is left out and listed in `problems`.
    """

    episodes: list[Episode]
    """Episodes in order of start, then trace id, with later annotations, groups and updates merged in."""
    runs: list[Run] = field(default_factory=list)
    """Runs in order of start, one per process; processes of one run have the same `id`."""
    groups: list[Group] = field(default_factory=list)
    """Groups in order of start; their ids and advantages are also on the episodes."""
    updates: list[Update] = field(default_factory=list)
    """Updates in order of start; their indices are also in the episodes' `consumed_by`."""
    annotations: list[Annotation] = field(default_factory=list)
    """Annotations in order of start; those whose target is not in the recording are only here."""
    evals: list[Evaluation] = field(default_factory=list)
    """Evaluations in order of start; their results are also on the episodes."""
    problems: list[Problem] = field(default_factory=list)
    """Problems in the order in which they were found; everything else was read."""
    sources: list[Path] = field(default_factory=list)
    """Paths of the files that were read, in order."""
    stores: list[str] = field(default_factory=list)
    """Trace stores, as `scheme:url`, and datasets that were read, in order."""
    duplicates: int = 0
    """Number of repeated spans that were dropped, for example after a retried export."""
    _origin: ClassVar[_Origin | None] = None

    def __len__(self) -> int:
        return len(self.episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    def __contains__(self, item: object) -> bool:
        """Whether the episode is in the recording; a string is an episode id or the start of a trace id."""
        return bool(item and self._matching(item)) if isinstance(item, str) else item in self.episodes

    def __repr__(self) -> str:
        known = {"group": len(self.groups), "update": len(self.updates), "annotation": len(self.annotations)}
        counted = {"episode": len(self.episodes), "run": len(self.runs)}
        known["evaluation"] = len(self.evals)
        counted |= {noun: count for noun, count in known.items() if count}
        counted["problem"] = len(self.problems)
        counts = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counted.items())
        return f"<Recording of {counts}, from {_named([*map(str, self.sources), *self.stores])}>"

    def _repr_html_(self) -> str:
        """HTML for notebooks: a table of the first episodes."""
        return notebook.table(repr(self)[1:-1], self.episodes)

    @overload
    def __getitem__(self, place: str | int) -> Episode: ...

    @overload
    def __getitem__(self, place: slice) -> list[Episode]: ...

    def __getitem__(self, place: str | int | slice) -> Episode | list[Episode]:
        """An episode by its id, by the start of its trace id, or by its position; a slice is a list."""
        return self.episode(place) if isinstance(place, str) else self.episodes[place]

    def episode(self, id_prefix: str) -> Episode:
        """
        The one episode with the id `id_prefix`, else the one whose trace id starts with it.

        Raises ReadError if no episode or several episodes match.
        """
        matching = self._matching(id_prefix)
        if len(matching) == 1:
            return matching[0]
        shown = ", ".join(episode.trace_id for episode in (matching or self.episodes)[:3])
        shown += ", …" if len(matching or self.episodes) > 3 else ""
        if not matching:
            known = f"there are {len(self)} episodes: {shown}" if shown else "there are no episodes"
            raise ReadError(f"no episode's trace id begins with {id_prefix!r}; {known}")
        raise ReadError(
            f"{len(matching)} episodes' trace ids begin with {id_prefix!r}; give more digits: {shown}"
        )

    def _matching(self, id_prefix: str) -> list[Episode]:
        """Episodes with that id; if there are none, episodes whose trace id starts with it."""
        named = [episode for episode in self.episodes if episode.id == id_prefix and id_prefix]
        return named or [item for item in self.episodes if item.trace_id.startswith(id_prefix.lower())]

    @property
    def grading_usage(self) -> GradingUsage:
        """Totals of the graders' model calls over all episodes, without the policies' calls."""
        return GradingUsage.total(episode.grading_usage for episode in self.episodes)

    def summary(self) -> Summary:
        """
        The figures of `tables`, as `mttp.summarize` gives them of a file; the errors are those of `tables`.

        Problems and repeated spans are those of this recording.
        """
        from mttp.tables.summary import summary_of

        summary = summary_of(self.tables, {run.id for run in self.runs})
        return replace(summary, problems=self.problems, duplicates=self.duplicates)

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
        A recording of the episodes that match every argument.

        Each keyword argument is a string, or a collection of strings of which any may match.
        `run` is a run's id or name, `spec` a reward spec's name or `name@version`.
        `predicate` is called with each episode that matches the keyword arguments; a true result keeps it.
        Groups, annotations, evaluations and problems are those of the kept episodes, runs and updates those
        of the episodes' runs.
        Raises ConfigureError if `predicate` is not callable.
        """
        if predicate is not None and not callable(predicate):
            raise ConfigureError(
                f"filter({predicate!r}): the first argument is a function of an episode; "
                "give values by name, for example filter(status='error')"
            )
        filters = {
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
        episodes = [episode for episode in self.episodes if _matches(episode, filters, names)]
        return self._of([episode for episode in episodes if predicate is None or predicate(episode)])

    def _of(self, episodes: list[Episode]) -> Recording:
        """The recording reduced to these episodes; problems without a trace id are kept."""
        traces = {episode.trace_id for episode in episodes}
        runs = {episode.run_id for episode in episodes}
        reduced = replace(
            self,
            episodes=episodes,
            runs=[run for run in self.runs if run.id in runs],
            groups=[group for group in self.groups if not traces.isdisjoint(group.episodes)],
            updates=[update for update in self.updates if update.run_id in runs],
            annotations=[
                note for note in self.annotations if not traces.isdisjoint({note.episode, *note.rejected})
            ],
            evals=[item for item in self.evals if any(result.episode in traces for result in item.results)],
            problems=[item for item in self.problems if not item.trace_id or item.trace_id in traces],
        )
        if self._origin is None:
            return reduced
        source, trace_ids = self._origin
        return reduced._with_origin(source, trace_ids - (self._trace_ids() - reduced._trace_ids()))

    @cached_property
    def plot(self) -> RecordingPlots:
        """
        Plots with matplotlib: `plot.returns()`, `.components()`, `.lengths()`, `.groups()` and `.kl()`.

        Each draws on the axes `ax`, by default those of a new figure, and returns them.
        """
        from mttp.reading.plotting import RecordingPlots

        return RecordingPlots(self)

    @cached_property
    def tables(self) -> Database:
        """
        The tables of the recording: `tables.episodes`, and so on, or `tables.sql("select ...")`.

        They are computed by SQL over the spans of the source, which is read again; they have the traces of
        this recording, also if it is filtered.
        Raises ReadError if the recording was not read from a source, or its episodes were changed since, and
        MissingExtra if DuckDB or pyarrow is not installed: `pip install 'mttp[study]'`.
        """
        from mttp.tables import Database

        if self._origin is None:
            raise ReadError(
                "a recording that was made, changed or copied by hand has no spans, and so no tables; "
                "record its episodes with session.record, and read the session"
            )
        return Database(self._origin.source, traces=self._origin.traces)

    @property
    def has_tables(self) -> bool:
        """Whether its source is known, and its episodes were not changed since."""
        return self._origin is not None

    def _with_origin(self, source: Source, traces: Set[str]) -> Recording:
        object.__setattr__(self, "_origin", _Origin(source, traces))
        return self

    def _trace_ids(self) -> set[str]:
        """Return the ids of the traces that the values were read from."""
        values: list[Episode | Group | Update | Annotation]
        values = [*self.episodes, *self.groups, *self.updates, *self.annotations]
        return {value.trace_id for value in values}.union(*(value.trace_ids for value in self.evals))

    def __getstate__(self) -> dict[str, Any]:
        """Return the values: a session can't be pickled, nor can an open database."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class _Origin(NamedTuple):
    """Where a recording was read from."""

    source: Source
    traces: Set[str]
    """Ids of the traces that it has, those of other instrumentations among them."""


def read(source: Source, *, strict: bool = False, progress: Progress | None = None) -> Recording:
    """
    Read `source` and return it as a Recording.

    `source` is a file (with its rotated parts), a glob, a directory, a session, the address of a trace store
    such as `tempo://localhost:3200?run=ID`, or a list of these.
    Broken lines, unfinished episodes and similar are listed in the result's `problems`.
    `progress` is called with the number of bytes of each chunk that was read.
    Raises ReadError if a source does not exist or is not a recording, and with `strict` at the first problem.
    """
    scan = Scan(source, arrays=True, strict=strict, progress=progress)
    return _recording(source, scan, frozenset())


def read_without(source: Source, trace_ids: Set[str], *, progress: Progress | None = None) -> Recording:
    """
    Read `source` without the traces with these ids, as `read` does.

    Members of groups, annotations and preferences may then name episodes that the recording lacks; these are
    no problems.
    """
    return _recording(source, Scan(source, arrays=True, progress=progress), trace_ids)


def _recording(source: Source, scan: Scan, left_out: Set[str]) -> Recording:
    is_part = bool(left_out) or scan.selects

    def add_problem(kind: Kind, message: str, *, trace_id: str | None = None) -> None:
        if not (is_part and kind in _OF_LEFT_OUT):
            scan.add_problem(kind, message, trace_id=trace_id)

    with gc_disabled():
        traces, duplicates = _traces(scan, left_out)
        trace_ids = frozenset(traces)
        contents = _decoded(scan, traces)
        groups, updates = in_order(contents.groups), in_order(contents.updates)
        annotations = in_order(contents.annotations)
        evals = timed(merged(contents.evals, scan), _calls(contents.episodes))
        by_run = Counter(episode.run_id for episode in contents.episodes)
        lacks_episodes = not left_out and scan.add_missing_episodes(contents.runs, by_run)
        episodes = fold(
            ordered(contents.episodes),
            groups,
            updates,
            annotations,
            evals,
            lacks_episodes=lacks_episodes,
            add_problem=add_problem,
        )
    recording = Recording(
        episodes=episodes,
        runs=sorted(contents.runs, key=lambda run: (run.start_time or 0, run.id)),
        groups=groups,
        updates=updates,
        annotations=annotations,
        evals=evals,
        problems=scan.problems,
        sources=scan.sources,
        stores=scan.stores,
        duplicates=duplicates,
    )
    return recording._with_origin(source, trace_ids)


def _traces(scan: Scan, left_out: Set[str]) -> tuple[_Traces, int]:
    """Spans by trace id and key, the fullest of several copies; and the number of repeated spans."""
    traces: _Traces = {}
    duplicates = 0
    for record in scan:
        if record.trace_id in left_out:
            continue
        trace = traces.setdefault(record.trace_id, {})
        key = copy_key(record)
        first = trace.setdefault(key, record)
        if first is not record:
            duplicates += 1
            trace[key] = _chosen(first, record, scan)
    return traces, duplicates


def _chosen(first: SpanRecord, again: SpanRecord, scan: Scan) -> SpanRecord:
    """The one of two spans with the same id that is kept; add a problem if something is lost."""
    record = fuller(first, again) if is_same(first, again) else first
    where = f"of trace {first.trace_id} have the id {first.span_id}"
    if not is_same(first, again):
        message = f"two different spans {where}: {first.name!r} was kept"
        scan.add_problem("conflicting_spans", message, trace_id=first.trace_id)
    elif not is_lossless(record, first if record is again else again):
        message = f"two copies {where}, and each has attributes that the other lacks: the fuller one was kept"
        scan.add_problem("conflicting_spans", message, trace_id=first.trace_id)
    return record


@dataclass(slots=True)
class _Contents:
    """The decoded values of a recording, in the order in which they were found."""

    episodes: list[Episode] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    evals: list[EvaluationPart] = field(default_factory=list)

    def add(self, records: Sequence[SpanRecord]) -> None:
        """Decode the spans of a trace that is not an episode; ignore spans of other instrumentations."""
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


def _decoded(scan: Scan, traces: _Traces) -> _Contents:
    """The values of all traces; a trace that can't be decoded becomes a problem."""
    contents = _Contents()
    for trace_id in list(traces):
        records = list(traces.pop(trace_id).values())
        try:
            if episode_codec.is_episode(records):
                contents.episodes.append(_episode(scan, records))
            else:
                contents.add(records)
        except ReadError:
            raise
        except Exception as error:
            scan.add_problem("broken_trace", undecodable(trace_id, error), trace_id=trace_id)
    return contents


def _calls(episodes: Sequence[Episode]) -> Callable[[str], Iterator[Call]]:
    """A function that yields the calls in the steps of the episode with a trace id."""
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


def _matches(episode: Episode, filters: Mapping[str, Words], run_names: Mapping[str, str | None]) -> bool:
    """Return whether an episode matches every filter, by field; `run_names` maps run ids to names."""
    return all(
        not _values(episode, field, run_names).isdisjoint([words] if isinstance(words, str) else words)
        for field, words in filters.items()
        if words is not None
    )


def _values(episode: Episode, field: str, run_names: Mapping[str, str | None]) -> set[str | None]:
    if field == "run":
        return {episode.run_id, run_names.get(episode.run_id)}
    if field == "reward_status":
        return {episode.reward.status}
    if field == "spec":
        spec = episode.reward.spec
        return set() if spec is None else {spec.name, f"{spec.name}@{spec.version}"}
    return {getattr(episode, field)}


def _named(sources: Sequence[str]) -> str:
    if not sources:
        return "memory"
    return sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more files"

"""The figures of a recording, read in one pass with little memory per episode."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mttp.codec import summary_fields
from mttp.model.gradings import GraderHealth
from mttp.model.notebook import html_table
from mttp.otlp.streams import Progress
from mttp.reading.aggregate import Aggregate, Codes, RecordedVerdict, RunCounts, Trend
from mttp.reading.completeness import sampled
from mttp.reading.episode_summary import Counts
from mttp.reading.identity import episodes_digest
from mttp.reading.problems import Problem
from mttp.reading.source_aggregation import add_other_calls, aggregate_source
from mttp.reading.sources import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mttp.model.episodes import Run

__all__ = ["Labels", "PartialRewards", "Returns", "Summary", "summarize", "summed"]

_LABELS = ("statuses", "outcomes", "envs", "specs", "tasks", "reasons")


class _Columns:
    """Columns of episode figures in the order of counting, and as arrays in order of start."""

    def __init__(self, counted: Mapping[str, array[Any]]) -> None:
        self.counted = counted
        self._ordered: dict[str, NDArray[Any]] = {}

    def ordered(self, name: str) -> NDArray[Any]:
        """A column in order of start, then trace id."""
        import numpy as np  # takes as long as summarizing fifty megabytes

        if name not in self._ordered:
            order = np.lexsort([np.asarray(self.counted[key]) for key in ("traces", "start_times")])
            self._ordered[name] = np.asarray(self.counted[name])[order]
        return self._ordered[name]

    def of(self, name: str, code: int) -> _Columns:
        """The rows in which a column holds `code`."""
        rows = [row for row, found in enumerate(self.counted[name]) if found == code]
        return _Columns(
            {
                key: array(column.typecode, (column[row] for row in rows))
                for key, column in self.counted.items()
            }
        )


@dataclass(frozen=True, slots=True)
class Returns:
    """Returns of the episodes with one label."""

    episodes: int
    """Number of episodes with the label."""
    count: int
    """Number of their returns that are finite numbers."""
    mean: float | None
    """Arithmetic mean of these `count` returns; None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRewards:
    """The rewards that lack something, beside the others: how it moved rewards and advantages."""

    count: int
    """Number of episodes whose reward was given although it lacks a component, or failed."""
    of: int
    """Number of episodes with a reward."""
    mean: float | None
    """Mean of these rewards."""
    mean_of_others: float | None
    """Mean of the rewards that lack nothing."""
    advantage: float | None
    """Mean advantage of these episodes; None if none is known."""
    advantage_of_others: float | None
    """Mean advantage of the episodes whose rewards lack nothing."""


class Labels:
    """
    One string per episode, stored as a code into the distinct strings, `words`.

    Iterating yields the strings in order of the episodes' start.
    """

    def __init__(self, name: str, words: tuple[str, ...], columns: _Columns) -> None:
        self._name = name
        self._columns = columns
        self.words = words
        """The distinct strings."""

    @property
    def codes(self) -> NDArray[np.uint32]:
        """Index into `words` for each episode, shape [episodes], in order of start."""
        return self._columns.ordered(self._name)

    def __iter__(self) -> Iterator[str]:
        return (self.words[code] for code in self.codes)

    def counts(self) -> dict[str, int]:
        """Number of episodes per string, most frequent first."""
        counted = Counter(self._columns.counted[self._name])
        by_count = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
        return {self.words[code]: count for code, count in by_count}

    def returns(self) -> dict[str, Returns]:
        """Returns of the episodes per string, most frequent first."""
        finite: defaultdict[str, list[float]] = defaultdict(list)
        columns = self._columns.counted
        for code, return_ in zip(columns[self._name], columns["returns"], strict=True):
            if math.isfinite(return_):
                finite[self.words[code]].append(return_)
        return {
            word: Returns(count, len(finite[word]), _mean(finite[word]))
            for word, count in self.counts().items()
        }


def _mean(values: list[float]) -> float | None:
    return math.fsum(value / len(values) for value in values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """
    The figures of a recording.

    Arrays (`start_times`, `durations`, `returns`, `lengths`, `is_counted`) and labels (`statuses`,
    `outcomes`, `envs`, `specs`, `tasks`, `reasons`) have one entry per episode, in order of start, then
    trace id.
    An episode that does not count, by the rule of `mttp.model.counting`, has no return and no outcome.
    `by_run` has a summary of each run; with several runs, the figures of the summary itself are totals.
    `len(summary)` is the number of episodes.
    """

    columns: _Columns
    """The columns from which the arrays are built on first access."""
    statuses: Labels
    """Status: completed, aborted, error or unfinished."""
    outcomes: Labels
    """Outcome: success, failure or unknown."""
    envs: Labels
    """Id of the environment, empty if there is none."""
    specs: Labels
    """Name and version of the reward spec, separated by a space; empty if there is none."""
    tasks: Labels
    """Id of the task, empty if there is none."""
    reasons: Labels
    """Why it counts or not: counted, error, not_finished, cut_off or evaluation."""
    graders: tuple[GraderHealth, ...] = ()
    """
    The health of each grader and component, from the last scoring of each episode, agent and step.

    Every score of a later annotation counts, with the scope `late`.
    """
    unlisted_gradings: int = 0
    """Number of gradings of graders beyond the first 1,000, which are not in `graders`."""
    invalid_step_rewards: int = 0
    """Number of steps whose reward is not a finite number and that have no scoring in `graders`."""
    faults: dict[str, int] = field(default_factory=dict)
    """Number of recorded faults by kind, most frequent first."""
    omissions: dict[str, int] = field(default_factory=dict)
    """How often each attribute was left out, withheld or redacted, most frequent first."""
    prompt_tokens: int = 0
    """Number of prompt tokens of the policies."""
    completion_tokens: int = 0
    """Number of completion tokens of the policies."""
    call_input_tokens: int = 0
    """Input tokens of called models, as they report them, without calls of graders."""
    call_output_tokens: int = 0
    """Output tokens of called models, as they report them, without calls of graders."""
    runs: list[Run] = field(default_factory=list)
    """Runs in order of start, one per process."""
    by_run: dict[str, Summary] = field(default_factory=dict)
    """The summary of each run by run id, in order of start; empty in the summary of a run."""
    groups: int = 0
    """Number of groups."""
    updates: int = 0
    """Number of updates."""
    loss: Trend | None = None
    """Loss of the updates; None if none has a finite one."""
    kl: Trend | None = None
    """KL divergence of the updates, in nats; None if none has a finite one."""
    entropy: Trend | None = None
    """Entropy of the policy in the updates, in nats; None if none has a finite one."""
    cost_usd: float | None = None
    """Sum of the episodes' costs in US dollars; None if no episode has a cost."""
    cost_count: int = 0
    """Number of episodes with a finite cost."""
    annotations: int = 0
    """Number of annotations."""
    verdicts: tuple[RecordedVerdict, ...] = ()
    """The verdicts that `mttp gate --record` has written, in order of time."""
    evals: int = 0
    """Number of evaluations."""
    problems: list[Problem] = field(default_factory=list)
    """Problems of the recording, without those that only `mttp.read` detects, such as `incomplete_group`."""
    sources: list[Path] = field(default_factory=list)
    """Paths of the files that were read, in order."""
    stores: list[str] = field(default_factory=list)
    """Trace stores, as `scheme:url`, and datasets that were read, in order."""
    duplicates: int = 0
    """Number of repeated spans of mttp that were dropped."""

    @property
    def partial_rewards(self) -> PartialRewards | None:
        """The rewards that lack something; None if all are whole."""
        columns = self.columns.counted
        rows = [row for row, value in enumerate(columns["recorded_returns"]) if math.isfinite(value)]
        whole = [row for row in rows if columns["is_return_counted"][row]]
        partial = [row for row in rows if not columns["is_return_counted"][row]]
        if not partial:
            return None

        def mean(name: str, rows: Sequence[int]) -> float | None:
            return _mean([value for row in rows if math.isfinite(value := columns[name][row])])

        return PartialRewards(
            count=len(partial),
            of=len(rows),
            mean=mean("recorded_returns", partial),
            mean_of_others=mean("recorded_returns", whole),
            advantage=mean("advantages", partial),
            advantage_of_others=mean("advantages", whole),
        )

    @property
    def failed_gradings(self) -> int:
        """Number of error, invalid and partial gradings of `graders`, plus `invalid_step_rewards`."""
        return sum(one.failed for one in self.graders) + self.invalid_step_rewards

    @property
    def start_times(self) -> NDArray[np.int64]:
        """Start times in nanoseconds since the Unix epoch, shape [episodes]; 0 if unknown."""
        return self.columns.ordered("start_times")

    @property
    def durations(self) -> NDArray[np.float64]:
        """Seconds from start to end, shape [episodes]; NaN for unfinished episodes."""
        return self.columns.ordered("durations")

    @property
    def returns(self) -> NDArray[np.float64]:
        """Returns, shape [episodes]; NaN if unknown, and of the episodes that do not count."""
        return self.columns.ordered("returns")

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Numbers of environment steps, shape [episodes], also of the episodes that do not count."""
        return self.columns.ordered("lengths")

    @property
    def is_counted(self) -> NDArray[np.bool_]:
        """Whether each episode counts in means, shape [episodes]."""
        import numpy as np

        codes = [code for code, word in enumerate(self.reasons.words) if word == "counted"]
        return np.isin(self.reasons.codes, codes)

    @property
    def sha256(self) -> str:
        """Digest of the episodes, which annotations and the format of the file do not change."""
        columns = self.columns.counted
        rows = zip(
            (f"{trace:016x}" for trace in columns["traces"]),
            columns["start_times"],
            (self.envs.words[code] for code in columns["envs"]),
            (self.tasks.words[code] for code in columns["tasks"]),
            (self.statuses.words[code] for code in columns["statuses"]),
            columns["lengths"],
            columns["recorded_returns"],
            columns["durations"],
            strict=True,
        )
        return episodes_digest(rows)

    def __len__(self) -> int:
        return len(self.columns.counted["returns"])

    def __repr__(self) -> str:
        steps = sum(self.columns.counted["lengths"])
        counted = {"episode": len(self), "step": steps, "problem": len(self.problems)}
        counts = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counted.items())
        return f"<Summary of {counts}>"

    def _repr_html_(self) -> str:
        """A table of the figures of each run, for notebooks."""
        columns = ("run", "episodes", "mean return", "known returns", "mean length", "statuses", "outcomes")
        runs = self.by_run or {"": self}
        title = ". ".join([*sampled(self.problems), repr(self)[1:-1]])
        return html_table(title, columns, [one._cells(run) for run, one in runs.items()])

    def _cells(self, run: str) -> tuple[object, ...]:
        known = [value for value in self.columns.counted["returns"] if math.isfinite(value)]
        lengths = self.lengths[self.is_counted].tolist()
        counted = (labels.counts() for labels in (self.statuses, self.outcomes))
        words = [", ".join(f"{word} {count:,}" for word, count in counts.items()) for counts in counted]
        return run, len(self), _mean(known), len(known), _mean(lengths), *words


def summarize(source: Source, *, strict: bool = False, progress: Progress | None = None) -> Summary:
    """
    Read `source` and return its figures; the arguments and errors are those of `mttp.read`.

    Episodes are never built: memory grows by a few hundred bytes per episode, however long the episodes are,
    and by two kilobytes for an episode that several processes recorded.
    The figures equal those of `read(source).summary()`, with three exceptions: calls outside of steps and
    scorings whose step or agent is missing also count, and a step or an agent that two processes scored
    counts once per process.
    """
    found = aggregate_source(source, strict=strict, progress=progress)
    add_other_calls(found, source)
    return summed(
        found.spans.aggregate,
        found.runs,
        evals=len(found.spans.evals),
        problems=found.problems,
        sources=found.sources,
        stores=found.stores,
        duplicates=found.spans.duplicates,
    )


def summed(aggregate: Aggregate, runs: Sequence[Run], **facts: Any) -> Summary:
    """The summary of an aggregate; `facts` are further fields of the summary."""
    for run in runs:
        faults = Counter(map(summary_fields.fault_kind, run.faults))
        omissions = Counter(map(summary_fields.omitted_name, run.omissions))
        aggregate.of(run.id).counts.merge(Counts(faults=faults, omissions=omissions))
    reasons = aggregate.reasons(runs)
    columns = _Columns(
        {
            "traces": aggregate.traces,
            "start_times": aggregate.start_times,
            "durations": aggregate.durations,
            "returns": aggregate.counted_returns(reasons),
            "recorded_returns": aggregate.returns,
            "is_return_counted": aggregate.is_return_counted,
            "advantages": aggregate.advantages,
            "lengths": aggregate.lengths,
            **{name: codes.column for name, codes in aggregate.labels.items()},
            "reasons": reasons.column,
            "outcomes": aggregate.counted_outcomes(reasons),
        }
    )
    total = RunCounts()
    for counted in aggregate.runs.values():
        total.merge(counted)
    by_run = {}
    codes = aggregate.labels["runs"].words
    for id_ in _in_order(aggregate, runs):
        of_run = columns if [*codes] == [id_] else columns.of("runs", codes.get(id_, len(codes)))
        by_run[id_] = _of(
            aggregate, of_run, reasons, aggregate.runs[id_], [run for run in runs if run.id == id_]
        )
    return _of(aggregate, columns, reasons, total, list(runs), by_run=by_run, **facts)


def _in_order(aggregate: Aggregate, runs: Sequence[Run]) -> list[str]:
    """Run ids in order of start; a run without a run span starts with its first episode."""
    starts: dict[str, int] = {}
    words = [*aggregate.labels["runs"].words]
    for code, start in zip(aggregate.labels["runs"].column, aggregate.start_times, strict=True):
        starts[words[code]] = min(starts.get(words[code], start), start)
    for run in runs:
        start = run.start_time or 0
        starts[run.id] = min(starts.get(run.id, start), start)
    return sorted(aggregate.runs, key=lambda id_: (starts.get(id_, 0), id_))


def _of(
    aggregate: Aggregate,
    columns: _Columns,
    reasons: Codes,
    counted: RunCounts,
    runs: list[Run],
    **facts: Any,
) -> Summary:
    counts = counted.counts
    trends: dict[str, Any] = {**counted.trends()}
    labels: dict[str, Any] = {
        name: Labels(name, tuple(codes.words), columns)
        for name, codes in {**aggregate.labels, "reasons": reasons}.items()
        if name in _LABELS
    }
    return Summary(
        columns=columns,
        **labels,
        graders=counted.graders.health(),
        unlisted_gradings=counted.graders.unlisted,
        invalid_step_rewards=counted.invalid_step_rewards,
        faults=_most_first(counts.faults),
        omissions=_most_first(counts.omissions),
        prompt_tokens=counts.tokens[0],
        completion_tokens=counts.tokens[1],
        call_input_tokens=counts.call_tokens[0],
        call_output_tokens=counts.call_tokens[1],
        runs=runs,
        groups=counted.groups,
        updates=len(counted.update_times),
        **trends,
        cost_usd=counted.cost_usd if counted.cost_count else None,
        cost_count=counted.cost_count,
        annotations=counted.annotations,
        verdicts=tuple(sorted(counted.verdicts)),
        **facts,
    )


def _most_first(counted: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda one: (-one[1], one[0])))

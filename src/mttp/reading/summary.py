"""What a recording amounts to, read in one pass and in little memory."""

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
from mttp.otlp.streams import Progress
from mttp.reading.aggregate import Aggregate, Trend, RunCounts
from mttp.reading.episode_summary import Counts
from mttp.reading.problems import Problem, undecodable
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source
from mttp.reading.span_aggregation import MissingEpisode, SpanAggregator

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mttp.model.episodes import Run

__all__ = ["Labels", "Returns", "Summary", "summarize", "summed"]


class _Columns:
    """Figures of the episodes as they were counted, and in order of start for those who ask for arrays."""

    def __init__(self, counted: Mapping[str, array[Any]]) -> None:
        self.counted = counted
        self._ordered: dict[str, NDArray[Any]] = {}

    def ordered(self, name: str) -> NDArray[Any]:
        """A column in order of start, then trace id."""
        import numpy as np  # which takes as long as a summary of fifty megabytes

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
    """What those episodes were paid that have one word in common."""

    episodes: int
    """How many they are."""
    count: int
    """How many of their returns are finite numbers."""
    mean: float | None
    """The mean of those returns that are finite numbers; None where there are none."""


class Labels:
    """One word per episode, as numbers: there are few different ones."""

    def __init__(self, name: str, words: tuple[str, ...], columns: _Columns) -> None:
        self._name = name
        self._columns = columns
        self.words = words
        """The different words."""

    @property
    def codes(self) -> NDArray[np.uint32]:
        """Position in `words`, one per episode."""
        return self._columns.ordered(self._name)

    def __iter__(self) -> Iterator[str]:
        return (self.words[code] for code in self.codes)

    def counts(self) -> dict[str, int]:
        """How many episodes have each word, most first."""
        counted = Counter(self._columns.counted[self._name])
        by_count = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
        return {self.words[code]: count for code, count in by_count}

    def returns(self) -> dict[str, Returns]:
        """What the episodes with each word were paid, the most frequent word first."""
        paid: defaultdict[str, list[float]] = defaultdict(list)
        columns = self._columns.counted
        for code, return_ in zip(columns[self._name], columns["returns"], strict=True):
            if math.isfinite(return_):
                paid[self.words[code]].append(return_)
        return {
            word: Returns(count, len(paid[word]), _mean(paid[word])) for word, count in self.counts().items()
        }


def _mean(values: list[float]) -> float | None:
    return math.fsum(value / len(values) for value in values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """
    A recording's figures; arrays have one entry per episode, in order of start.

    `by_run` has the figures of each run; of several runs, those of the whole are totals.
    """

    columns: _Columns
    """What the arrays are made of once they are asked for."""
    statuses: Labels
    """completed, aborted, error or unfinished."""
    outcomes: Labels
    """success, failure or unknown."""
    envs: Labels
    """The environment's id, empty where there is none."""
    specs: Labels
    """Name and version of the reward spec that paid, empty where there is none."""
    tasks: Labels
    """The task's id, empty where there is none."""
    graders: tuple[GraderHealth, ...] = ()
    """
    The health of each grader and component, by the last scoring of each episode, agent and step.

    Scores that were stated apart from the recording count each, with the scope `late`.
    """
    unlisted_gradings: int = 0
    """Gradings of further graders, which were too many to list."""
    invalid_step_rewards: int = 0
    """
    How many steps have a reward that is not a finite number (`reward_status` is error) and no scoring.

    A scored step is in `graders` instead.
    """
    faults: dict[str, int] = field(default_factory=dict)
    """How many faults of each kind were recorded, most frequent first."""
    omissions: dict[str, int] = field(default_factory=dict)
    """How many times each attribute was left out, withheld or redacted, most frequent first."""
    prompt_tokens: int = 0
    """Tokens that policies were given."""
    completion_tokens: int = 0
    """Tokens that policies sampled."""
    call_input_tokens: int = 0
    """Tokens that called models read, by their own account; but for the calls of graders."""
    call_output_tokens: int = 0
    """Tokens that called models wrote; but for the calls of graders."""
    runs: list[Run] = field(default_factory=list)
    """One per process of a run, in order of start; lists such as the installed packages are not read."""
    by_run: dict[str, Summary] = field(default_factory=dict)
    """The figures of each run, by its id, in order of start."""
    groups: int = 0
    """How many groups there are."""
    updates: int = 0
    """How many updates."""
    loss: Trend | None = None
    """The loss of the updates; None where none states a finite number."""
    kl: Trend | None = None
    """The KL divergence of the updates."""
    entropy: Trend | None = None
    """The entropy of the policy in the updates."""
    cost_usd: float | None = None
    """What the episodes cost together, in US dollars, as far as they state it."""
    cost_count: int = 0
    """How many episodes state what they cost."""
    annotations: int = 0
    """How many annotations."""
    evals: int = 0
    """How many evaluations."""
    problems: list[Problem] = field(default_factory=list)
    """What is wrong with the recording, but for what only whole episodes show."""
    sources: list[Path] = field(default_factory=list)
    """The files that it was read from."""
    duplicates: int = 0
    """Spans of ours that were there more than once; each counts once."""

    @property
    def failed_gradings(self) -> int:
        """
        How many gradings failed: error, invalid and partial ones of `graders`, and `invalid_step_rewards`.
        """
        return sum(one.failed for one in self.graders) + self.invalid_step_rewards

    @property
    def start_times(self) -> NDArray[np.int64]:
        """When each began, nanoseconds since the Unix epoch."""
        return self.columns.ordered("start_times")

    @property
    def durations(self) -> NDArray[np.float64]:
        """Seconds from start to end; NaN while unfinished."""
        return self.columns.ordered("durations")

    @property
    def returns(self) -> NDArray[np.float64]:
        """What each was paid; NaN where that is not known."""
        return self.columns.ordered("returns")

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Environment steps."""
        return self.columns.ordered("lengths")

    def __len__(self) -> int:
        return len(self.columns.counted["returns"])

    def __repr__(self) -> str:
        steps = sum(self.columns.counted["lengths"])
        counted = {"episode": len(self), "step": steps, "problem": len(self.problems)}
        counts = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counted.items())
        return f"<Summary of {counts}>"


def summarize(source: Source, *, strict: bool = False, progress: Progress | None = None) -> Summary:
    """
    The figures of everything that `source` holds; arguments are those of `read`.

    Episodes are never built: memory grows by some hundred bytes per episode, however long the episodes are;
    by two kilobytes where other processes recorded parts of one.
    The figures are those of `read(source).summary()`, with three exceptions: calls outside of steps and
    scorings whose step or agent is missing count, too, and one that two processes scored counts for each.
    """
    tally = SpanAggregator()
    scan = Scan(source, arrays=False, strict=strict, progress=progress, is_open=tally.has_open)
    for record in scan:
        tally.add(record)
    for missing in tally.finish():
        _note(missing, scan)
    return _summary(tally, scan)


def _note(missing: MissingEpisode, scan: Scan) -> None:
    if not missing.lacking:
        message = f"episode {missing.trace_id} has no end: {missing.steps} steps were found"
        scan.add_problem("unfinished_episode", message, trace_id=missing.trace_id)
    else:
        message = f"episode {missing.trace_id} lacks spans: {', '.join(missing.lacking)}"
        scan.add_problem("incomplete_episode", message, trace_id=missing.trace_id)


def _summary(tally: SpanAggregator, scan: Scan) -> Summary:
    runs = _runs(tally, scan)
    return summed(
        tally.aggregate,
        runs,
        evals=len(tally.evals),
        problems=scan.problems,
        sources=scan.sources,
        duplicates=tally.duplicates,
    )


def summed(aggregate: Aggregate, runs: Sequence[Run], **facts: Any) -> Summary:
    """The summary of what was counted, with other `facts` about the whole."""
    for run in runs:
        faults = Counter(map(summary_fields.fault_kind, run.faults))
        omissions = Counter(map(summary_fields.omitted_name, run.omissions))
        aggregate.of(run.id).counts.merge(Counts(faults=faults, omissions=omissions))
    columns = _Columns(
        {
            "traces": aggregate.traces,
            "start_times": aggregate.start_times,
            "durations": aggregate.durations,
            "returns": aggregate.returns,
            "lengths": aggregate.lengths,
            **{name: codes.column for name, codes in aggregate.labels.items()},
        }
    )
    total = RunCounts()
    for counted in aggregate.runs.values():
        total.merge(counted)
    by_run = {}
    codes = aggregate.labels["runs"].words
    for id_ in _in_order(aggregate, runs):
        of_run = columns if [*codes] == [id_] else columns.of("runs", codes.get(id_, len(codes)))
        by_run[id_] = _of(aggregate, of_run, aggregate.runs[id_], [run for run in runs if run.id == id_])
    return _of(aggregate, columns, total, list(runs), by_run=by_run, **facts)


def _in_order(aggregate: Aggregate, runs: Sequence[Run]) -> list[str]:
    """The runs' ids in order of start; a run without a span of its own starts with its first episode."""
    starts: dict[str, int] = {}
    words = [*aggregate.labels["runs"].words]
    for code, start in zip(aggregate.labels["runs"].column, aggregate.start_times, strict=True):
        starts[words[code]] = min(starts.get(words[code], start), start)
    for run in runs:
        start = run.start_time or 0
        starts[run.id] = min(starts.get(run.id, start), start)
    return sorted(aggregate.runs, key=lambda id_: (starts.get(id_, 0), id_))


def _of(
    aggregate: Aggregate, columns: _Columns, counted: RunCounts, runs: list[Run], **facts: Any
) -> Summary:
    counts = counted.counts
    trends: dict[str, Any] = {**counted.trends()}
    labels: dict[str, Any] = {
        name: Labels(name, tuple(codes.words), columns)
        for name, codes in aggregate.labels.items()
        if name != "runs"
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
        updates=counted.updates,
        **trends,
        cost_usd=counted.cost_usd if counted.cost_count else None,
        cost_count=counted.cost_count,
        annotations=counted.annotations,
        **facts,
    )


def _most_first(counted: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda one: (-one[1], one[0])))


def _runs(tally: SpanAggregator, scan: Scan) -> list[Run]:
    if not tally.runs:
        return []
    from mttp.codec import runs as run_codec  # with all values, which nothing else here needs

    runs = []
    for trace_id, spans in tally.runs.items():
        try:
            runs.append(run_codec.decode(list(spans.values())))
        except Exception as error:
            scan.add_problem("broken_trace", undecodable(trace_id, error), trace_id=trace_id)
    return sorted(runs, key=lambda run: (run.start_time or 0, run.id))

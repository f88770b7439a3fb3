"""What a recording amounts to, read in one pass and in little memory."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mttp.reading.problems import Problem, undecodable
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source
from mttp.reading.tally import Missing, Tally
from mttp.semconv import spans as names
from mttp.wire.streams import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mttp.episodes import Run

__all__ = ["Component", "Labels", "Returns", "Summary", "summarize"]


class _Columns:
    """Figures of the episodes as they were counted, and in order of start for those who ask for arrays."""

    def __init__(self, counted: Mapping[str, array[Any]]) -> None:
        self.counted = counted
        self._ordered: dict[str, NDArray[Any]] = {}

    def ordered(self, name: str) -> NDArray[Any]:
        """A column in order of start."""
        import numpy as np  # which takes as long as a summary of fifty megabytes

        if name not in self._ordered:
            order = np.argsort(np.asarray(self.counted["start_times"]), kind="stable")
            self._ordered[name] = np.asarray(self.counted[name])[order]
        return self._ordered[name]


@dataclass(frozen=True, slots=True)
class Returns:
    """What those episodes were paid that have one word in common."""

    episodes: int
    """How many they are."""
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
        return {word: Returns(count, _mean(paid[word])) for word, count in self.counts().items()}


def _mean(values: list[float]) -> float | None:
    return math.fsum(value / len(values) for value in values) if values else None


@dataclass(frozen=True, slots=True)
class Component:
    """One component of the episodes' rewards."""

    count: int
    """Episodes whose last scoring has a score for it."""
    mean: float
    """Its mean score."""
    min: float
    """Its lowest score."""
    max: float
    """Its highest score."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """A recording's figures; arrays have one entry per episode, in order of start."""

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
    components: dict[str, Component] = field(default_factory=dict)
    """Components of the episodes' last scorings, by name."""
    prompt_tokens: int = 0
    """Tokens that policies were given."""
    completion_tokens: int = 0
    """Tokens that policies sampled."""
    call_input_tokens: int = 0
    """Tokens that called models read, by their own account; but for the calls of graders."""
    call_output_tokens: int = 0
    """Tokens that called models wrote; but for the calls of graders."""
    runs: list[Run] = field(default_factory=list)
    """The runs, in order of start; lists such as the installed packages are not read."""
    groups: int = 0
    """How many groups there are."""
    updates: int = 0
    """How many updates."""
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

    Episodes are never built: memory grows by some hundred bytes per episode, however long the episodes are.
    """
    tally = Tally()
    scan = Scan(source, arrays=False, strict=strict, progress=progress, is_open=tally.has_open)
    for record in scan:
        tally.add(record)
    for missing in tally.finish():
        _note(missing, scan)
    return _summary(tally, scan)


def _note(missing: Missing, scan: Scan) -> None:
    if not missing.lacking:
        message = f"episode {missing.trace_id} has no end: {missing.steps} steps were found"
        scan.add_problem("unfinished_episode", message, trace_id=missing.trace_id)
    else:
        message = f"episode {missing.trace_id} lacks spans: {', '.join(missing.lacking)}"
        scan.add_problem("incomplete_episode", message, trace_id=missing.trace_id)


def _summary(tally: Tally, scan: Scan) -> Summary:
    words = {"statuses": tally.statuses, "outcomes": tally.outcomes, "envs": tally.envs, "specs": tally.specs}
    columns = _Columns(
        {
            "start_times": tally.start_times,
            "durations": tally.durations,
            "returns": tally.returns,
            "lengths": tally.lengths,
            **{name: codes.column for name, codes in words.items()},
        }
    )
    return Summary(
        columns=columns,
        **{name: Labels(name, tuple(codes.words), columns) for name, codes in words.items()},
        components={
            name: Component(seen.count, seen.mean, seen.min, seen.max)
            for name, seen in sorted(tally.components.items())
        },
        prompt_tokens=tally.counts.tokens[0],
        completion_tokens=tally.counts.tokens[1],
        call_input_tokens=tally.counts.call_tokens[0],
        call_output_tokens=tally.counts.call_tokens[1],
        runs=_runs(tally, scan),
        groups=len(tally.apart[names.GROUP]),
        updates=len(tally.apart[names.UPDATE]),
        annotations=len(tally.apart[names.ANNOTATE]),
        evals=len(tally.evals),
        problems=scan.problems,
        sources=scan.sources,
        duplicates=tally.duplicates,
    )


def _runs(tally: Tally, scan: Scan) -> list[Run]:
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

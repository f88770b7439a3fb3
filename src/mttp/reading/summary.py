"""What a recording amounts to, read in one pass and in little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source
from mttp.reading.tally import Codes, Missing, Tally
from mttp.semconv import spans as names
from mttp.wire.streams import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mttp.episodes import Run

__all__ = ["Component", "Labels", "Summary", "summarize"]


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """One word per episode, as numbers: there are few different ones."""

    words: tuple[str, ...]
    """The different words."""
    codes: NDArray[np.uint32]
    """Position in `words`, one per episode."""

    def __iter__(self) -> Iterator[str]:
        return (self.words[code] for code in self.codes)

    def counts(self) -> dict[str, int]:
        """How many episodes have each word, most first."""
        counted = Counter(dict(enumerate(_bincount(self.codes, len(self.words)))))
        return {self.words[code]: int(count) for code, count in counted.most_common() if count}


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

    start_times: NDArray[np.int64]
    """When each began, nanoseconds since the Unix epoch."""
    durations: NDArray[np.float64]
    """Seconds from start to end; NaN while unfinished."""
    returns: NDArray[np.float64]
    """What each was paid; NaN where that is not known."""
    lengths: NDArray[np.int64]
    """Environment steps."""
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
    """Tokens that called models read, by their own account."""
    call_output_tokens: int = 0
    """Tokens that called models wrote, by their own account."""
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

    def __len__(self) -> int:
        return len(self.returns)

    def __repr__(self) -> str:
        counted = {"episode": len(self), "step": int(self.lengths.sum()), "problem": len(self.problems)}
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
    import numpy as np

    order = np.argsort(np.frombuffer(tally.start_times, np.int64), kind="stable")

    def column(values: Any, dtype: Any) -> Any:
        return np.frombuffer(values, dtype)[order] if len(values) else np.empty(0, dtype)

    def labels(codes: Codes) -> Labels:
        return Labels(tuple(codes.words), column(codes.column, np.uint32))

    return Summary(
        start_times=column(tally.start_times, np.int64),
        durations=column(tally.durations, np.float64),
        returns=column(tally.returns, np.float64),
        lengths=column(tally.lengths, np.int64),
        statuses=labels(tally.statuses),
        outcomes=labels(tally.outcomes),
        envs=labels(tally.envs),
        specs=labels(tally.specs),
        components={
            name: Component(seen.count, seen.mean, seen.min, seen.max)
            for name, seen in sorted(tally.components.items())
        },
        prompt_tokens=tally.tokens[0],
        completion_tokens=tally.tokens[1],
        call_input_tokens=tally.call_tokens[0],
        call_output_tokens=tally.call_tokens[1],
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
            message = f"trace {trace_id} can't be decoded: {type(error).__name__}: {error}"
            scan.add_problem("broken_trace", message, trace_id=trace_id)
    return sorted(runs, key=lambda run: (run.start_time or 0, run.id))


def _bincount(codes: Any, size: int) -> Any:
    import numpy as np

    return np.bincount(codes, minlength=size)

"""The figures of a recording while they are counted: one row per episode, and counts per run."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mttp.codec import summary_fields
from mttp.model.counting import Reason, counting, training_runs
from mttp.model.gradings import GraderTally, Grading
from mttp.reading.episode_summary import Counts, EpisodeRow, EpisodeSummary

if TYPE_CHECKING:
    from mttp.model.episodes import Annotation, Run

__all__ = [
    "VERDICT_KEY",
    "VERDICT_SOURCE",
    "Aggregate",
    "Codes",
    "RecordedVerdict",
    "RunCounts",
    "Trend",
]

_LABELS = ("runs", "statuses", "outcomes", "envs", "specs", "tasks", "splits", "stop_reasons")


class Codes:
    """A column of strings, stored as codes into the distinct strings."""

    __slots__ = ("column", "words")

    def __init__(self) -> None:
        self.column = array("I")
        self.words: dict[str, int] = {}

    def append(self, word: str) -> None:
        """Append a row."""
        self.column.append(self.words.setdefault(word, len(self.words)))

    def replace(self, row: int, word: str) -> None:
        """Replace the string of a row."""
        self.column[row] = self.words.setdefault(word, len(self.words))


@dataclass(frozen=True, slots=True)
class Trend:
    """First, last and mean of a number over the updates of a run, in order of start."""

    count: int
    """Number of updates with a finite value."""
    first: float
    """The first finite value."""
    last: float
    """The last finite value."""
    mean: float
    """Arithmetic mean of the finite values."""


class _TrendBuilder:
    """A trend while it is counted; updates may be added in any order."""

    __slots__ = ("count", "first", "last", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.first: tuple[tuple[int, str], float] | None = None
        self.last: tuple[tuple[int, str], float] | None = None

    def add(self, order: tuple[int, str], value: float | None) -> None:
        if value is None or not math.isfinite(value):
            return
        self._take(1, value, (order, value), (order, value))

    def merge(self, other: _TrendBuilder) -> None:
        if other.first is not None and other.last is not None:
            self._take(other.count, other.mean, other.first, other.last)

    def _take(
        self,
        count: int,
        mean: float,
        first: tuple[tuple[int, str], float],
        last: tuple[tuple[int, str], float],
    ) -> None:
        self.count += count
        share = count / self.count
        self.mean = self.mean * (1 - share) + mean * share
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)

    def value(self) -> Trend | None:
        if self.first is None or self.last is None:
            return None
        return Trend(self.count, self.first[1], self.last[1], self.mean)


VERDICT_SOURCE, VERDICT_KEY = "mttp gate", "gate"
"""The source and the key of the annotations that `mttp gate --record` writes."""


class RecordedVerdict(NamedTuple):
    """A verdict of a gate that was recorded as a late fact."""

    time: int
    """Nanoseconds since the Unix epoch."""
    verdict: str
    """promote, reject or inconclusive."""
    evidence: str
    """The deciding rules, both sides and the rules."""
    episode: str
    """Trace id of the candidate's last episode."""


class RunCounts:
    """The counts of one run."""

    def __init__(self) -> None:
        self.graders = GraderTally()
        self.counts = Counts()
        self.cost_usd = 0.0
        self.cost_count = 0
        self.groups = self.annotations = self.invalid_step_rewards = 0
        self.update_times: list[int] = []
        """Start times of the updates, in nanoseconds since the Unix epoch, in the order of reading."""
        self.verdicts: list[RecordedVerdict] = []
        self._trends = {name: _TrendBuilder() for name in ("loss", "kl", "entropy")}

    def add_gradings(self, gradings: Iterable[Grading]) -> None:
        """Count gradings."""
        for grading in gradings:
            self.graders.add(grading)

    def add_update(self, updated: summary_fields.Updated) -> None:
        """Count an update."""
        self.update_times.append(updated.order[0])
        for name, trend in self._trends.items():
            trend.add(updated.order, getattr(updated, name))

    def add_verdict(self, annotation: Annotation) -> None:
        """Keep an annotation if it is the verdict of a gate."""
        if (annotation.by, annotation.key) == (VERDICT_SOURCE, VERDICT_KEY):
            self.verdicts.append(
                RecordedVerdict(
                    annotation.start_time or 0,
                    str(annotation.value),
                    annotation.explanation or "",
                    annotation.episode,
                )
            )

    def add_cost(self, cost_usd: float | None) -> None:
        """Add the cost of an episode, unless it is unknown or not finite."""
        if cost_usd is not None and math.isfinite(cost_usd):
            self.cost_usd += cost_usd
            self.cost_count += 1

    def merge(self, other: RunCounts) -> None:
        """Add the counts of another run."""
        self.graders.merge(other.graders)
        self.counts.merge(other.counts)
        for name in (
            "cost_usd",
            "cost_count",
            "groups",
            "annotations",
            "invalid_step_rewards",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.update_times += other.update_times
        self.verdicts += other.verdicts
        for name, trend in self._trends.items():
            trend.merge(other._trends[name])

    def trends(self) -> dict[str, Trend | None]:
        """Loss, KL and entropy of the updates; None for one without a finite value."""
        return {name: trend.value() for name, trend in self._trends.items()}


class Aggregate:
    """Columns of all episodes, and the counts of each run."""

    def __init__(self) -> None:
        self.traces = array("Q")
        """The first 16 digits of the trace ids, which order episodes with equal start times."""
        self.start_times = array("q")
        self.durations = array("d")
        self.returns = array("d")
        self.lengths = array("q")
        self.is_return_counted = array("b")
        self.advantages = array("d")
        self.shares = array("d")
        self.labels = {name: Codes() for name in _LABELS}
        self.runs: dict[str, RunCounts] = {}

    def __len__(self) -> int:
        return len(self.returns)

    def of(self, run: str) -> RunCounts:
        """The counts of a run, by its id."""
        found = self.runs.get(run)
        if found is None:
            found = self.runs[run] = RunCounts()
        return found

    def run_of(self, row: int) -> RunCounts:
        """The counts of the run of a row."""
        codes = self.labels["runs"]
        return self.of(list(codes.words)[codes.column[row]])

    def add(self, episode: EpisodeSummary) -> None:
        """Add an episode."""
        self.add_row(episode.row)
        run = self.of(episode.row.run)
        run.add_cost(episode.cost_usd)
        run.add_gradings(episode.gradings)
        run.counts.merge(episode.counts)
        run.invalid_step_rewards += episode.invalid_step_rewards

    def add_row(self, row: EpisodeRow) -> None:
        """Add an episode without its counts."""
        self.traces.append(int(row.trace_id[:16] or "0", 16))
        self.start_times.append(row.start_time)
        self.durations.append(row.duration)
        self.returns.append(row.return_)
        self.lengths.append(row.length)
        self.is_return_counted.append(row.is_return_counted)
        self.advantages.append(row.advantage)
        self.shares.append(row.share)
        words = row.run, row.status, row.outcome, row.env, row.spec, row.task, row.split, row.stop_reason
        for codes, word in zip(self.labels.values(), words, strict=True):
            codes.append(word)

    def reasons(self, runs: Iterable[Run]) -> Codes:
        """Return for each row why it counts or not; `runs` are those of the recording."""
        by_name = {name: codes.column for name, codes in self.labels.items()}
        words = {name: [*codes.words] for name, codes in self.labels.items()}
        columns = [by_name[name] for name in ("runs", "statuses", "tasks", "splits", "stop_reasons")]
        distinct = {*zip(*columns, strict=True)}
        training = training_runs(
            runs,
            {
                (words["runs"][run], words["tasks"][task], words["splits"][split])
                for run, _, task, split, _ in distinct
            },
            with_updates=[run for run, counts in self.runs.items() if counts.update_times],
        )
        reasons: dict[tuple[int, ...], Reason] = {
            (run, status, task, split, stop_reason): counting(
                status=words["statuses"][status],
                stop_reason=words["stop_reasons"][stop_reason],
                is_training=words["runs"][run] in training,
                task=words["tasks"][task],
                split=words["splits"][split],
            )
            for run, status, task, split, stop_reason in distinct
        }
        found = Codes()
        for row in zip(*columns, strict=True):
            found.append(reasons[row])
        return found

    def counted_returns(self, reasons: Codes) -> array[float]:
        """Return the returns; NaN in the rows that do not count."""
        counted = reasons.words.get("counted", -1)
        return array(
            "d",
            (
                return_ if code == counted and is_counted else math.nan
                for return_, code, is_counted in zip(
                    self.returns, reasons.column, self.is_return_counted, strict=True
                )
            ),
        )

    def counted_outcomes(self, reasons: Codes) -> array[int]:
        """Return the codes of the outcomes; that of unknown in the rows that do not count."""
        counted = reasons.words.get("counted", -1)
        outcomes = self.labels["outcomes"]
        unknown = outcomes.words.setdefault("unknown", len(outcomes.words))
        return array(
            "I",
            (
                outcome if code == counted else unknown
                for outcome, code in zip(outcomes.column, reasons.column, strict=True)
            ),
        )

"""Whether a recording has the episodes that its runs state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from mttp.codec import kinds
from mttp.model.spans import SpanRecord
from mttp.reading.problems import Problem
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["CountedSpans", "StatesEpisodes", "missing_episodes", "sampled"]


class StatesEpisodes(Protocol):
    """A process of a run, as `Run` is."""

    @property
    def id(self) -> str:
        """The id of the run."""

    @property
    def episode_count(self) -> int | None:
        """The number of episodes that the process started; None while it goes on."""


class _Stated(NamedTuple):
    id: str
    episode_count: int | None


class CountedSpans:
    """The runs and the episodes of spans that are read one by one, in some 200 bytes for each episode."""

    def __init__(self) -> None:
        self._stated: dict[str, _Stated] = {}
        self._episodes: dict[str, str] = {}

    def add(self, record: SpanRecord) -> None:
        """Count the run that ends with this span, or the episode that it belongs to."""
        run = record.attributes.get(a.RUN_ID)
        if not isinstance(run, str):
            return
        if a.EPISODE_ID in record.attributes:
            self._episodes.setdefault(record.trace_id, run)
        elif kinds.kind(record) == names.RUN:
            count = record.attributes.get(a.RUN_EPISODE_COUNT)
            self._stated.setdefault(record.trace_id, _Stated(run, count if isinstance(count, int) else None))

    @property
    def runs(self) -> Iterable[StatesEpisodes]:
        """The processes that ended."""
        return self._stated.values()

    @property
    def by_run(self) -> Counter[str]:
        """Return the number of episodes by run id."""
        return Counter(self._episodes.values())


def missing_episodes(runs: Iterable[StatesEpisodes], episodes: Mapping[str, int]) -> Iterator[str]:
    """
    Yield a sentence for each run of which fewer episodes are here than its processes started.

    `episodes` is the number of episodes that are here by run id.
    A process that has not ended states no number, and its episodes are not missed.
    """
    counts: Counter[str] = Counter()
    for run in runs:
        counts[run.id] += run.episode_count or 0
    for run_id, count in counts.items():
        here = episodes.get(run_id, 0)
        if here < count:
            yield (
                f"the run states {_episodes(count)}, {here:,} {'is' if here == 1 else 'are'} here "
                f"(run {run_id}); means and rates are not the run's"
            )


def _episodes(count: int) -> str:
    return f"{count:,} episode{'' if count == 1 else 's'}"


def sampled(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Return the sentences of the problems that say that a recording is a sample of a run."""
    return tuple(problem.message for problem in problems if problem.kind == "missing_episodes")

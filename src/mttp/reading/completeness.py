"""Whether a recording has the episodes that its runs state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from mttp.reading.problems import Problem

if TYPE_CHECKING:
    from mttp.model.episodes import Run

__all__ = ["missing_episodes", "sampled"]


def missing_episodes(runs: Iterable[Run], episodes: Mapping[str, int]) -> Iterator[str]:
    """
    Yield a sentence for each run of which fewer episodes are here than its processes started.

    `episodes` is the number of episodes that are here by run id.
    A process that has not ended states no number, and its episodes are not missed.
    """
    stated: Counter[str] = Counter()
    for run in runs:
        stated[run.id] += run.episode_count or 0
    for run_id, count in stated.items():
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

"""Failed episodes in buckets, each named by what its episodes have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mttp.model.episodes import Episode
from mttp.reading import Recording, read
from mttp.reading.sources import Source

_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureBucket:
    """Failed episodes with something in common."""

    name: str
    """What they have in common, such as `error TimeoutError` or `failed check no_secrets, split hard`."""
    count: int
    share: float
    """Of all failed episodes."""
    rate: float
    """The share of the failed among all episodes with what the name says of the task; 1 without that."""
    episodes: tuple[str, ...]
    """Trace ids of the first of them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def failure_buckets(source: Source | Recording) -> tuple[FailureBucket, ...]:
    """
    The failed episodes of a recording, the largest bucket first; each failed episode is in one bucket.

    An episode failed if its status is error or aborted, its outcome is failure, its reward's verdict is fail,
    its reward has the status error, or it has failed checks.
    A bucket is named by the first that is known of: the error, the failed checks, the components with the
    lowest possible score, the stop reason; and by the slices or the split of the task.
    Raises ReadError where the source can't be read.
    """
    recording = source if isinstance(source, Recording) else read(source)
    failed = [episode for episode in recording.episodes if _failed(episode)]
    everywhere = Counter(_slice(episode) for episode in recording.episodes)
    buckets: dict[tuple[str, str], list[Episode]] = {}
    for episode in failed:
        buckets.setdefault((next(_causes(episode), "no cause recorded"), _slice(episode)), []).append(episode)
    failures = [
        FailureBucket(
            name=", ".join(part for part in (cause, where) if part),
            count=len(members),
            share=len(members) / len(failed),
            rate=len(members) / everywhere[where],
            episodes=tuple(episode.trace_id for episode in members[:_EXAMPLES]),
        )
        for (cause, where), members in buckets.items()
    ]
    return tuple(sorted(failures, key=lambda bucket: (-bucket.count, bucket.name)))


def _failed(episode: Episode) -> bool:
    reward = episode.reward
    if episode.status in ("error", "aborted") or reward.status == "error" or reward.failed_checks:
        return True
    return episode.outcome == "failure" or (episode.outcome == "unknown" and reward.verdict == "fail")


def _causes(episode: Episode) -> Iterator[str]:
    errors = [episode.error_type, *(step.error_type for step in episode.steps)]
    if (error := next((name for name in errors if name), None)) is not None:
        yield f"error {error}"
    if episode.status in ("error", "aborted"):
        yield f"status {episode.status}"
    if episode.reward.status == "error":
        yield f"reward error {episode.reward.error_type or ''}".strip()
    if episode.reward.failed_checks:
        yield f"failed check {_listed(sorted(episode.reward.failed_checks))}"
    if zeros := sorted(name for name, value in episode.reward.components.items() if value <= 0):
        yield f"no score for {_listed(zeros)}"
    if episode.truncated:
        yield f"truncated ({episode.stop_reason})" if episode.stop_reason else "truncated"
    if episode.stop_reason:
        yield f"stopped by {episode.stop_reason}"


def _slice(episode: Episode) -> str:
    if episode.slices:
        return f"slice {_listed(sorted(episode.slices))}"
    return f"split {episode.split}" if episode.split else f"env {episode.env}" if episode.env else ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)

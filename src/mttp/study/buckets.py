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
    failed = [one for one in recording.episodes if _failed(one)]
    everywhere = Counter(_slice(one) for one in recording.episodes)
    buckets: dict[tuple[str, str], list[Episode]] = {}
    for one in failed:
        buckets.setdefault((_cause(one), _slice(one)), []).append(one)
    found = [
        FailureBucket(
            name=", ".join(part for part in (cause, where) if part),
            count=len(members),
            share=len(members) / len(failed),
            rate=len(members) / everywhere[where],
            episodes=tuple(one.trace_id for one in members[:_EXAMPLES]),
        )
        for (cause, where), members in buckets.items()
    ]
    return tuple(sorted(found, key=lambda bucket: (-bucket.count, bucket.name)))


def _failed(one: Episode) -> bool:
    if one.status in ("error", "aborted") or one.reward.status == "error" or one.reward.failed_checks:
        return True
    return one.outcome == "failure" or (one.outcome == "unknown" and one.reward.verdict == "fail")


def _cause(one: Episode) -> str:
    return next(_causes(one), "no cause recorded")


def _causes(one: Episode) -> Iterator[str]:
    errors = [one.error_type, *(step.error_type for step in one.steps)]
    if (error := next((name for name in errors if name), None)) is not None:
        yield f"error {error}"
    if one.status in ("error", "aborted"):
        yield f"status {one.status}"
    if one.reward.status == "error":
        yield f"reward error {one.reward.error_type or ''}".strip()
    if one.reward.failed_checks:
        yield f"failed check {_listed(sorted(one.reward.failed_checks))}"
    if zeros := sorted(name for name, value in one.reward.components.items() if value <= 0):
        yield f"no score for {_listed(zeros)}"
    if one.truncated:
        yield f"truncated ({one.stop_reason})" if one.stop_reason else "truncated"
    if one.stop_reason:
        yield f"stopped by {one.stop_reason}"


def _slice(one: Episode) -> str:
    if one.slices:
        return f"slice {_listed(sorted(one.slices))}"
    return f"split {one.split}" if one.split else f"env {one.env}" if one.env else ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)

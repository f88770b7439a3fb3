"""`mttp.rescore`: recorded episodes scored by another reward spec, without model and environment."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from opentelemetry.trace import NonRecordingSpan, SpanContext, use_span

from mttp.errors import StudyError
from mttp.model.episodes import Annotation, Episode, Grade, Reward, Spec
from mttp.model.results import RewardResult
from mttp.model.spans import SpanRecord
from mttp.reading import Recording, read
from mttp.recording import configuration, feedback
from mttp.rewards.recorded_samples import scorable, unscorable
from mttp.rewards.rescoring import invalid_reasons, scored_again
from mttp.rewards.spec import RewardSpec
from mttp.rewards.trust import Trusted
from mttp.transports.memory import MemoryTransport

__all__ = ["RescoredRecording", "RewardChange", "rescore"]

SpecSource: TypeAlias = "RewardSpec | str | os.PathLike[str]"
_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardChange:
    """The recorded reward of one episode, and its reward by the new spec."""

    trace_id: str
    task: str | None
    group: str | None
    slices: tuple[str, ...]
    old: float | None
    """
    The recorded reward, else the sum of the step rewards; None without a valid one.

    Where a trainer sums several reward functions, it is that of the function with the spec's name.
    """
    new: float | None
    """The reward by the new spec; None without a valid one."""
    old_verdict: str | None
    new_verdict: str | None
    reasons: tuple[str, ...] = ()
    """Why the new spec has no valid reward, as `component: reason`."""
    old_rank: int | None = None
    """Rank of the recorded reward in the group, from 1, the highest; None outside of a group."""
    new_rank: int | None = None
    old_advantage: float | None = None
    """The recorded reward minus the mean of the group's recorded rewards."""
    new_advantage: float | None = None

    @property
    def changed(self) -> bool:
        """Whether both rewards are valid and differ, by more than the rounding of a trainer to float32."""
        if self.old is None or self.new is None:
            return False
        is_close = math.isclose(self.old, self.new, rel_tol=_SAME, abs_tol=1e-12)
        return not is_close and self.old != float(np.float32(self.new))

    @property
    def flipped(self) -> bool:
        """Whether both verdicts are known and differ."""
        return None not in (self.old_verdict, self.new_verdict) and self.old_verdict != self.new_verdict

    @property
    def reversed(self) -> bool:
        """Whether the advantage changes its sign: training would push the other way."""
        if self.old_advantage is None or self.new_advantage is None:
            return False
        return _sign(self.old_advantage) * _sign(self.new_advantage) < 0


@dataclass(frozen=True, repr=False)
class RescoredRecording(Recording):
    """
    A recording with a score by a new reward spec beside the recorded reward of each episode.

    `episode.reward` is the recorded one; the new one is the last of `episode.annotations`, and under the
    name and version of the spec among `episode.scores`.
    """

    spec: Spec | None = None
    """The new spec."""
    changes: tuple[RewardChange, ...] = ()
    """The scored episodes, in order of start."""
    results: Mapping[str, RewardResult] | None = None
    """The results by trace id."""
    lacking: Mapping[str, int] = field(default_factory=dict)
    """Number of episodes that were not scored, by the inputs that they did not record."""
    without_group: int = 0
    """Number of episodes without the group that a relative component needs."""

    @property
    def grader(self) -> str:
        """Name and version of the new spec."""
        assert self.spec is not None
        return _label(self.spec)

    @property
    def without_inputs(self) -> int:
        """Number of episodes that were not scored because they lack an input."""
        return sum(self.lacking.values())

    @property
    def flips(self) -> tuple[RewardChange, ...]:
        """The episodes whose verdict changed."""
        return tuple(change for change in self.changes if change.flipped)

    @property
    def reversals(self) -> tuple[RewardChange, ...]:
        """The episodes whose advantage in their group would change its sign."""
        return tuple(change for change in self.changes if change.reversed)

    @property
    def invalid(self) -> dict[str, int]:
        """Number of episodes by reason for no valid reward by the new spec, most frequent first."""
        return dict(Counter(reason for change in self.changes for reason in change.reasons).most_common())

    @property
    def means(self) -> tuple[float | None, float | None]:
        """The mean recorded and the mean new reward, of the episodes with both."""
        both = [(row.old, row.new) for row in self.changes if row.old is not None and row.new is not None]
        if not both:
            return None, None
        return math.fsum(old for old, _ in both) / len(both), math.fsum(new for _, new in both) / len(both)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it; of the episodes those whose reward or verdict changed."""
        changed = [change for change in self.changes if change.changed or change.flipped]
        return {
            "spec": self.grader,
            "episodes": len(self.changes),
            "changed": sum(change.changed for change in self.changes),
            "flips": len(self.flips),
            "reversals": len(self.reversals),
            "means": self.means,
            "invalid": self.invalid,
            "without_inputs": self.without_inputs,
            "lacking": dict(self.lacking),
            "without_group": self.without_group,
            "changes": [asdict(row) | {"flipped": row.flipped, "reversed": row.reversed} for row in changed],
        }

    def late_scores(self) -> list[SpanRecord]:
        """The spans of the new scores as annotations, each in the run of its episode."""
        records: list[SpanRecord] = []
        for run in sorted({episode.run_id for episode in self.episodes}):
            memory = MemoryTransport()
            with configuration.isolated(memory, alone=True, run_id=run) as apart:
                for episode in self.episodes:
                    result = (self.results or {}).get(episode.trace_id)
                    if result is not None and episode.run_id == run:
                        feedback.score(episode, result, grader=self.grader)
                for session in apart.opened:
                    session.flush()
            records += [record for record in memory.records() if not record.name.startswith("run")]
        return records

    def record(self) -> int:
        """
        Record the scored episodes again in the current session, with their new rewards; return their number.

        Each links to the episode that it is a copy of, and names it in its metadata as `rescored_episode`.
        """
        session = configuration.recording_session()
        results = self.results or {}
        if session is None:
            raise StudyError("there is no session to record to; call mttp.configure before")
        for episode in self.episodes:
            if (result := results.get(episode.trace_id)) is not None:
                place = SpanContext(int(episode.trace_id, 16), int(episode.span_id, 16), is_remote=True)
                with use_span(NonRecordingSpan(place)):
                    session.record(_copy(episode, result))
        return len(results)

    def __repr__(self) -> str:
        counts = f"{len(self.changes):,} scored by {self.grader}, {len(self.flips):,} flips"
        return f"<RescoredRecording of {len(self.episodes):,} episodes: {counts}>"


def rescore(
    source: Recording | Any,
    *,
    spec: SpecSource,
    trust: Trusted = False,
    progress: Callable[[int], object] | None = None,
) -> RescoredRecording:
    """
    Score recorded episodes by another reward spec, from what they recorded.

    Samples have the recorded inputs, and from the steps `prompt`, `completion`, `messages`, `tool_calls` and
    `completion_ids`.
    `source` is what `mttp.read` takes, or a Recording; `spec` a file or a RewardSpec, and `trust` as for
    `RewardSpec.load`. Relative components score each recorded group.

    Raises ReadError where the source can't be read, SpecError for a spec that can't be used, and StudyError
    where no episode recorded all inputs.
    """
    loaded = spec if isinstance(spec, RewardSpec) else RewardSpec.load(Path(spec), trust=trust)
    recording = source if isinstance(source, Recording) else read(source, progress=progress)
    usable, lacking = scorable(recording.episodes, loaded)
    if lacking and not usable:
        raise unscorable(recording.episodes, loaded)
    pairs = [
        (episode, result)
        for episode, result in zip(usable, scored_again(loaded, usable), strict=True)
        if result is not None
    ]
    results = {episode.trace_id: result for episode, result in pairs}
    facts = {member.name: getattr(recording, member.name) for member in fields(Recording)}
    facts["episodes"] = [
        _with_score(episode, results.get(episode.trace_id), loaded.identity) for episode in recording.episodes
    ]
    return RescoredRecording(
        **facts,
        spec=loaded.identity,
        changes=tuple(_ranked([_change(episode, result) for episode, result in pairs])),
        results=results,
        lacking=lacking,
        without_group=len(usable) - len(pairs),
    )


def _with_score(episode: Episode, result: RewardResult | None, spec: Spec) -> Episode:
    if result is None:
        return episode
    name = _label(spec)
    annotation = Annotation(
        kind="score",
        key="score",
        value=result.value,
        episode=episode.trace_id,
        by=name,
        revision=result.end_time,
        reward=replace(result.reward, grader=name),
        run_id=episode.run_id,
        start_time=result.start_time,
        end_time=result.end_time,
    )
    return replace(episode, annotations=(*episode.annotations, annotation))


def _copy(episode: Episode, result: RewardResult) -> Episode:
    """The episode with the new reward in place of the recorded one, and without later facts."""
    return replace(
        episode,
        trace_id="",
        id="",
        run_id="",
        reward=result.reward,
        rewards=(result.reward,),
        return_=result.value,
        return_basis="episode",
        advantage=None,
        annotations=(),
        results=(),
        metadata={**episode.metadata, "rescored_episode": episode.trace_id},
    )


def _change(episode: Episode, result: RewardResult) -> RewardChange:
    recorded: Reward | Grade = episode.reward
    old = episode.return_
    if episode.rewards:
        recorded = _recorded(episode.reward, result.spec)
        old = recorded.value if recorded.status == "ok" else None
    return RewardChange(
        trace_id=episode.trace_id,
        task=episode.task,
        group=episode.group,
        slices=tuple(episode.slices),
        old=old,
        new=result.value if result.status == "ok" else None,
        old_verdict=recorded.verdict,
        new_verdict=result.verdict,
        reasons=invalid_reasons(result),
    )


def _recorded(reward: Reward, spec: Spec) -> Reward | Grade:
    """Return the reward, or the component that a spec of that name is among a trainer's reward functions."""
    of_spec = (grade for grade in reward.grades if grade.name == spec.name and grade.parts)
    return reward if reward.spec is not None else next(of_spec, reward)


def _ranked(changes: Sequence[RewardChange]) -> Iterator[RewardChange]:
    """The changes with ranks and advantages within groups, over members with both rewards."""
    groups: dict[str, list[RewardChange]] = {}
    for change in changes:
        if change.group is not None and change.old is not None and change.new is not None:
            groups.setdefault(change.group, []).append(change)
    for change in changes:
        members = groups.get(change.group or "", [])
        if len(members) < 2 or change.old is None or change.new is None:
            yield change
            continue
        old, new = (
            [value for member in members if (value := getattr(member, side)) is not None]
            for side in ("old", "new")
        )
        yield replace(
            change,
            old_rank=1 + sum(value > change.old for value in old),
            new_rank=1 + sum(value > change.new for value in new),
            old_advantage=change.old - math.fsum(old) / len(old),
            new_advantage=change.new - math.fsum(new) / len(new),
        )


def _label(spec: Spec) -> str:
    return " ".join(filter(None, (spec.name, spec.version)))


def _sign(value: float) -> int:
    return 0 if abs(value) <= 1e-12 else 1 if value > 0 else -1

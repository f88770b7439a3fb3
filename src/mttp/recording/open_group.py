"""`OpenGroup`, the handle of a group whose members are added one by one."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import Self

from mttp.codec import groups
from mttp.codec.plain import number, scalar_text
from mttp.codec.updates import MAX_LINKS
from mttp.model import baselines, ids
from mttp.model.episodes import Episode, Group
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording.handle import ScoredHandle
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.targets import link, target

if TYPE_CHECKING:
    from mttp.recording.run_recorder import RunRecorder

__all__ = ["Member", "OpenGroup"]


@dataclass(slots=True)
class Member:
    """One episode of a group."""

    trace_id: str
    """The episode's trace id, 32 hex digits."""
    span_id: str
    """The span id of the episode's root, 16 hex digits; empty if unknown."""
    source: OpenEpisode | Episode | None
    """The episode's handle or value, until the group is recorded."""
    reward: float | None = None
    """The reward that the caller stated."""
    advantage: float | None = None
    """The advantage that the caller stated."""
    update_index: int | None = None
    """The index of the update that produced its policy."""

    def effective_reward(self) -> float:
        """Return the stated reward, else the last scoring's value, else the return; NaN without any."""
        reward = self.reward
        if reward is None and isinstance(self.source, Episode) and self.source.reward.value is not None:
            reward = self.source.reward.value
        if reward is None and self.source is not None:
            reward = self.source.return_
        return reward if reward is not None and math.isfinite(reward) else math.nan

    @property
    def is_valid(self) -> bool:
        """Whether the scoring has the status ok, as far as is known; False for example for a floor reward."""
        if not isinstance(self.source, Episode):
            return self.source is None or self.source._is_valid
        if self.source.reward.status != "missing":
            return self.source.reward.status == "ok"
        return all(step.reward_status in ("ok", "missing") for step in self.source.steps)

    @property
    def is_compared(self) -> bool:
        """Whether its reward counts in the mean: a stated reward and advantage count in any case."""
        return self.is_valid or (self.advantage is not None and self.reward is not None)


class OpenGroup(ScoredHandle):
    """
    An open group of episodes whose rewards are compared with each other.

    It is recorded once: with its last member, at `end`, at the end of its block, or when the session closes.
    An episode that names the group and fails is a member by itself, since its handle is easily lost.
    """

    def __init__(
        self,
        host: RunRecorder | None,
        span: RecordingSpan | None = None,
        group: Group | None = None,
        *,
        at_end: Callable[[OpenGroup], object] | None = None,
    ) -> None:
        super().__init__(host, span)
        self._stated = group or Group()
        self._members: dict[str, Member] = {}
        self._shared_values: dict[str, set[str | None]] = {"group": set(), "task": set(), "env": set()}
        self._lost: set[str] = set()
        """The trace ids of the members that were added because they failed."""
        self._at_end = at_end
        self._recorded: Group | None = None
        self._lock = threading.RLock()

    def __str__(self) -> str:
        """Return the id, which `mttp.episode(group=group)` records."""
        return self.id

    def __enter__(self) -> Self:
        """Return the group; it is not current in the block, because episodes there are roots."""
        return self

    @property
    def id(self) -> str:
        """The group's id: the given one, else the one that all members name, else a new one."""
        if self._span is None:
            return ""
        with self._lock:
            if not self._stated.id:
                self._stated = replace(self._stated, id=self._shared("group") or ids.run_id())
            return self._stated.id

    @property
    def members(self) -> list[Member]:
        """The members so far."""
        return list(self._members.values())

    @property
    def value(self) -> Group:
        """The recorded group, or the group with its current members; an empty one for an inert handle."""
        if self._span is None:
            return Group()
        with self._lock:
            return self._recorded or self._group()

    @quiet
    def add(self, episode: object, reward: object = None, advantage: object = None) -> None:
        """
        Add a member: an episode's handle, value or trace id.

        `reward` is by default the episode's reward when the group is recorded.
        """
        with self._lock:
            if self.ended and not self._lost:
                self._accepts("add")  # it is a fault
                return
            try:
                resolved = target(episode)
            except ValueError as error:
                self._span_fault("target_invalid", str(error))
                return
            is_known = resolved.trace_id in self._lost and reward is None and advantage is None
            if (self.ended and is_known) or not self._accepts("add"):
                return
            if resolved.is_step or resolved.trace_id in self._members.keys() - self._lost:
                reason = "is a step" if resolved.is_step else "is already a member"
                self._span_fault("member_invalid", f"{resolved.trace_id} {reason}")
                return
            self._lost.discard(resolved.trace_id)
            self._members[resolved.trace_id] = self._member(episode, resolved.trace_id, resolved.span_id)
            self._set_stated(self._members[resolved.trace_id], reward, advantage)
            if len(self._members) == self._stated.size:
                self._finish()

    @quiet
    def _add_failed(self, episode: OpenEpisode) -> None:
        """Add an episode that failed, if it names this group."""
        with self._lock:
            group, trace_id = self._stated.id or self._shared("group"), episode.trace_id
            if self.ended or episode.group != group or trace_id in self._members:
                return
            self._lost.add(trace_id)
            self._members[trace_id] = self._member(episode, trace_id, episode.span_id)
            if len(self._members) == self._stated.size:
                self._finish()

    def _member(self, episode: object, trace_id: str, span_id: str) -> Member:
        if not isinstance(episode, (OpenEpisode, Episode)):
            return Member(trace_id, span_id, None)
        for name, values in self._shared_values.items():
            values.add(getattr(episode, name) or None)
        return Member(trace_id, span_id, episode, update_index=episode.policy_update_index)

    def _set_stated(self, member: Member, reward: object, advantage: object) -> None:
        if reward is not None:
            figure = number(reward)
            if figure is None or not math.isfinite(figure):
                self._span_fault("reward_invalid", f"{scalar_text(reward):.80} of {member.trace_id}")
                figure = math.nan
            member.reward = figure
        if advantage is not None:
            member.advantage = number(advantage)
            if member.advantage is None:
                self._span_fault("advantage_invalid", f"{scalar_text(advantage):.80} of {member.trace_id}")

    def _span_fault(self, kind: str, detail: str) -> None:
        cast(RecordingSpan, self._span).fault(kind, detail)

    def _shared(self, name: str) -> str | None:
        """Return the value that all members with handles or values share; None if they differ."""
        values = self._shared_values[name]
        return next(iter(values)) if len(values) == 1 else None

    def _group(self) -> Group:
        """Return the value of the group with its current members."""
        group, members = self._stated, self.members
        rewards = group.rewards or tuple(member.effective_reward() for member in members)
        scored = _where((member.is_compared for member in members), rewards)
        mean = baselines.mean(scored) if group.reward_mean is None else group.reward_mean
        std = group.reward_std
        if std is None and group.scope != "batch":
            std = baselines.std(scored, group.ddof or 0)
        return replace(
            group,
            id=self.id,
            episodes=tuple(self._members),
            rewards=rewards,
            advantages=group.advantages or self._advantages(scored, mean, std),
            size=group.size or len(members),
            valid_count=len(baselines.valid(_where((member.is_valid for member in members), rewards))),
            reward_mean=mean,
            reward_std=std,
            task=group.task or self._shared("task"),
            env=group.env or self._shared("env"),
            metrics=self.metrics,
            metadata=self.metadata,
            trace_id=f"{cast(RecordingSpan, self._span).trace_id:032x}",
            span_id=self.span_id,
        )

    def _advantages(
        self, rewards: tuple[float, ...], mean: float | None, std: float | None
    ) -> tuple[float, ...]:
        if len(rewards) != len(self._members):
            return ()
        advantages = [member.advantage for member in self.members]
        if any(advantage is not None for advantage in advantages):
            return tuple(math.nan if advantage is None else advantage for advantage in advantages)
        unscaled = self._stated.scope == "none" and self._stated.normalization == "mean_std"
        normalization = "mean" if unscaled else self._stated.normalization
        return baselines.advantages(rewards, normalization, mean=mean, std=std)

    @quiet
    def end(self) -> None:
        """Record the group with its current members; does nothing if it is recorded already."""
        with self._lock:
            if self and not self.ended:
                self._finish()

    def _end_open(self) -> None:
        """Record the group if it is open when its session closes."""
        with self._lock:
            if not self.ended:
                if not self._stated.size:
                    self._span_fault("group_incomplete", "it was not ended")
                self.end()

    def _finish(self, **_: Any) -> None:
        with self._lock:
            span = cast(RecordingSpan, self._span)
            count = len(self._members)
            if count < self._stated.size:
                span.fault("group_incomplete", f"{count} of {self._stated.size}")
            for name in ("rewards", "advantages"):
                numbers = getattr(self._stated, name)
                if numbers and len(numbers) != count:
                    span.fault(f"{name}_unaligned", f"{len(numbers)} for {count} members")
            group = self._group()
            span.values |= span.checked(groups.encode, group)
            for member in islice(self._members.values(), MAX_LINKS):
                if (member_link := link(member.trace_id, member.span_id)) is not None:
                    span.add_link(member_link.context)
            span.end()
            self._recorded = replace(
                group,
                faults=tuple(dict.fromkeys(span.faults)),
                start_time=span.start_time,
                end_time=span.end_time,
            )
            for member in self._members.values():
                member.source = None
            if self._at_end is not None:
                self._at_end(self)


def _where(counts: Iterable[bool], rewards: tuple[float, ...]) -> tuple[float, ...]:
    """Return the rewards, with NaN for those that do not count; all if these are not the members' rewards."""
    flags = list(counts)
    if len(flags) != len(rewards):
        return rewards
    return tuple(reward if flag else math.nan for reward, flag in zip(rewards, flags, strict=True))

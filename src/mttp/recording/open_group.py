"""A group of episodes while its members come in."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from mttp.codec import groups
from mttp.codec.plain import number, scalar_text
from mttp.model import baselines, ids
from mttp.model.episodes import Episode, Group
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording.handle import Host, Measured
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.targets import target

__all__ = ["Member", "OpenGroup"]


@dataclass(slots=True)
class Member:
    """One episode of a group."""

    trace_id: str
    """The episode's trace, 32 hex digits."""
    span_id: str
    """Its root span, 16 hex digits, where it is known."""
    source: OpenEpisode | Episode | None
    """What knows its reward, until the group is recorded."""
    reward: float | None = None
    """What it was paid, where the group is told so."""
    advantage: float | None = None
    """Its advantage, where the group is told so."""
    update_index: int | None = None
    """The optimizer update that made its policy."""

    def paid(self) -> float:
        """What it was paid: as the group was told, else by the last scoring, else in all; NaN if nothing."""
        found = self.reward
        if found is None and isinstance(self.source, Episode) and self.source.reward.value is not None:
            found = self.source.reward.value
        if found is None and self.source is not None:
            found = self.source.return_
        return found if found is not None and math.isfinite(found) else math.nan

    @property
    def is_valid(self) -> bool:
        """Whether what it was paid is a score, as far as is known, and not a floor in place of one."""
        if not isinstance(self.source, Episode):
            return self.source is None or self.source._is_valid
        if self.source.reward.status != "missing":
            return self.source.reward.status == "ok"
        return all(step.reward_status in ("ok", "missing") for step in self.source.steps)

    @property
    def is_compared(self) -> bool:
        """Whether its reward counts in the mean: a trainer that states an advantage counted its reward."""
        return self.is_valid or (self.advantage is not None and self.reward is not None)


class OpenGroup(Measured):
    """
    A group of episodes that are compared with each other, while its members come in.

    It is recorded once: when it has as many members as it should, at `end`, on leaving its block,
    or when the session closes.
    """

    def __init__(
        self,
        host: Host | None,
        span: RecordingSpan | None = None,
        stated: Group | None = None,
        *,
        at_end: Callable[[OpenGroup], None] | None = None,
    ) -> None:
        super().__init__(host, span)
        self._stated = stated or Group()
        self._members: dict[str, Member] = {}
        self._common: dict[str, set[str | None]] = {"group": set(), "task": set(), "env": set()}
        self._at_end = at_end
        self._recorded: Group | None = None
        self._lock = threading.RLock()

    def __str__(self) -> str:
        """The id, so that `mttp.episode(group=group)` says what is meant."""
        return self.id

    def _as_context(self) -> Context:
        """The block changes no context: episodes in it are roots."""
        return otel_context.get_current()

    @property
    def id(self) -> str:
        """The group's id: as it was given, else the one that its members name, else a new one."""
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
        """The group as it is recorded, or would be now; an empty one of an inert handle."""
        if self._span is None:
            return Group()
        with self._lock:
            return self._recorded or self._group()

    @quiet
    def add(self, episode: object, reward: object = None, advantage: object = None) -> None:
        """
        Add a member: an episode's handle or value, or its trace id.

        `reward` is by default what it was paid by the time the group is recorded.
        """
        with self._lock:
            if not self._accepts("add"):
                return
            try:
                meant = target(episode)
            except ValueError as error:
                self._span_fault("target_invalid", str(error))
                return
            if meant.is_step or meant.trace_id in self._members:
                reason = "is a step" if meant.is_step else "is a member already"
                self._span_fault("member_invalid", f"{meant.trace_id} {reason}")
                return
            self._members[meant.trace_id] = self._member(episode, meant.trace_id, meant.span_id)
            self._state(self._members[meant.trace_id], reward, advantage)
            if len(self._members) == self._stated.size:
                self._finish()

    def _member(self, episode: object, trace_id: str, span_id: str) -> Member:
        if not isinstance(episode, (OpenEpisode, Episode)):
            return Member(trace_id, span_id, None)
        for name, seen in self._common.items():
            seen.add(getattr(episode, name) or None)
        return Member(trace_id, span_id, episode, update_index=episode.policy_update_index)

    def _state(self, member: Member, reward: object, advantage: object) -> None:
        if reward is not None:
            found = number(reward)
            if found is None or not math.isfinite(found):
                self._span_fault("reward_invalid", f"{scalar_text(reward):.80} of {member.trace_id}")
                found = math.nan
            member.reward = found
        if advantage is not None:
            member.advantage = number(advantage)
            if member.advantage is None:
                self._span_fault("advantage_invalid", f"{scalar_text(advantage):.80} of {member.trace_id}")

    def _span_fault(self, kind: str, detail: str) -> None:
        cast(RecordingSpan, self._span).fault(kind, detail)

    def _shared(self, name: str) -> str | None:
        """What all members whose handles or values are known say alike."""
        seen = self._common[name]
        return next(iter(seen)) if len(seen) == 1 else None

    def _group(self) -> Group:
        """The group with the members that it has."""
        stated, members = self._stated, self.members
        rewards = stated.rewards or tuple(member.paid() for member in members)
        scored = _scored(rewards, members)
        mean = baselines.mean(scored) if stated.reward_mean is None else stated.reward_mean
        std = stated.reward_std
        if std is None and stated.scope != "batch":
            std = baselines.std(scored, stated.ddof or 0)
        return replace(
            stated,
            id=self.id,
            episodes=tuple(self._members),
            rewards=rewards,
            advantages=stated.advantages or self._advantages(scored, mean, std),
            size=stated.size or len(members),
            valid_count=_valid_count(rewards, members),
            reward_mean=mean,
            reward_std=std,
            task=stated.task or self._shared("task"),
            env=stated.env or self._shared("env"),
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
        told = [member.advantage for member in self.members]
        if any(advantage is not None for advantage in told):
            return tuple(math.nan if advantage is None else advantage for advantage in told)
        unscaled = self._stated.scope == "none" and self._stated.normalization == "mean_std"
        how = "mean" if unscaled else self._stated.normalization
        return baselines.advantages(rewards, how, mean=mean, std=std)

    @quiet
    def end(self) -> None:
        """Record the group with the members that it has."""
        with self._lock:
            if self._accepts("end"):
                self._finish()

    def _end_open(self) -> None:
        """Record the group if it is still open: its session closes."""
        with self._lock:
            if not self.ended:
                if not self._stated.size:
                    self._span_fault("group_incomplete", "it never ended")
                self.end()

    def _finish(self, **_: Any) -> None:
        with self._lock:
            span = cast(RecordingSpan, self._span)
            count = len(self._members)
            if count < self._stated.size:
                span.fault("group_incomplete", f"{count} of {self._stated.size}")
            for name in ("rewards", "advantages"):
                given = getattr(self._stated, name)
                if given and len(given) != count:
                    span.fault(f"{name}_unaligned", f"{len(given)} for {count} members")
            group = self._group()
            span.values |= span.checked(groups.encode, group)
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


def _valid_count(rewards: tuple[float, ...], members: Sequence[Member]) -> int:
    if len(rewards) != len(members):
        return len(baselines.valid(rewards))
    return sum(
        math.isfinite(reward) and member.is_valid for reward, member in zip(rewards, members, strict=True)
    )


def _scored(rewards: tuple[float, ...], members: Sequence[Member]) -> tuple[float, ...]:
    """The rewards with NaN for each that does not count."""
    if len(rewards) != len(members):
        return rewards
    return tuple(
        reward if member.is_compared else math.nan for reward, member in zip(rewards, members, strict=True)
    )

"""`group` and `update`: groups of episodes, and updates of the policy."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opentelemetry.trace import Link

from mttp.codec import fields, updates
from mttp.codec.plain import Faults, count, listed, mapped, named, number, scalar_text, text
from mttp.model import clock
from mttp.model.curves import UPDATE_NUMBERS
from mttp.model.declarations import keys
from mttp.model.episodes import Group, Update
from mttp.recording.configuration import never_raises, recording_session
from mttp.recording.handle import ScoredHandle
from mttp.recording.open_group import OpenGroup
from mttp.recording.session import Session
from mttp.recording.targets import Target, link, target
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.registry import known_values

__all__ = ["group", "update"]

_lock = threading.RLock()
_last: dict[tuple[str, str | None], int] = {}
"""The index of the last update by run and policy."""


@dataclass(slots=True)
class UpdateBatch:
    """The groups and episodes that an update learned from, and those that it discarded."""

    groups: dict[str, Target | None] = field(default_factory=dict)
    """Groups by id, with their spans if known."""
    episodes: dict[str, Target] = field(default_factory=dict)
    """Episodes that are named directly, by trace id."""
    members: set[str] | None = field(default_factory=set)
    """Trace ids of the groups' members; None if some are unknown."""
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers of discarded episodes by reason."""
    discarded: dict[str, dict[str, Target]] = field(default_factory=dict)
    """Discarded episodes that are named, by reason and trace id."""
    update_indices: dict[str, int | None] = field(default_factory=dict)
    """By trace id, the index of the update that produced the episode's policy; None if unknown."""

    def discarded_ids(self) -> set[str]:
        """Return the trace ids of discarded episodes."""
        return {trace_id for episodes in self.discarded.values() for trace_id in episodes}

    def facts(self, consumed: object, faults: Faults) -> dict[str, Any]:
        """Return the facts of `mttp.model.Update`; `consumed` is counted by default."""
        number = count(consumed)
        if consumed is not None and number is None:
            faults.append(f"consumed_invalid: {scalar_text(consumed):.80}")
        if number is None and self.members is not None and (self.groups or self.episodes):
            number = len((self.members | self.episodes.keys()) - self.discarded_ids())
        return {
            "groups": tuple(self.groups),
            "episodes": tuple(self.episodes),
            "consumed": number,
            "discarded": self.counts,
            "discarded_episodes": {reason: tuple(episodes) for reason, episodes in self.discarded.items()},
        }

    def links(self, marker: Mapping[str, Any]) -> list[Link]:
        """Return links to the groups and episodes that a marker names, if their spans are known."""
        reason = marker.get(a.UPDATE_DISCARD_REASON)
        targets: Mapping[str, Target | None] = self.episodes if reason is None else self.discarded[reason]
        attributes: dict[str, Any] = {} if reason is None else {a.UPDATE_DISCARD_REASON: reason}
        pairs = [(targets[id], attributes) for id in marker.get(a.UPDATE_EPISODES, ())]
        pairs += [(self.groups[id], {a.GROUP_ID: id}) for id in marker.get(a.UPDATE_GROUPS, ())]
        links = (link(span.trace_id, span.span_id, facts) for span, facts in pairs if span is not None)
        return [item for item in links if item is not None]


def batch(
    groups: object, episodes: object, discarded: Mapping[str, object] | None, faults: Faults
) -> UpdateBatch:
    """Return the batch from the arguments of `mttp.update`; invalid ones are added to `faults`."""
    learned_from = UpdateBatch()
    single = isinstance(groups, (OpenGroup, Group, str))
    for source in [groups] if single else listed("groups", groups, faults) or ():
        _take_group(learned_from, source, faults)
    learned_from.episodes = _episodes(learned_from, "episodes", episodes, faults)
    for reason, episodes_or_count in named(mapped("discarded", discarded, faults), faults).items():
        _discard(learned_from, reason, episodes_or_count, faults)
    return learned_from


def _take_group(batch: UpdateBatch, source: object, faults: Faults) -> None:
    if isinstance(source, OpenGroup):
        batch.update_indices |= {member.trace_id: member.update_index for member in source.members}
        source = source.value
    if not isinstance(source, Group):
        batch.groups.setdefault(text(source, faults), None)
        batch.members = None
    elif source.id:
        span = Target(trace_id=source.trace_id, span_id=source.span_id) if source.span_id else None
        batch.groups[source.id] = span
        if batch.members is not None:
            batch.members |= {*source.episodes}
    else:
        faults.append("group_invalid: the group was not recorded")


def _episodes(batch: UpdateBatch, what: str, argument: object, faults: Faults) -> dict[str, Target]:
    targets: dict[str, Target] = {}
    for episode in listed(what, argument, faults) or ():
        try:
            resolved = target(episode)
        except ValueError as error:
            faults.append(f"target_invalid: {error}")
            continue
        if resolved.is_step:
            faults.append(f"target_invalid: a step of {resolved.trace_id} is not an episode")
            continue
        targets[resolved.trace_id] = resolved
        batch.update_indices[resolved.trace_id] = getattr(episode, "policy_update_index", None)
    return targets


def _discard(batch: UpdateBatch, reason: str, discarded: object, faults: Faults) -> None:
    """Add a number of discarded episodes, or the episodes, for a reason."""
    if isinstance(discarded, (int, float, bool)) or not hasattr(discarded, "__iter__"):
        number = count(discarded)
        if number is None:
            faults.append(f"discarded_invalid: {reason} is {scalar_text(discarded):.80}")
        else:
            batch.counts[reason] = number
        return
    if which := _episodes(batch, "discarded", discarded, faults):
        batch.discarded[reason] = which
    batch.counts[reason] = len(which)


@never_raises(lambda *_, **__: OpenGroup(None))
def group(
    id: object = None,
    episodes: Iterable[object] | None = None,
    *,
    size: int | None = None,
    rewards: Iterable[object] | None = None,
    advantages: Iterable[object] | None = None,
    ddof: int = 1,
    scope: str = "group",
    normalization: str | None = None,
    reward_mean: float | None = None,
    reward_std: float | None = None,
    task: object = None,
    env: object = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, object] | None = None,
) -> OpenGroup:
    """
    Start or record a group of episodes whose rewards are compared, such as GRPO's samples of one prompt.

    With `episodes` (handles, values or trace ids) the group is recorded at once. Otherwise `add` adds
    members, and the group is recorded when it has `size` members, or when it ends.
    `id` must be unique in the run; by default it is the id that all members name, else a new one.

    `rewards` and `advantages` have one number per member; a reward is by default the member's reward.
    The mean and the standard deviation are those of the valid rewards, unless `reward_mean` and `reward_std`
    state the trainer's; with the `scope` "batch" only the trainer knows the standard deviation.
    `ddof` is 1 (the default of torch's `std`, TRL and verl) or 0.
    Without `advantages` they are computed if `normalization` is "none", "mean", "mean_std" or "leave_one_out"
    (see `mttp.model.baselines`); with the `scope` "none" they are not divided by the standard deviation.
    """
    arguments = {name: value for name, value in locals().items() if name in _OF_GROUP}
    session = recording_session()
    if session is None:
        return OpenGroup(None)
    group_value, faults = _stated(arguments, ddof)
    members = listed("episodes", episodes, faults)
    aligned: dict[str, Sequence[Any]] = {}
    others: dict[str, Any] = {"size": _size(size, members, faults)}
    for name, values in (("rewards", rewards), ("advantages", advantages)):
        if (items := listed(name, values, faults)) is None:
            continue
        if members is not None and len(items) == len(members):
            aligned[name] = items
        else:  # recorded even if they don't match the members
            numbers = [number(item) for item in items]
            others[name] = tuple(math.nan if item is None else item for item in numbers)
    opened = _open_group(session, replace(group_value, **others), faults, metrics, metadata)
    if members is not None:
        nothing = [None] * len(members)
        of_members = (aligned.get(name, nothing) for name in ("rewards", "advantages"))
        for member, reward, advantage in zip(members, *of_members, strict=True):
            opened.add(member, reward, advantage)
        if not opened.ended:
            opened.end()
    return opened


_OF_GROUP = keys(Group).keys() - {"episodes", "rewards", "advantages", "size", "ddof"}
"""Fields of a group whose arguments are checked by their declarations alone."""


def _stated(arguments: Mapping[str, object], ddof: object) -> tuple[Group, Faults]:
    """Return the group's stated facts, and their faults."""
    faults: Faults = []
    facts = fields.checked(Group, arguments, faults)
    for name, key in keys(Group, "scope", "normalization").items():
        if name in facts and facts[name] not in known_values(key):
            faults.append(f"{name}_unknown: {facts[name]:.80}")
    known_ddof = number(ddof)
    if known_ddof not in (0, 1):
        faults.append(f"ddof_invalid: {scalar_text(ddof):.80}")
    return Group(ddof=0 if known_ddof == 0 else 1, **facts), faults


def _size(argument: object, members: Sequence[object] | None, faults: Faults) -> int:
    """Return the expected number of members; 0 if unknown."""
    size = count(argument)
    if argument is not None and not size:
        faults.append(f"size_invalid: {scalar_text(argument):.80}")
    if size and members is not None and size < len(members):
        faults.append(f"size_invalid: {size} for {len(members)} episodes")
        return len(members)
    return size or 0


def _open_group(
    session: Session,
    group_value: Group,
    faults: Faults,
    metrics: Mapping[str, float] | None,
    metadata: Mapping[str, object] | None,
) -> OpenGroup:
    recorder = session._recorder
    with _lock:
        if recorder.open_groups is None:
            recorder.open_groups = {}
            session._before_close(_close, session)
        open_groups = recorder.open_groups
    span = recorder.span(names.GROUP, values={a.RUN_ID: session.run_id}, start=clock.wall())
    span.note(faults)
    group_value = replace(group_value, run_id=session.run_id)
    opened = OpenGroup(recorder, span, group_value, at_end=lambda group: open_groups.pop(id(group), None))
    open_groups[id(opened)] = opened
    opened._describe(metadata, metrics)
    return opened


def _close(session: Session) -> None:
    """Record the open groups; a forked child leaves its parent's groups to the parent."""
    for opened in list((session._recorder.open_groups or {}).values()):
        opened._end_open()


_OF_UPDATE = keys(Update).keys() - {"index", "consumed", "sampled_versions"}
"""Fields of an update whose arguments are checked by their declarations alone."""


@never_raises(lambda *_, **__: Update())
def update(
    index: int | None = None,
    *,
    loss: float | None = None,
    kl: float | None = None,
    entropy: float | None = None,
    grad_norm: float | None = None,
    learning_rate: float | None = None,
    clip_fraction: float | None = None,
    policy_loss: float | None = None,
    value_loss: float | None = None,
    explained_variance: float | None = None,
    policy_version_before: object = None,
    policy_version_after: object = None,
    groups: Iterable[object] = (),
    episodes: Iterable[object] = (),
    discarded: Mapping[str, object] | None = None,
    consumed: int | None = None,
    lag: Iterable[float] | None = None,
    sampled_versions: tuple[object, object] | None = None,
    policy: object = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, object] | None = None,
    start_time: int | None = None,
    end_time: int | None = None,
    **logged: object,
) -> Update:
    """
    Record one update of the policy, with its losses and its episodes; returns the update's value.

    Whatever else a trainer logs may be given by name: usual names of the fields are the fields, such as
    `approx_kl`, `clipfrac` and `lr`, other numbers are metrics, and other values metadata.

    `index` counts from 0; by default it is one more than the last of this policy in this process.
    Numbers are recorded unchanged, a loss of NaN as NaN.
    `groups` are handles, values or ids; `episodes` are handles, values or trace ids.
    `discarded` maps a reason to the number of discarded episodes, or to the episodes.
    `consumed` is the number of episodes learned from, by default of those named and not discarded.
    `lag` is the number of updates between sampling and learning: one per episode, or (min, mean, max).
    By default it is `index - policy_update_index - 1` of the episodes that have a `policy_update_index`.
    `sampled_versions` are the oldest and the newest policy version among the samples.
    Times are in nanoseconds since the Unix epoch, by default now.
    Without a session the returned value is empty.
    """
    arguments = {name: value for name, value in locals().items() if name in _OF_UPDATE and value is not None}
    session = recording_session()
    if session is None:
        return Update()
    faults: Faults = []
    measured = {name: arguments.pop(name) for name in UPDATE_NUMBERS if name in arguments}
    numbers, others = updates.logged_fields({**measured, **logged})
    facts = fields.checked(Update, {**arguments, **numbers}, faults) | _versions(sampled_versions, faults)
    facts["index"] = _index(index, session.run_id, facts.get("policy"), faults)
    learned_from = batch(groups, episodes, discarded, faults)
    facts |= _lag(lag, learned_from, facts["index"], faults)
    update_value = Update(run_id=session.run_id, **facts, **learned_from.facts(consumed, faults))
    numbers = {name: value for name, value in others.items() if number(value) is not None}
    texts = {
        name: value for name, value in others.items() if not (name in numbers or fields.is_absent(value))
    }
    described = ((texts, numbers), (metadata, metrics))
    return _recorded(session, update_value, learned_from, faults, described, (start_time, end_time))


def _recorded(
    session: Session,
    update_value: Update,
    learned_from: UpdateBatch,
    faults: Faults,
    described: Iterable[tuple[object, object]],
    times: tuple[int | None, int | None],
) -> Update:
    start, end = times
    start = next((time for time in (start, end) if time is not None), clock.wall())
    span = session._recorder.span(names.UPDATE, values={}, start=start)
    span.note(faults)
    span.values |= span.checked(updates.encode, update_value)
    handle = ScoredHandle(session._recorder, span)
    for metadata, metrics in described:
        handle._describe(metadata, metrics)
    for values in updates.markers(update_value):
        links = learned_from.links(values)
        marker = session._recorder.span(
            names.UPDATE_LINKS, values=values, parent=span.identity, start=span.started, links=links
        )
        marker.end_at_once()
    span.end(end)
    return replace(
        update_value,
        metrics=handle.metrics,
        metadata=handle.metadata,
        faults=tuple(dict.fromkeys(span.faults)),
        trace_id=f"{span.trace_id:032x}",
        span_id=handle.span_id,
        start_time=span.start_time,
        end_time=span.end_time,
    )


def _lag(argument: object, batch: UpdateBatch, index: int, faults: Faults) -> dict[str, Any]:
    """Return the minimum, mean and maximum of the lag."""
    if argument is None:
        policies = [policy for id, policy in batch.update_indices.items() if id not in batch.discarded_ids()]
        lags = [index - policy - 1 for policy in policies if policy is not None]
        return _lag_facts(lags) if lags and min(lags) >= 0 else {}
    numbers = [number(lag) for lag in listed("lag", argument, faults) or ()]
    known = [lag for lag in numbers if lag is not None and math.isfinite(lag)]
    if len(known) < len(numbers):
        faults.append(f"lag_invalid: {scalar_text(argument):.80}")
        return {}
    if issubclass(type(argument), tuple) and len(known) == 3 and known == sorted(known):
        return {"lag_min": int(known[0]), "lag_mean": known[1], "lag_max": int(known[2])}
    return _lag_facts(known)


def _lag_facts(lags: Sequence[float]) -> dict[str, Any]:
    if not lags:
        return {}
    return {"lag_min": int(min(lags)), "lag_mean": math.fsum(lags) / len(lags), "lag_max": int(max(lags))}


def _index(argument: object, run_id: str, policy: str | None, faults: Faults) -> int:
    """Return the given index, else one more than the last."""
    index = count(argument)
    if argument is not None and index is None:
        faults.append(f"index_invalid: {scalar_text(argument):.80}")
    with _lock:
        if index is None:
            index = _last.get((run_id, policy), -1) + 1
        _last[run_id, policy] = index
    return index


def _versions(argument: object, faults: Faults) -> dict[str, Any]:
    if argument is None:
        return {}
    versions = listed("sampled_versions", argument, faults)
    if versions is None or len(versions) != 2:
        faults.append(f"sampled_versions_invalid: {scalar_text(argument):.80} is not (oldest, newest)")
        return {}
    return {"sampled_versions": (text(versions[0], faults), text(versions[1], faults))}


def _replace_lock() -> None:
    """After a fork, in the child: replace the lock, whose holder does not exist here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock)

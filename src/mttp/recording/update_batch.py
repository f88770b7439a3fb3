"""`UpdateBatch`, the groups and episodes that an update learned from or discarded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Link

from mttp.codec.plain import Faults, count, listed, mapped, named, scalar_text, text
from mttp.model.episodes import Group
from mttp.recording.open_group import OpenGroup
from mttp.recording.targets import Target, link, target
from mttp.semconv import attributes as a

__all__ = ["UpdateBatch", "batch"]


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
        return {trace_id for found in self.discarded.values() for trace_id in found}

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
            "discarded_episodes": {reason: tuple(found) for reason, found in self.discarded.items()},
        }

    def links(self, marker: Mapping[str, Any]) -> list[Link]:
        """Return links to the groups and episodes that a marker names, if their spans are known."""
        reason = marker.get(a.UPDATE_DISCARD_REASON)
        targets: Mapping[str, Target | None] = self.episodes if reason is None else self.discarded[reason]
        attributes: dict[str, Any] = {} if reason is None else {a.UPDATE_DISCARD_REASON: reason}
        found = [(targets[id], attributes) for id in marker.get(a.UPDATE_EPISODES, ())]
        found += [(self.groups[id], {a.GROUP_ID: id}) for id in marker.get(a.UPDATE_GROUPS, ())]
        links = (link(one.trace_id, one.span_id, attributes) for one, attributes in found if one is not None)
        return [one for one in links if one is not None]


def batch(
    groups: object, episodes: object, discarded: Mapping[str, object] | None, faults: Faults
) -> UpdateBatch:
    """Return the batch from the arguments of `mttp.update`; invalid ones are added to `faults`."""
    found = UpdateBatch()
    single = isinstance(groups, (OpenGroup, Group, str))
    for given in [groups] if single else listed("groups", groups, faults) or ():
        _take_group(found, given, faults)
    found.episodes = _episodes(found, "episodes", episodes, faults)
    for reason, episodes_or_count in named(mapped("discarded", discarded, faults), faults).items():
        _discard(found, reason, episodes_or_count, faults)
    return found


def _take_group(batch: UpdateBatch, given: object, faults: Faults) -> None:
    if isinstance(given, OpenGroup):
        batch.update_indices |= {member.trace_id: member.update_index for member in given.members}
        given = given.value
    if not isinstance(given, Group):
        batch.groups.setdefault(text(given, faults), None)
        batch.members = None
    elif given.id:
        span = Target(trace_id=given.trace_id, span_id=given.span_id) if given.span_id else None
        batch.groups[given.id] = span
        if batch.members is not None:
            batch.members |= {*given.episodes}
    else:
        faults.append("group_invalid: the group was not recorded")


def _episodes(batch: UpdateBatch, what: str, given: object, faults: Faults) -> dict[str, Target]:
    found: dict[str, Target] = {}
    for episode in listed(what, given, faults) or ():
        try:
            resolved = target(episode)
        except ValueError as error:
            faults.append(f"target_invalid: {error}")
            continue
        if resolved.is_step:
            faults.append(f"target_invalid: a step of {resolved.trace_id} is not an episode")
            continue
        found[resolved.trace_id] = resolved
        batch.update_indices[resolved.trace_id] = getattr(episode, "policy_update_index", None)
    return found


def _discard(batch: UpdateBatch, reason: str, given: object, faults: Faults) -> None:
    """Add a number of discarded episodes, or the episodes, for a reason."""
    if isinstance(given, (int, float, bool)) or not hasattr(given, "__iter__"):
        number = count(given)
        if number is None:
            faults.append(f"discarded_invalid: {reason} is {scalar_text(given):.80}")
        else:
            batch.counts[reason] = number
        return
    if which := _episodes(batch, "discarded", given, faults):
        batch.discarded[reason] = which
    batch.counts[reason] = len(which)

"""What an update learned from: groups and episodes, and those that it left."""

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
    """What an update learned from, and what it left."""

    groups: dict[str, Target | None] = field(default_factory=dict)
    """Groups by id, and their spans where they are known."""
    episodes: dict[str, Target] = field(default_factory=dict)
    """Episodes that were learned from directly, by trace id."""
    members: set[str] | None = field(default_factory=set)
    """Trace ids of the groups' members; None where some are not known."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many were discarded, by reason."""
    discarded: dict[str, dict[str, Target]] = field(default_factory=dict)
    """Those that are named, by reason and trace id."""
    update_indices: dict[str, int | None] = field(default_factory=dict)
    """Which update made the policy that sampled an episode, where the episode knows, by trace id."""

    def left(self) -> set[str]:
        """Trace ids of what was discarded."""
        return {trace_id for found in self.discarded.values() for trace_id in found}

    def facts(self, consumed: object, faults: Faults) -> dict[str, Any]:
        """What the update says of it."""
        number = count(consumed)
        if consumed is not None and number is None:
            faults.append(f"consumed_invalid: {scalar_text(consumed):.80}")
        if number is None and self.members is not None and (self.groups or self.episodes):
            number = len((self.members | self.episodes.keys()) - self.left())
        return {
            "groups": tuple(self.groups),
            "episodes": tuple(self.episodes),
            "consumed": number,
            "discarded": self.counts,
            "discarded_episodes": {reason: tuple(found) for reason, found in self.discarded.items()},
        }

    def links(self, marker: Mapping[str, Any]) -> list[Link]:
        """Links to what a marker names, where its span is known."""
        reason = marker.get(a.UPDATE_DISCARD_REASON)
        places: Mapping[str, Target | None] = self.episodes if reason is None else self.discarded[reason]
        said: dict[str, Any] = {} if reason is None else {a.UPDATE_DISCARD_REASON: reason}
        found = [(places[id], said) for id in marker.get(a.UPDATE_EPISODES, ())]
        found += [(self.groups[id], {a.GROUP_ID: id}) for id in marker.get(a.UPDATE_GROUPS, ())]
        links = (link(meant.trace_id, meant.span_id, of) for meant, of in found if meant is not None)
        return [made for made in links if made is not None]


def batch(
    groups: object, episodes: object, discarded: Mapping[str, object] | None, faults: Faults
) -> UpdateBatch:
    """What a caller says that an update learned from and left; what makes no sense is said in `faults`."""
    found = UpdateBatch()
    single = isinstance(groups, (OpenGroup, Group, str))
    for given in [groups] if single else listed("groups", groups, faults) or ():
        _take_group(found, given, faults)
    found.episodes = _episodes(found, "episodes", episodes, faults)
    for reason, left in named(mapped("discarded", discarded, faults), faults).items():
        _discard(found, reason, left, faults)
    return found


def _take_group(batch: UpdateBatch, given: object, faults: Faults) -> None:
    if isinstance(given, OpenGroup):
        batch.update_indices |= {member.trace_id: member.update_index for member in given.members}
        given = given.value
    if not isinstance(given, Group):
        batch.groups.setdefault(text(given, faults), None)
        batch.members = None
    elif given.id:
        place = Target(trace_id=given.trace_id, span_id=given.span_id) if given.span_id else None
        batch.groups[given.id] = place
        if batch.members is not None:
            batch.members |= {*given.episodes}
    else:
        faults.append("group_invalid: a group that was not recorded")


def _episodes(batch: UpdateBatch, what: str, given: object, faults: Faults) -> dict[str, Target]:
    found: dict[str, Target] = {}
    for episode in listed(what, given, faults) or ():
        try:
            meant = target(episode)
        except ValueError as error:
            faults.append(f"target_invalid: {error}")
            continue
        if meant.is_step:
            faults.append(f"target_invalid: a step of {meant.trace_id} is no episode")
            continue
        found[meant.trace_id] = meant
        batch.update_indices[meant.trace_id] = getattr(episode, "policy_update_index", None)
    return found


def _discard(batch: UpdateBatch, reason: str, given: object, faults: Faults) -> None:
    """Enter how many, or which, were not learned from for that reason."""
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

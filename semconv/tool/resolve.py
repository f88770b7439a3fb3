"""Resolution: what each signal really carries, once groups are opened and refinements are merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tool.registry import Attribute, Group, Ref, Registry, Signal, condition

__all__ = ["ResolvedAttribute", "ResolvedSignal", "mentions", "resolve"]

REQUIREMENT_LEVEL = "recommended"
"""The requirement level of an attribute that states none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAttribute:
    """An attribute as one signal carries it."""

    definition: Attribute
    """What the attribute is everywhere."""
    brief: str
    """What it holds here."""
    note: str
    """What else there is to know here."""
    examples: tuple[Any, ...]
    """Values that it may have here."""
    annotations: Mapping[str, Any]
    """What the generator needs to know besides."""
    requirement_level: str | Mapping[str, str] = REQUIREMENT_LEVEL
    """Whether it must be there."""
    sampling_relevant: bool = False
    """Whether it should be there when the span starts, for samplers to see."""

    @property
    def condition(self) -> tuple[str, Sequence[str]] | None:
        """The attribute, and its values, on which it depends whether this one must be there."""
        return condition(self.annotations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSignal:
    """A signal with the attributes that it carries, by key."""

    definition: Signal
    """The signal as written."""
    attributes: tuple[ResolvedAttribute, ...] = field(default=())
    """What it carries, sorted by key, ours first."""


def resolve(registry: Registry) -> tuple[ResolvedSignal, ...]:
    """Every signal of `registry`, in its order; references that dangle are left out."""
    catalog = {attribute.key: attribute for attribute in (*registry.upstream, *registry.attributes)}
    groups = {group.id: group for group in registry.groups}
    return tuple(
        ResolvedSignal(definition=signal, attributes=_attributes(signal, groups, catalog))
        for signal in registry.signals
    )


def mentions(signal: Signal, groups: Mapping[str, Group]) -> Iterator[tuple[str | None, Ref]]:
    """Every reference of `signal` with the group it comes from, those of groups before the signal's own."""
    for group_id in signal.groups:
        if group_id in groups:
            for ref in groups[group_id].refs:
                yield group_id, ref
    for ref in signal.refs:
        yield None, ref


def _attributes(
    signal: Signal, groups: Mapping[str, Group], catalog: Mapping[str, Attribute]
) -> tuple[ResolvedAttribute, ...]:
    merged: dict[str, dict[str, Any]] = {}
    for _, ref in mentions(signal, groups):
        # The signal's own references come last, so that what they state wins over the groups'.
        merged.setdefault(ref.key, {}).update(ref.refinements)
    resolved = [_refined(catalog[key], stated) for key, stated in merged.items() if key in catalog]
    return tuple(sorted(resolved, key=lambda attribute: order(attribute.definition)))


def order(attribute: Attribute) -> tuple[bool, str]:
    """Sorts attributes: ours first, then by key."""
    return attribute.source is not None, attribute.key


def _refined(attribute: Attribute, stated: Mapping[str, Any]) -> ResolvedAttribute:
    return ResolvedAttribute(
        definition=attribute,
        brief=stated.get("brief", attribute.brief).strip(),
        note=stated.get("note", attribute.note).strip(),
        examples=tuple(stated.get("examples", attribute.examples)),
        annotations={**attribute.annotations, **stated.get("annotations", {})},
        requirement_level=stated.get("requirement_level", REQUIREMENT_LEVEL),
        sampling_relevant=stated.get("sampling_relevant", False),
    )

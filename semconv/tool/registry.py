"""The registry as data: every definition as written, unresolved, each with the file it is from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Attribute", "Group", "Member", "Ref", "Registry", "Signal", "condition"]


def condition(annotations: Mapping[str, Any]) -> tuple[str, Sequence[str]] | None:
    """
    The attribute on which it depends whether the annotated one is required, and the values with which it is.

    Without values any will do. None where no program can tell.
    """
    when: Mapping[str, Sequence[str]] = annotations.get("mttp", {}).get("when", {})
    return next(iter(when.items()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One known value of an enum."""

    id: str
    """The value's name, unique in its enum."""
    value: str | int | bool
    """What is written on the wire."""
    brief: str
    """What it means, in a sentence."""
    stability: str
    """How settled it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """The definition of one attribute, ours or reused."""

    key: str
    """Its full name."""
    type: str
    """The type as written, or that of an enum's values."""
    members: tuple[Member, ...] = ()
    """An enum's known values."""
    brief: str
    """What it holds, in a sentence."""
    note: str = ""
    """What else there is to know."""
    stability: str
    """How settled it is."""
    examples: tuple[Any, ...] = ()
    """Values that it may have."""
    deprecated: Mapping[str, str] | None = None
    """Why it should no longer be written, and what took its place."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """What the generator needs to know besides."""
    file: str
    """The file that defines it."""
    source: str | None = None
    """The upstream registry that defines it; None for ours."""

    @property
    def is_template(self) -> bool:
        """Whether the key is a prefix, to be completed by a name."""
        return self.type.startswith("template[")

    @property
    def value_type(self) -> str:
        """Type of the value on the wire; a template's is that of each of its attributes."""
        stated = self.annotations.get("code_generation", {}).get("value_type")
        return str(stated or self.type.removeprefix("template[").removesuffix("]" * self.is_template))

    @property
    def replacement(self) -> str:
        """What to do instead of writing the attribute, if it is deprecated; else empty."""
        if self.deprecated is None:
            return ""
        return self.deprecated.get("note") or f"use `{self.deprecated['renamed_to']}`."

    @property
    def summary(self) -> str:
        """The brief, with what took the attribute's place if it is deprecated."""
        return self.brief if self.deprecated is None else f"{self.brief} Deprecated: {self.replacement}"

    @property
    def is_content(self) -> bool:
        """Whether it carries what people or models wrote, and so is subject to the content switch."""
        return bool(self.annotations.get("mttp", {}).get("content"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A mention of an attribute on a signal or in a group."""

    key: str
    """The attribute's key."""
    refinements: Mapping[str, Any] = field(default_factory=dict)
    """What the mention changes or adds, by property."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """References that several signals share."""

    id: str
    """Its name."""
    refs: tuple[Ref, ...]
    """The attributes in it."""
    file: str
    """The file that defines it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A span, a metric or an entity, as written."""

    section: str
    """`"spans"`, `"metrics"` or `"entities"`."""
    name: str
    """A span's or entity's type, a metric's name."""
    refs: tuple[Ref, ...]
    """The attributes that it mentions itself."""
    groups: tuple[str, ...]
    """The groups that it includes, by id."""
    facts: Mapping[str, Any]
    """Every other property, as written."""
    file: str
    """The file that defines it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Everything that is defined, in the order of the files."""

    manifest: Mapping[str, Any]
    """The registry's identity, version and dependencies."""
    attributes: tuple[Attribute, ...] = ()
    """Our attributes."""
    upstream: tuple[Attribute, ...] = ()
    """The attributes that are reused."""
    groups: tuple[Group, ...] = ()
    """Groups of references."""
    signals: tuple[Signal, ...] = ()
    """Spans, metrics and entities."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The registries that reused attributes are from, by the name they have here."""

    @property
    def schema_url(self) -> str:
        """The URL that names this registry at this version."""
        return str(self.manifest["schema_url"])

    @property
    def version(self) -> str:
        """The version, which is the last segment of the schema URL."""
        return self.schema_url.rsplit("/", 1)[1]

    def of(self, section: str) -> tuple[Signal, ...]:
        """The signals of one section."""
        return tuple(signal for signal in self.signals if signal.section == section)

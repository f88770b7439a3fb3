"""The published form of the registry: one self-contained document in the shape of `resolved/2.0`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tool.registry import Attribute, Registry
from tool.resolve import ResolvedAttribute, ResolvedSignal, order

__all__ = ["resolved"]


def resolved(registry: Registry, signals: tuple[ResolvedSignal, ...]) -> dict[str, Any]:
    """The catalog of attributes, each distinct form once, and the signals that point into it by index."""
    catalog = _Catalog(tuple(entry["schema_url"] for entry in registry.manifest.get("dependencies", ())))
    own = [catalog.add(_defined(attribute)) for attribute in sorted(registry.attributes, key=order)]
    sections: dict[str, list[dict[str, Any]]] = {"spans": [], "metrics": [], "entities": []}
    for signal in signals:
        sections[signal.definition.section].append(_signal(signal, catalog))
    return {
        "file_format": "resolved/2.0",
        "schema_url": registry.schema_url,
        "dependencies": list(catalog.dependencies),
        "attribute_catalog": catalog.entries,
        "registry": {"attributes": own, "attribute_groups": [], **sections, "events": []},
        # Weaver lists every signal as its own first refinement, for generators that read nothing else.
        "refinements": {
            **{name: [{"id": _name(entry), **entry} for entry in sections[name]] for name in sections},
            "events": [],
        },
    }


class _Catalog:
    """Distinct forms of attributes, in the order in which they were first met."""

    def __init__(self, dependencies: tuple[str, ...]) -> None:
        self.dependencies = dependencies
        self.entries: list[dict[str, Any]] = []

    def add(self, attribute: ResolvedAttribute) -> int:
        """The index of `attribute` in the catalog, which it joins if it is new."""
        entry = _entry(attribute)
        if attribute.definition.source is not None and self.dependencies:
            # The one dependency brings the core names along.
            entry["provenance"] = {"source": 0}
        if entry not in self.entries:
            self.entries.append(entry)
        return self.entries.index(entry)


def _defined(attribute: Attribute) -> ResolvedAttribute:
    return ResolvedAttribute(
        definition=attribute,
        brief=attribute.brief,
        note=attribute.note,
        examples=attribute.examples,
        annotations=attribute.annotations,
    )


def _entry(attribute: ResolvedAttribute) -> dict[str, Any]:
    definition = attribute.definition
    entry = {
        "key": definition.key,
        "type": _type(definition),
        "examples": list(attribute.examples),
        "brief": attribute.brief,
        "note": attribute.note,
        "stability": definition.stability,
        "deprecated": definition.deprecated,
        "annotations": dict(attribute.annotations),
    }
    return {name: value for name, value in entry.items() if value not in (None, "", [], {})}


def _type(attribute: Attribute) -> str | dict[str, Any]:
    if not attribute.members:
        return attribute.type
    return {
        "members": [
            {"id": member.id, "value": member.value, "brief": member.brief, "stability": member.stability}
            for member in attribute.members
        ]
    }


def _signal(signal: ResolvedSignal, catalog: _Catalog) -> dict[str, Any]:
    definition = signal.definition
    facts: Mapping[str, Any] = {name: value for name, value in definition.facts.items() if name != "identity"}
    entry = {"name" if definition.section == "metrics" else "type": definition.name, **facts}
    refs = {attribute.definition.key: _ref(attribute, catalog) for attribute in signal.attributes}
    if definition.section != "entities":
        return {**entry, "attributes": list(refs.values())}
    identity = definition.facts["identity"]
    return {
        **entry,
        "identity": [refs[key] for key in identity],
        "description": [ref for key, ref in refs.items() if key not in identity],
    }


def _ref(attribute: ResolvedAttribute, catalog: _Catalog) -> dict[str, Any]:
    ref: dict[str, Any] = {"base": catalog.add(attribute), "requirement_level": attribute.requirement_level}
    if attribute.sampling_relevant:
        ref["sampling_relevant"] = True
    return ref


def _name(entry: Mapping[str, Any]) -> str:
    """What names an entry: a metric's name, a span's or entity's type."""
    return str(entry["type"] if "type" in entry else entry["name"])

"""The registry as the package ships it: one JSON document with a line for each attribute, span and metric."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tool.registry import Attribute, Registry
from tool.resolve import ResolvedAttribute, ResolvedSignal, order

__all__ = ["render"]


def render(registry: Registry, signals: tuple[ResolvedSignal, ...]) -> str:
    """The document that `mttp.semconv.registry` reads; what is empty or false is left out."""
    catalog = sorted((*registry.attributes, *registry.upstream), key=order)
    sections: dict[str, list[ResolvedSignal]] = {"spans": [], "metrics": [], "entities": []}
    for signal in signals:
        sections[signal.definition.section].append(signal)
    resource = {entity.definition.name: _required(entity.attributes) for entity in sections["entities"]}
    return "\n".join(
        [
            "{",
            f'"attributes": {_lines(map(_attribute, catalog))},',
            f'"spans": {_lines(map(_span, sections["spans"]))},',
            f'"resource": {json.dumps(resource)},',
            f'"metrics": {_lines(map(_metric, sections["metrics"]))}',
            "}\n",
        ]
    )


def _lines(entries: Iterable[Mapping[str, Any]]) -> str:
    stated = ({name: value for name, value in entry.items() if value} for entry in entries)
    return "[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in stated) + "\n]"


def _attribute(attribute: Attribute) -> dict[str, Any]:
    return {
        "key": attribute.key,
        "type": attribute.value_type,
        "is_template": attribute.is_template,
        "is_content": attribute.is_content,
        "values": [member.value for member in attribute.members],
        "deprecated": attribute.deprecated and [attribute.deprecated["reason"], attribute.replacement],
    }


def _span(span: ResolvedSignal) -> dict[str, Any]:
    annotations = span.definition.facts.get("annotations", {})
    conditions = {attribute.definition.key: attribute.condition for attribute in span.attributes}
    return {
        "type": span.definition.name,
        "name": annotations.get("code_generation", {}).get("name"),
        "kind": span.definition.facts["kind"],
        "is_root": annotations.get("mttp", {}).get("root"),
        "required": _required(span.attributes),
        "conditional": {key: condition for key, condition in conditions.items() if condition},
        "attributes": list(conditions),
    }


def _metric(metric: ResolvedSignal) -> dict[str, Any]:
    facts = metric.definition.facts
    return {
        "name": metric.definition.name,
        "kind": facts["instrument"],
        "unit": facts["unit"],
        "number": facts["annotations"]["code_generation"]["metric_value_type"],
        "description": facts["brief"].strip(),
    }


def _required(attributes: Iterable[ResolvedAttribute]) -> list[str]:
    return [attribute.definition.key for attribute in attributes if attribute.requirement_level == "required"]

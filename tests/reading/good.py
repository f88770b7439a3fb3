"""A good span of each type, with everything on it that the published registry lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mttp.model.spans import Scope, SpanRecord
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a

RESOLVED = json.loads((Path(__file__).parents[2] / "semconv" / "resolved.json").read_text())
SPANS: dict[str, dict[str, Any]] = {span["type"]: span for span in RESOLVED["registry"]["spans"]}
CALLS = {"mttp.model_call": "chat", "mttp.tool_call": "execute_tool"}
KINDS = {"internal": 1, "client": 3}
SCOPE = Scope(
    name="mttp",
    version="0.1.0",
    schema_url=SCHEMA_URL,
    resource={"service.name": "test", "mttp.run.id": "run-1"},
)
OF_TYPE: dict[str, Any] = {
    "string": "text",
    "int": 3,
    "double": 0.5,
    "boolean": True,
    "bytes": b"\x00",
    "any": {"a": [1, "b"]},
    "string[]": ["text"],
    "int[]": [3],
    "double[]": [0.5],
}
OF_ANOTHER: dict[str, Any] = {
    "string": 3,
    "int": 3.0,
    "double": 3,
    "boolean": 1,
    "bytes": "text",
    "string[]": "text",
    "int[]": [3.0],
    "double[]": [0.5, 3],
}


def entries(type_: str) -> dict[str, dict[str, Any]]:
    """What the registry says of each attribute of such a span, by key."""
    refs = SPANS[type_]["attributes"]
    found = [RESOLVED["attribute_catalog"][ref["base"]] | ref for ref in refs]
    return {entry["key"]: entry for entry in found}


def is_template(entry: dict[str, Any]) -> bool:
    """Whether a name completes the key."""
    return isinstance(entry["type"], str) and entry["type"].startswith("template[")


def value_type(entry: dict[str, Any]) -> str:
    """The type of the attribute's values."""
    if isinstance(entry["type"], dict):
        return "string"
    stated = entry.get("annotations", {}).get("code_generation", {}).get("value_type")
    return stated or entry["type"].removeprefix("template[").removesuffix("]" * is_template(entry))


def span(type_: str) -> SpanRecord:
    """A span of the type, with every attribute."""
    facts = SPANS[type_]
    generated = facts["annotations"]["code_generation"]
    attributes = dict(_attribute(entry) for entry in entries(type_).values() if entry["key"] != a.FAULTS)
    for key in [key for key in attributes if key.endswith(".dtype")]:
        attributes |= {key: "int64", key.replace(".dtype", ".value"): [3]}
    attributes["mttp.span.type"] = "call" if type_ in CALLS else generated["name"]
    if type_ in CALLS:
        attributes["gen_ai.operation.name"] = CALLS[type_]
    return SpanRecord(
        trace_id="5" * 32,
        span_id="7" * 16,
        parent_id="" if facts["annotations"].get("mttp", {}).get("root") else "6" * 16,
        name=f"{generated.get('name') or CALLS[type_]} toy",
        kind=KINDS[facts["kind"]],
        start_time=1,
        end_time=2,
        attributes=attributes,
        scope=SCOPE,
    )


def _attribute(entry: dict[str, Any]) -> tuple[str, Any]:
    if isinstance(entry["type"], dict):
        return entry["key"], entry["type"]["members"][0]["value"]
    return entry["key"] + ".name" * is_template(entry), OF_TYPE[value_type(entry)]


class Spans:
    """Spans in memory, as a source."""

    def __init__(self, *records: SpanRecord) -> None:
        self._records = records

    def records(self) -> list[SpanRecord]:
        """The spans."""
        return list(self._records)

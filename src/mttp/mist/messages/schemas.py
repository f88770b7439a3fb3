"""JSON Schemas of payloads and of whole messages."""

from __future__ import annotations

from typing import Any

from mttp.mist.messages.envelope import Message
from mttp.mist.messages.payloads import PAYLOADS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(type: str | None = None) -> dict[str, Any]:
    """
    Return the JSON Schema of the payload of `type`, or of a whole message; raises KeyError for other types.

    It describes written messages; on reading, fields may be missing or their names in another case.
    """
    if type is not None:
        return {"$schema": _DIALECT, **PAYLOADS[type].model_json_schema(by_alias=True)}
    envelope = Message.model_json_schema()
    del envelope["properties"]["unknown"]
    payloads = {name: payload.model_json_schema(by_alias=True) for name, payload in PAYLOADS.items()}
    parts: dict[str, Any] = {}
    for payload in payloads.values():
        parts |= payload.pop("$defs", {})
    return {
        "$schema": _DIALECT,
        **envelope,
        "required": [name for name in envelope["properties"] if name != "checksum"],
        "allOf": [_where(name) for name in payloads],
        "$defs": {**payloads, **parts},
    }


def _where(type: str) -> dict[str, Any]:
    """Return the condition for the payload of one type."""
    return {
        "if": {"properties": {"type": {"const": type}}},
        "then": {"properties": {"payload": {"$ref": f"#/$defs/{type}"}}},
    }

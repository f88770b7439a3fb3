"""The shape of the files: each must fit the JSON Schema of its kind before it means anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import referencing

from tool.finding import Finding
from tool.load import MANIFEST, UPSTREAM, Document

__all__ = ["shape"]

FOLDER = Path(__file__).parent
MODEL_SCHEMA = "definition-2.schema.json"
SCHEMAS = {MANIFEST: "manifest.schema.json", UPSTREAM: "upstream.schema.json"}
NAMES = ("key", "type", "name", "id", "ref", "ref_group")
"""Properties that name a definition, in order of preference."""


def shape(documents: Iterable[Document]) -> Iterator[Finding]:
    """A file that does not fit its schema."""
    for document in documents:
        schema = SCHEMAS.get(document.file, MODEL_SCHEMA)
        for error in _validator(schema).iter_errors(document.content):
            yield Finding(
                file=document.file,
                where=_where(document.content, error.absolute_path),
                id="shape",
                message=f"{_message(error)}; see semconv/tool/{schema}",
            )


@cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    schemas = {path.name: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.schema.json")}
    resources = [referencing.Resource.from_contents(schema) for schema in schemas.values()]
    registry: Any = resources @ referencing.Registry()
    return jsonschema.Draft202012Validator(schemas[name], registry=registry)


def _where(content: Any, path: Iterable[str | int]) -> str:
    """`path` with names in place of positions: `attributes[mttp.run.id].brief`."""
    words = ""
    for part in path:
        content = content[part]
        words += f"[{_name(content, part)}]" if isinstance(part, int) else f".{part}"
    return words.removeprefix(".") or "the whole file"


def _name(content: Any, position: int) -> object:
    stated = content if isinstance(content, dict) else {}
    return next((stated[name] for name in NAMES if isinstance(stated.get(name), str)), position)


def _message(error: jsonschema.ValidationError) -> str:
    """What does not fit; the validator's own words change with its version."""
    found: Any = error.instance
    rule: Any = error.validator
    wanted: Any = error.validator_value
    if rule == "required":
        return f"it lacks {_listed(name for name in wanted if name not in found)}; add it"
    if rule == "additionalProperties":
        schema: Any = error.schema
        unknown = _listed(name for name in found if name not in schema["properties"])
        return f"{unknown} has no meaning here; remove it"
    if rule == "enum":
        return f"{found!r} is not among {_listed(wanted)}; use one of them"
    if rule is None:
        return f"{found!r} has no meaning here; remove it"
    return f"{_shortened(repr(found))} breaks the rule `{rule}: {wanted}`; correct it"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"

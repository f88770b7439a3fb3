"""Compares one span with the registry: its name, kind, parent and attributes."""

from __future__ import annotations

from collections.abc import Iterator

from mttp.codec import kinds
from mttp.model.spans import Link, SpanEvent, SpanRecord
from mttp.reading.checking import attributes
from mttp.reading.checking.findings import Issue
from mttp.semconv import attributes as a
from mttp.semconv import registry
from mttp.semconv import spans as names
from mttp.semconv.registry import SpanDefinition

__all__ = ["issues", "foreign_issues", "word"]

_BY_WORD = {span.name: span for span in registry.spans().values()}
_MODEL_CALL = _BY_WORD.pop("")
_OPERATIONS = registry.known_values(a.GEN_AI_OPERATION_NAME)
_KINDS = {number: kind for kind, number in registry.KINDS.items()}


def word(record: SpanRecord) -> str:
    """The first word of the span's name."""
    return record.name.partition(" ")[0][:80]


def foreign_issues(record: SpanRecord) -> Iterator[Issue]:
    """The issues of attributes under `mttp` on a span of another instrumentation."""
    for key, value in record.attributes.items():
        if key.startswith(attributes.NAMESPACE):
            yield from attributes.issues(key, value)


def issues(record: SpanRecord) -> Iterator[Issue]:
    """All issues of a span."""
    span = _definition(record)
    if span is None:
        message = f"Span '{word(record)}' does not exist in the registry."
        yield Issue("missing_span", "violation", message)
    else:
        yield from _shape(record, span)
        yield from _missing(record, span)
        yield from _unexpected(record, span)
    for key, value in record.attributes.items():
        yield from attributes.issues(key, value)
    parts: list[SpanEvent | Link] = [*record.events, *record.links]
    for part in parts:
        for key, value in part.attributes.items():
            yield from attributes.issues(key, value)


def _definition(record: SpanRecord) -> SpanDefinition | None:
    """The definition of the span; a call may have any operation, also one that no registry lists."""
    first, kind = word(record), kinds.kind(record)
    if kind == kinds.CALL:
        is_tool = record.attributes[a.GEN_AI_OPERATION_NAME] == names.EXECUTE_TOOL
        return _BY_WORD[names.EXECUTE_TOOL] if is_tool else _MODEL_CALL
    is_call = first in _OPERATIONS and first not in _BY_WORD
    return _MODEL_CALL if is_call else _BY_WORD.get(kind) or _BY_WORD.get(first)


def _shape(record: SpanRecord, span: SpanDefinition) -> Iterator[Issue]:
    number = record.kind or registry.KINDS["internal"]  # unspecified is internal
    kind = _KINDS.get(number, number)
    if kind != span.kind:
        message = f"Span has kind '{kind}'. Kind should be '{span.kind}'."
        yield Issue("kind_mismatch", "violation", message)
    if record.parent_id and span.is_root:
        yield Issue(
            "unexpected_parent", "violation", "Span has a parent. It should be the root of its trace."
        )
    if not record.parent_id and not span.is_root:
        yield Issue(
            "missing_parent", "violation", "Span has no parent. It should be a child of what it is part of."
        )


def _missing(record: SpanRecord, span: SpanDefinition) -> Iterator[Issue]:
    for key in sorted(span.required - record.attributes.keys()):
        message = f"Required attribute '{key}' is not present."
        yield Issue("required_attribute_not_present", "violation", message, key)
    for key, (other, values) in span.conditional.items():
        if key in record.attributes or other not in record.attributes:
            continue
        value = str(record.attributes[other])
        if (not values or value in values) and not _is_left_out(record, key):
            condition = f"'{other}' is '{value}'" if values else f"'{other}' is present"
            message = f"Conditionally required attribute '{key}' is not present, although {condition}."
            yield Issue("conditionally_required_attribute_not_present", "violation", message, key)


def _is_left_out(record: SpanRecord, key: str) -> bool:
    """Whether the span's omissions list the attribute."""
    omissions = record.attributes.get(a.OMISSIONS)
    return isinstance(omissions, list) and any(str(item).startswith(f"{key}:") for item in omissions)


def _unexpected(record: SpanRecord, span: SpanDefinition) -> Iterator[Issue]:
    for key, value in record.attributes.items():
        if key in span.attributes or not key.startswith(attributes.NAMESPACE):
            continue
        definition = registry.attribute(key)
        if definition is not None and definition.key not in span.attributes:
            message = f"Attribute '{key}' is not listed for such a span."
            yield Issue("unexpected_attribute", "improvement", message, key, value)

"""Compares one attribute with the registry: its name, type and value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mttp.reading.checking.findings import Issue
from mttp.semconv.registry import attribute, fits, type_of

__all__ = ["NAMESPACE", "issues"]

NAMESPACE = "mttp."
"""Prefix of the convention's own attributes."""

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")


def issues(key: str, value: Any) -> Iterator[Issue]:
    """The issues of an attribute that is under `mttp` or reused by the convention; none for others."""
    known = attribute(key)
    if known is None:
        if key.startswith(NAMESPACE):
            yield from _unknown(key, value)
        return
    if known.is_template and not _NAME.fullmatch(key.removeprefix(f"{known.key}.")):
        message = f"Attribute key '{key}' does not match name formatting rules."
        yield Issue("invalid_format", "violation", message, key, value)
    if known.deprecated is not None:
        reason, note = known.deprecated
        message = f"Attribute '{key}' is deprecated; reason = '{reason}', note = '{note}'."
        yield Issue("deprecated", "violation", message, key, value)
    if not fits(value, known.type):
        message = f"Attribute '{key}' has type '{type_of(value)}'. Type should be '{known.type}'."
        yield Issue("type_mismatch", "violation", message, key, value)
    elif known.values and value not in known.values:
        message = f"Enum attribute '{key}' has value '{value!s:.80}' which is not documented."
        yield Issue("undefined_enum_variant", "information", message, key, value)


def _unknown(key: str, value: Any) -> Iterator[Issue]:
    message = f"Attribute '{key}' does not exist in the registry."
    yield Issue("missing_attribute", "violation", message, key, value)
    parts = key.split(".")
    above = (".".join(parts[:count]) for count in range(2, len(parts)))
    for namespace in filter(attribute, above):
        message = f"Namespace '{namespace}' collides with existing attribute '{key}'"
        yield Issue("illegal_namespace", "violation", message, key, value)

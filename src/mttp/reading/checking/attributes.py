"""Compares one attribute with the registry: its name, type and value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from mttp.reading.checking.findings import Issue
from mttp.semconv.definitions import DEPRECATED, ENUMS
from mttp.semconv.registry import fits, type_of
from mttp.semconv.types import ATTRIBUTE_TYPES, TEMPLATE_TYPES

__all__ = ["NAMESPACE", "issues", "known"]

NAMESPACE = "mttp."
"""Prefix of the convention's own attributes."""

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")


class KnownAttribute(NamedTuple):
    """The registry's definition of an attribute."""

    key: str
    """Key in the registry; for an attribute of a template, the template's prefix."""
    type: str
    """Type of the value."""
    name: str
    """Rest of the key after a template's prefix; else empty."""


@lru_cache(maxsize=4096)
def known(key: str) -> KnownAttribute | None:
    """The definition of an attribute; None if the registry has none."""
    if key in ATTRIBUTE_TYPES:
        return KnownAttribute(key, ATTRIBUTE_TYPES[key], "")
    for prefix, type_ in TEMPLATE_TYPES.items():
        if key.startswith(f"{prefix}."):
            return KnownAttribute(prefix, type_, key.removeprefix(f"{prefix}."))
    return None


def issues(key: str, value: Any) -> Iterator[Issue]:
    """The issues of an attribute that is under `mttp` or reused by the convention; none for others."""
    found = known(key)
    if found is None:
        if key.startswith(NAMESPACE):
            yield from _unknown(key, value)
        return
    if found.key != key and not _NAME.fullmatch(found.name):
        message = f"Attribute key '{key}' does not match name formatting rules."
        yield Issue("invalid_format", "violation", message, key, value)
    if found.key in DEPRECATED:
        reason, note = DEPRECATED[found.key]
        message = f"Attribute '{key}' is deprecated; reason = '{reason}', note = '{note}'."
        yield Issue("deprecated", "violation", message, key, value)
    if not fits(value, found.type):
        message = f"Attribute '{key}' has type '{type_of(value)}'. Type should be '{found.type}'."
        yield Issue("type_mismatch", "violation", message, key, value)
    elif found.key in ENUMS and value not in ENUMS[found.key]:
        message = f"Enum attribute '{key}' has value '{value!s:.80}' which is not documented."
        yield Issue("undefined_enum_variant", "information", message, key, value)


def _unknown(key: str, value: Any) -> Iterator[Issue]:
    message = f"Attribute '{key}' does not exist in the registry."
    yield Issue("missing_attribute", "violation", message, key, value)
    parts = key.split(".")
    above = (".".join(parts[:count]) for count in range(2, len(parts)))
    for namespace in filter(ATTRIBUTE_TYPES.__contains__, above):
        message = f"Namespace '{namespace}' collides with existing attribute '{key}'"
        yield Issue("illegal_namespace", "violation", message, key, value)

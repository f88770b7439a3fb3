"""Template attributes: user-supplied names under a prefix of the convention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from mttp.codec.plain import Plain

__all__ = ["decode", "encode", "unknown"]


def encode(prefix: str, items: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the items with keys `{prefix}.{name}`; names must be normalized."""
    return {f"{prefix}.{name}": value for name, value in items.items()}


def decode(prefix: str, attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the items under `prefix` by name."""
    start = f"{prefix}."
    return {key[len(start) :]: value for key, value in attributes.items() if key.startswith(start)}


def unknown(
    attributes: Mapping[str, Plain], known: frozenset[str], prefixes: tuple[str, ...]
) -> dict[str, Plain]:
    """Return the attributes that are neither known nor under one of the prefixes."""
    starts = tuple(f"{prefix}." for prefix in prefixes)
    return {
        key: value
        for key, value in attributes.items()
        if key not in known and not key.startswith(starts) and key != a.SPAN_TYPE
    }

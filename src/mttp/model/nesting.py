"""The limit on nested lists and mappings in recorded values, for all formats."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

__all__ = ["MAX_DEPTH", "from_json", "is_deep", "is_deep_json", "shallow"]

MAX_DEPTH: Final = 30
"""
The maximum depth of nested lists and mappings in an attribute's value.

Protobuf parsers reject a request with 100 nested messages, which 32 nested mappings reach.
"""

_CONTAINERS = (list, tuple, dict, Mapping)
_SCALARS = frozenset({str, int, float, bool, type(None)})
_FEW = 1000


def is_deep(value: object, limit: int = MAX_DEPTH) -> bool:
    """Return whether lists and mappings are nested deeper than `limit`; without recursion."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(limit):
        level = [item for container in level for item in _containers(_items(container))]
        if len(level) > _FEW:  # a value that holds others many times has few that differ
            level = list({id(item): item for item in level}.values())
        if not level:
            return False
    return bool(level)


def is_deep_json(document: str, limit: int = MAX_DEPTH) -> bool:
    """Return whether a text is JSON nested deeper than `limit`, or deeper than Python can parse."""
    if document.count("[") + document.count("{") <= limit:
        return False
    with suppress(ValueError):  # not JSON
        try:
            return is_deep(json.loads(document), limit)
        except RecursionError:
            return True
    return False


def shallow(values: Any, around: int = 0) -> Any:
    """
    Return the value with everything deeper than one level beyond the limit removed; `is_deep` stays true.

    `around` is the number of lists and mappings that enclose the attributes' values.
    """
    limit = MAX_DEPTH + around
    return _cut(values, limit) if is_deep(values, limit + 1) else values


def _cut(value: Any, left: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _cut(item, left - 1) for key, item in value.items()} if left else {}
    if isinstance(value, (list, tuple)):
        return [_cut(item, left - 1) for item in value] if left else []
    return value


def _containers(items: Collection[Any]) -> Iterable[Any]:
    # Testing the set of types is cheaper than testing each number of a long list.
    kinds = {kind for kind in set(map(type, items)) - _SCALARS if issubclass(kind, _CONTAINERS)}
    return [item for item in items if type(item) in kinds] if kinds else ()


def _items(container: Any) -> Collection[Any]:
    return container if isinstance(container, (list, tuple)) else container.values()


def from_json(document: str) -> Any:
    """Return the value of a JSON text; the text itself if it is not JSON."""
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        return document

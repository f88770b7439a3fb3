"""How deep lists and mappings may be nested in a recorded value, in any format and in both directions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

__all__ = ["MAX_DEPTH", "is_deep", "is_deep_json", "shallow"]

MAX_DEPTH: Final = 30
"""
Lists and mappings within each other, at most, in the value of one attribute.

Protobuf parsers refuse a whole request that nests 100 messages, and 32 mappings within each other reach that.
"""

_CONTAINERS = (list, tuple, Mapping)


def is_deep(value: object, limit: int = MAX_DEPTH) -> bool:
    """Whether a value has more than `limit` lists and mappings within each other; it uses no recursion."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(limit):
        level = [item for one in level for item in _containers(_items(one))]
        if not level:
            return False
    return bool(level)


def is_deep_json(document: str, limit: int = MAX_DEPTH) -> bool:
    """Whether a text is JSON that is nested so deep, or deeper than Python can parse."""
    if document.count("[") + document.count("{") <= limit:
        return False
    with suppress(ValueError):  # no JSON
        try:
            return is_deep(json.loads(document), limit)
        except RecursionError:
            return True
    return False


def shallow(values: Any, around: int = 0) -> Any:
    """
    The value without what is nested deeper than a level beyond the limit, which `is_deep` still sees.

    `around` is how many lists and mappings are around the values of attributes.
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
    # Few different types are asked about, instead of each of a long list's numbers.
    if any(issubclass(kind, _CONTAINERS) for kind in set(map(type, items))):
        return [item for item in items if isinstance(item, _CONTAINERS)]
    return ()


def _items(container: Any) -> Collection[Any]:
    return container.values() if isinstance(container, Mapping) else container

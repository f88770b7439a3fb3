"""What a page shows: its blocks of a type, wherever they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def blocks(page: Any, type: str) -> list[dict[str, Any]]:
    """The blocks of a type on a page, in a section, in another block, or at a component."""
    return [block for block in _all(page) if block.get("type") == type]


def _all(page: Any) -> Iterator[dict[str, Any]]:
    for block in page if isinstance(page, Iterable) and not isinstance(page, dict) else [page]:
        if block is not None:
            yield block
            for inside in ("blocks", "components"):
                yield from _all(block.get(inside, ()))


def texts(page: Any, role: str) -> list[str]:
    """The texts of the messages of a role."""
    shown = [block["parts"] for block in blocks(page, "message") if block["role"] == role]
    return ["\n".join(part["text"] for part in parts) for parts in shown]

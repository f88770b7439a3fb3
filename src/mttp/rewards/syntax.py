"""A normal form of source code, without comments, layout and docstrings, equal on all Python versions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["is_text", "normal"]

_IGNORED: Final = {"ctx", "kind", "type_comment", "type_ignores"}
"""Node fields that follow from others, or that some Python versions lack."""


def normal(node: ast.AST) -> str:
    """
    Return the normal form of a syntax tree.

    It is built from trees and not tokens, since Python versions tokenize f-strings differently.
    """
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    fields = []
    for name in sorted(set(node._fields) - _IGNORED):
        value = getattr(node, name, None)
        if isinstance(value, list):
            value = _items(node, value)
        if value not in (None, []):  # fields that newer versions added are empty for older syntax
            fields.append(f"{name}={_part(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def is_text(statement: ast.AST) -> bool:
    """Return whether a statement is only a string, as a docstring is."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _part(value: object) -> str:
    if isinstance(value, ast.AST):
        return normal(value)
    if isinstance(value, list):
        return f"[{','.join(map(_part, value))}]"
    return ascii(value)  # which characters `repr` escapes depends on the Python version


def _constant(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"int:{value:x}"
    return f"{type(value).__name__}:{value!a}"


def _items(node: ast.AST, items: list[object]) -> list[object]:
    if isinstance(node, ast.JoinedStr):
        return list(_merged(items))
    return [item for item in items if not (isinstance(item, ast.AST) and is_text(item))]


def _merged(items: Iterable[object]) -> Iterator[object]:
    """Yield the parts of an f-string, with adjacent texts merged and empty ones removed."""
    text = ""
    for item in items:
        if isinstance(item, ast.Constant):
            text += str(item.value)
            continue
        if text:
            yield ast.Constant(text)
        text = ""
        yield item
    if text:
        yield ast.Constant(text)

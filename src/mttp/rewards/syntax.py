"""Source code in a normal form: without comments, layout and docstrings, on every Python alike."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["is_text", "normal"]

_UNSAID: Final = {"ctx", "kind", "type_comment", "type_ignores"}
"""Fields that follow from the others, or that some versions of Python lack."""


def normal(node: ast.AST) -> str:
    """
    The normal form of a syntax tree.

    Versions of Python split the same f-string into different tokens, so that trees are compared, not tokens.
    """
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    said = []
    for name in sorted(set(node._fields) - _UNSAID):
        value = getattr(node, name, None)
        if isinstance(value, list):
            value = _items(node, value)
        if value not in (None, []):  # what a version added to the language is empty in older code
            said.append(f"{name}={_part(value)}")
    return f"{type(node).__name__}({','.join(said)})"


def is_text(statement: ast.AST) -> bool:
    """Whether a statement is text alone, as a docstring is."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _part(value: object) -> str:
    if isinstance(value, ast.AST):
        return normal(value)
    if isinstance(value, list):
        return f"[{','.join(map(_part, value))}]"
    return ascii(value)  # what `repr` escapes hangs on the version's table of characters


def _constant(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"int:{value:x}"
    return f"{type(value).__name__}:{value!a}"


def _items(node: ast.AST, items: list[object]) -> list[object]:
    if isinstance(node, ast.JoinedStr):
        return list(_merged(items))
    return [item for item in items if not (isinstance(item, ast.AST) and is_text(item))]


def _merged(items: Iterable[object]) -> Iterator[object]:
    """The parts of an f-string, with texts that follow each other as one and none that is empty."""
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

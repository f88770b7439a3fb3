"""Lines of OTLP JSON that are nested deeper than a parser can go."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["parsed", "pruned"]

_T = TypeVar("_T")

_DEEPEST: Final = 256
"""Objects and arrays within each other: twice what a value takes that is as deep as one may be."""
_tokens = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}"]', re.DOTALL).finditer
_QUOTE, _OPENING, _CLOSING = b'"', b"[{", b"]}"


def parsed(parse: Callable[[bytes], _T], text: bytes) -> _T:
    """What `parse` makes of a text; where that is nested too deeply, of the text without what is deepest."""
    try:
        return parse(text)
    except RecursionError:
        return parse(pruned(text))


def pruned(text: bytes) -> bytes:
    """JSON in which objects and arrays that are nested deeper than 256 levels are empty."""
    parts: list[bytes] = []
    depth = kept = 0
    for found in _tokens(text):
        token = found[0]
        if token in _OPENING:
            depth += 1
            if depth == _DEEPEST:
                parts.append(text[kept : found.end()])
        elif token in _CLOSING:
            if depth == _DEEPEST:
                kept = found.start()
            depth -= 1
        elif token == _QUOTE:  # a text without an end: this is no JSON, and what follows is not known
            break
    return b"".join((*parts, text[kept:]))

"""Lines of OTLP JSON that are nested too deeply for a parser."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["parsed", "pruned"]

_T = TypeVar("_T")

_DEEPEST: Final = 256
"""Maximum depth of objects and arrays: twice that of the deepest valid value."""
_tokens = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}"]', re.DOTALL).finditer
_QUOTE, _OPENING, _CLOSING = b'"', b"[{", b"]}"


def parsed(parse: Callable[[bytes], _T], text: bytes) -> _T:
    """Parse a text; if it is nested too deeply, parse it with its deepest levels emptied."""
    try:
        return parse(text)
    except RecursionError:
        return parse(pruned(text))


def pruned(text: bytes) -> bytes:
    """Return JSON in which objects and arrays below 256 levels are empty."""
    parts: list[bytes] = []
    depth = start = 0
    for match in _tokens(text):
        token = match[0]
        if token in _OPENING:
            depth += 1
            if depth == _DEEPEST:
                parts.append(text[start : match.end()])
        elif token in _CLOSING:
            if depth == _DEEPEST:
                start = match.start()
            depth -= 1
        elif token == _QUOTE:  # an unterminated string: this is not JSON
            break
    return b"".join((*parts, text[start:]))

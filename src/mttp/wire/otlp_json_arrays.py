"""
Arrays of numbers in the text of OTLP JSON: cut out before the rest is parsed, and read on their own.

They are most of a line of tokens.
Where nobody wants them they are not looked at but for their end; where somebody does, each is nearly the plain
list that a parser of lists reads many times faster.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["PLACE", "cut", "numbers"]

PLACE = "\x7f"
"""The field that says which array stood here; a line that has this character is left whole."""

_START = b'{"values":[{"'
_INTEGER, _DOUBLE = b'{"intValue":"', b'{"doubleValue":'
_AROUND_INTEGER = len(b'{"intValue":""}')
_BETWEEN_DOUBLES = b'},{"doubleValue":'

_integers = msgspec.json.Decoder(list[int]).decode
_floats = msgspec.json.Decoder(list[float]).decode


def cut(line: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """
    The line with the number of an array in place of its items; and where the items of each begin and end.

    The first closing bracket is taken for the array's end.
    Where it is one of a text or of an array within, what is left is not JSON: the text stays open, or one
    bracket more is closed than was opened.
    """
    places: list[tuple[int, int]] = []
    if PLACE.encode() in line:
        return line, places
    parts, written, at = [], 0, 0
    while (at := line.find(_START, at)) >= 0:
        at += len(_START) - 2
        end = line.find(b"]", at) if line.startswith((_INTEGER, _DOUBLE), at) else -1
        if line.startswith(b"}]}", end - 1):
            parts += line[written:at], b'{"%b":%d}' % (PLACE.encode(), len(places))
            places.append((at, end))
            written = at = end
    if not places:
        return line, places
    return b"".join((*parts, line[written:])), places


def numbers(items: bytes) -> list[Any] | None:
    """What an array holds, by the text of its items; None unless that is numbers of one kind only."""
    try:
        return _of_integers(items) if items.startswith(_INTEGER) else _of_doubles(items)
    except msgspec.DecodeError:
        return None


def _of_integers(items: bytes) -> list[int] | None:
    bare = items.translate(None, b'{"intValue":}')
    found = _integers(b"[%b]" % bare)
    return found if len(items) == len(bare) + _AROUND_INTEGER * len(found) else None


def _of_doubles(items: bytes) -> list[float] | None:
    inner = items[len(_DOUBLE) : -1]
    bare = inner.replace(_BETWEEN_DOUBLES, b",")
    found = _floats(b"[%b]" % bare)
    return found if len(inner) == len(bare) + (len(_BETWEEN_DOUBLES) - 1) * (len(found) - 1) else None

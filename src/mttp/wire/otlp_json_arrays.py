"""
Arrays of numbers and bytes in the text of OTLP JSON: cut out before the rest is parsed, and read apart.

They are most of a line of tokens.
Where nobody wants them they are not looked at but for their end; where somebody does, each array is nearly
the plain list that a parser of lists reads many times faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

__all__ = ["PLACE", "Place", "cut", "numbers"]

PLACE = "\x7f"
"""Begins what says which array or text of bytes stood here; a line that has this character is left whole."""

Place: TypeAlias = tuple[int, int]
"""Where it begins and ends in the line."""

_ARRAY, _BYTES = b'{"values":[{"', b'"bytesValue":"'
_IN_ARRAY, _IN_TEXT = b'{"\x7f":%d}', b"\x7f%d"
_INTEGER, _DOUBLE = b'{"intValue":"', b'{"doubleValue":'
_AROUND_INTEGER = len(b'{"intValue":""}')
_BETWEEN_DOUBLES = b'},{"doubleValue":'

_integers = msgspec.json.Decoder(list[int]).decode
_floats = msgspec.json.Decoder(list[float]).decode


def cut(line: bytes) -> tuple[bytes, list[Place]]:
    """
    The line with a number in place of the items of each array, and of each text of bytes; and where they are.

    The first closing bracket, or quote, is taken for the end.
    Where it is one of a text or of an array within, what is left is not JSON: a text stays open, or one
    bracket more is closed than was opened.
    """
    places: list[Place] = []
    if PLACE.encode() in line:
        return line, places
    parts: list[bytes] = []
    written = 0
    for start, end, mark in _found(line):
        parts += line[written:start], mark % len(places)
        places.append((start, end))
        written = end
    if not places:
        return line, places
    return b"".join((*parts, line[written:])), places


def _found(line: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Where what is cut out begins and ends, in order, and what is put there."""
    at, array = 0, line.find(_ARRAY)
    while True:
        text = line.find(_BYTES, at, array) if array >= 0 else line.find(_BYTES, at)
        if text >= 0:
            start = text + len(_BYTES)
            end = line.find(b'"', start)
            if end > start:
                yield start, end, _IN_TEXT
        elif array >= 0:
            start = array + len(_ARRAY) - 2
            end = line.find(b"]", start) if line.startswith((_INTEGER, _DOUBLE), start) else start
            if line.startswith(b"}]}", end - 1):
                yield start, end, _IN_ARRAY
        else:
            return
        at = max(start, end)
        if 0 <= array < at:
            array = line.find(_ARRAY, at)


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

"""
Arrays of numbers and bytes in the text of OTLP JSON: cut out before the rest is parsed, and read apart.

They are most of a line of tokens.
Where nobody wants them they are not looked at but for their end; where somebody does, each array is nearly
the plain list that a parser of lists reads many times faster.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

__all__ = ["PLACE", "Place", "cut", "hollowed", "numbers"]

PLACE = "\x7f"
"""Begins what says which array or text of bytes stood here; a line that has this character is left whole."""

Place: TypeAlias = tuple[int, int]
"""Where it begins and ends in the line."""

_ARRAY, _BYTES = b'"arrayValue":{"values":[{"', b'"bytesValue":"'
_AFTER_ARRAY = b"}]}"
_IN_ARRAY, _IN_TEXT = b'{"\x7f":%d}', b"\x7f%d"
_OF_TEXT = ord('"')
_NOTHING = b"0"
"""No text of bytes, and no item of an array: whoever wants one of those after all finds out."""
_INTEGER, _DOUBLE = b'{"intValue":"', b'{"doubleValue":'
_AROUND_INTEGER = len(b'{"intValue":""}')
_NUMBER = (_INTEGER, _DOUBLE)
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
    places = _places(line)
    parts: list[bytes] = []
    written = 0
    for number, (start, end) in enumerate(places):
        mark = _IN_TEXT if line[start - 1] == _OF_TEXT else _IN_ARRAY
        parts += line[written:start], mark % number
        written = end
    short = b"".join((*parts, line[written:]))
    return (short, places) if places and short.count(PLACE.encode()) == len(places) else (line, [])


def hollowed(line: bytes) -> bytes:
    """Likewise for those who want none of them: with the same in place of each."""
    parts: list[bytes] = []
    written = 0
    for start, end in _places(line):
        parts.append(line[written:start])
        written = end
    return _NOTHING.join((*parts, line[written:])) if parts else line


def _places(line: bytes) -> list[Place]:
    """Where what is cut out begins and ends, in order."""
    places: list[Place] = []
    at, array = 0, line.find(_ARRAY)
    while True:
        text = line.find(_BYTES, at, array) if array >= 0 else line.find(_BYTES, at)
        if text >= 0:
            start = text + len(_BYTES)
            at = max(line.find(b'"', start), start)
            if at > start:
                places.append((start, at))
        elif array >= 0:
            start = at = array + len(_ARRAY) - 2
            end = line.find(b"]", start)
            if line[end - 1 : end + 2] == _AFTER_ARRAY and line.startswith(_NUMBER, start):
                places.append((start, end))
                at = end
            array = line.find(_ARRAY, at)
        else:
            return places


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

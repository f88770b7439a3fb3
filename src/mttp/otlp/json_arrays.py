"""
Cuts arrays and bytes out of OTLP JSON before the rest is parsed.

They are most of a line with tokens. Unneeded ones are only skipped; each needed array is almost a plain JSON
list, which a parser of lists reads many times faster.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from mttp.model.spans import SCORE_COLUMN
from mttp.semconv import attributes as a

__all__ = ["PLACE", "Place", "cut", "hollowed", "numbers"]

PLACE = "\x7f"
"""First character of a placeholder; lines that contain this character are not cut."""

Place: TypeAlias = tuple[int, int]
"""Start and end in the line."""

_ARRAY, _BYTES = b'"arrayValue":{"values":[{"', b'"bytesValue":"'
_AFTER_ARRAY = b"}]}"
_IN_ARRAY = b'{"\x7f":%d}'
_KEY = b'"key":"'
_COLUMN, _SCORE = f"{a.STEPS_COLUMN}.".encode(), SCORE_COLUMN.encode()
_ADVANTAGES = a.GROUP_ADVANTAGES.encode()
_NOTHING = b"0"
"""A placeholder that is neither base64 nor an array item, so that reading it by mistake fails."""
_INTEGER, _DOUBLE = b'{"intValue":"', b'{"doubleValue":'
_AROUND_INTEGER = len(b'{"intValue":""}')
_NUMBER = (_INTEGER, _DOUBLE)
_BETWEEN_DOUBLES = b'},{"doubleValue":'
_NEGATIVE_ZERO = b":-0}"
"""What reads as an integer without a sign."""

_integers = msgspec.json.Decoder(list[int]).decode
_floats = msgspec.json.Decoder(list[float]).decode


def cut(line: bytes) -> tuple[bytes, list[Place]]:
    """
    Return the line with numbered placeholders for the items of arrays, and their places.

    The first closing bracket is taken as the end. If it belongs to a string or to an inner array, the rest is
    not valid JSON: a string stays open, or a bracket is closed twice.
    """
    places = _places(line, bytes_too=False)
    parts: list[bytes] = []
    written = 0
    for number, (start, end) in enumerate(places):
        parts += line[written:start], _IN_ARRAY % number
        written = end
    if not places:
        return line, []
    short = b"".join((*parts, line[written:]))
    return (short, places) if short.count(PLACE.encode()) == len(places) else (line, [])


def hollowed(line: bytes) -> bytes:
    """
    Return the line with one constant placeholder for each.

    Columns of a line with scores and the advantages of groups stay.
    """
    parts: list[bytes] = []
    written = 0
    kept_keys = tuple(key for key, sign in ((_COLUMN, _SCORE), (_ADVANTAGES, _ADVANTAGES)) if sign in line)
    for start, end in _places(line, bytes_too=True):
        if not (kept_keys and line.startswith(kept_keys, line.rfind(_KEY, 0, start) + len(_KEY))):
            parts.append(line[written:start])
            written = end
    return _NOTHING.join((*parts, line[written:])) if parts else line


def _places(line: bytes, *, bytes_too: bool) -> list[Place]:
    """Return the places of arrays, and of bytes, in order."""
    places: list[Place] = []
    at, array = 0, line.find(_ARRAY)
    while True:
        text = line.find(_BYTES, at, array if array >= 0 else len(line)) if bytes_too else -1
        if text >= 0:
            start = text + len(_BYTES)
            at = max(line.find(b'"', start), start)
            if at > start:
                places.append((start, at))
        elif array >= 0:
            start = at = array + len(_ARRAY) - 2
            if line.startswith(_NUMBER, start):
                end = line.find(b"]", start)
                if line[end - 1 : end + 2] == _AFTER_ARRAY:
                    places.append((start, end))
                    at = end
            array = line.find(_ARRAY, at)
        else:
            return places


def numbers(items: bytes) -> list[Any] | None:
    """Parse the items of an array; None unless all are integers or all are doubles, none of them -0."""
    try:
        return _of_integers(items) if items.startswith(_INTEGER) else _of_doubles(items)
    except msgspec.DecodeError:
        return None


def _of_integers(items: bytes) -> list[int] | None:
    bare = items.translate(None, b'{"intValue":}')
    integers = _integers(b"[%b]" % bare)
    return integers if len(items) == len(bare) + _AROUND_INTEGER * len(integers) else None


def _of_doubles(items: bytes) -> list[float] | None:
    inner = items[len(_DOUBLE) : -1]
    bare = inner.replace(_BETWEEN_DOUBLES, b",")
    doubles = _floats(b"[%b]" % bare)
    if 0.0 in doubles and _NEGATIVE_ZERO in items:
        return None
    return doubles if len(inner) == len(bare) + (len(_BETWEEN_DOUBLES) - 1) * (len(doubles) - 1) else None

"""Bytes of recordings, changed at random: as disks, networks and careless programs change them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from mttp.semconv.registry import attributes

__all__ = ["change_bytes", "change_json", "mutated"]

Change: TypeAlias = Callable[[random.Random, bytes], bytes]

_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null')
_ODD_TEXTS: tuple[bytes, ...] = (
    *(b"null", b"true", b"{}", b"[]", b'""', b"0", b"-1", b"1e400", b"-0.0", b"NaN", b"Infinity"),
    *(b'"NaN"', b'"Infinity"', b'"-Infinity"', b'"\\ud800"', b'"\\u0000"', b'"\x80"', b'"lots"', b'"-1"'),
    *(b"9223372036854775807", b"9223372036854775808", b'"9223372036854775808"', b'"-9223372036854775809"'),
    *(b"1" * 400, b'"%b"' % (b"1" * 5000), b"1.5", b'"1.5"', b'"1e3"', b"[[[]]]", b'{"a":{"b":{}}}'),
    *(b"[" * 3000 + b"]" * 3000, b'{"a":' * 900 + b"1" + b"}" * 900, b'"%b"' % (b"x" * 20_000)),
    *(b'"AAAAAAAA8D8="', b'"////"', b'"="', b'{"stringValue":"x"}', b'{"intValue":"7"}', b'{"intValue":7.5}'),
    *(b'{"doubleValue":"NaN"}', b'{"arrayValue":{"values":[{"intValue":1},{"stringValue":"x"},{}]}}'),
    *(b'{"kvlistValue":{"values":[{"key":"a","value":{"boolValue":true}}]}}', b'{"bytesValue":"AAEC"}'),
    *(
        b"%d" % (1 << 63),
        b"1000000000000",
        b'"1000000000000"',
        b"1e15",
        b'"0000000000000000"',
        b"[1000000000]",
    ),
)
_NAMES = tuple(json.dumps(key).encode() for key in attributes())
_KINDS = (b"string", b"int", b"double", b"bool", b"array", b"kvlist", b"bytes")


def mutated(rng: random.Random, data: bytes, changes: Sequence[Change]) -> bytes:
    """The bytes after one change, now and then after several."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        data = rng.choice(changes)(rng, data) or data
    return data


def change_bytes(others: Sequence[bytes]) -> list[Change]:
    """Ways to change any bytes; `others` are files that a part may come from."""

    def splice(rng: random.Random, data: bytes) -> bytes:
        other = rng.choice(others)
        return data[: _place(rng, data)] + other[_place(rng, other) :]

    return [_flip, _flip, _flip_some, _replace, _delete, _insert, _truncate, _swap, _repeat, splice]


def change_json(others: Sequence[bytes]) -> list[Change]:
    """Ways to change lines of JSON; most leave them JSON."""
    return [
        _put_value,
        _put_value,
        _put_value,
        _put_key,
        _put_kind,
        _swap_values,
        _nest,
        *change_bytes(others),
    ]


def _place(rng: random.Random, data: bytes) -> int:
    return rng.randrange(len(data)) if data else 0


def _piece(rng: random.Random, data: bytes) -> tuple[int, int]:
    """Where a piece begins and ends: mostly a short one."""
    start = _place(rng, data)
    length = rng.choice((1, 2, rng.randrange(1, 65), rng.randrange(1, 65), rng.randrange(1, len(data) + 2)))
    return start, min(start + length, len(data))


def _flip(rng: random.Random, data: bytes) -> bytes:
    place = _place(rng, data)
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def _flip_some(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.randrange(2, 20)):
        data = _flip(rng, data)
    return data


def _replace(rng: random.Random, data: bytes) -> bytes:
    start, end = _piece(rng, data)
    fill = rng.choice((bytes(end - start), b"\xff" * (end - start), rng.randbytes(end - start)))
    return data[:start] + fill + data[end:]


def _delete(rng: random.Random, data: bytes) -> bytes:
    start, end = _piece(rng, data)
    return data[:start] + data[end:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    place = _place(rng, data)
    more = rng.choice((rng.randbytes(rng.randrange(1, 65)), b"\n", b"\0" * 16, rng.choice(_ODD_TEXTS)))
    return data[:place] + more + data[place:]


def _truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: _place(rng, data)]


def _swap(rng: random.Random, data: bytes) -> bytes:
    first, second, third, fourth = sorted(_place(rng, data) for _ in range(4))
    return data[:first] + data[third:fourth] + data[second:third] + data[first:second] + data[fourth:]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    start, end = _piece(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 50 if end - start < 100 else 1)) + data[end:]


def _values(data: bytes) -> list[re.Match[bytes]]:
    return list(_SCALAR.finditer(data))


def _put(data: bytes, at: re.Match[bytes], text: bytes) -> bytes:
    return data[: at.start()] + text + data[at.end() :]


def _put_value(rng: random.Random, data: bytes) -> bytes:
    """An odd value in the place of a scalar, or of a member's value."""
    found = _values(data)
    return _put(data, rng.choice(found), rng.choice(_ODD_TEXTS)) if found else data


def _put_key(rng: random.Random, data: bytes) -> bytes:
    """The name of one attribute in the place of another's."""
    found = [match for match in _values(data) if match[0] in _NAMES]
    return _put(data, rng.choice(found), rng.choice(_NAMES)) if found else data


def _put_kind(rng: random.Random, data: bytes) -> bytes:
    """One type of OTLP in the place of another."""
    found = list(re.finditer(rb'"(string|int|double|bool|array|kvlist|bytes)Value"', data))
    return _put(data, rng.choice(found), b'"%bValue"' % rng.choice(_KINDS)) if found else data


def _swap_values(rng: random.Random, data: bytes) -> bytes:
    """One scalar in the place of another."""
    found = _values(data)
    return _put(data, rng.choice(found), rng.choice(found)[0]) if found else data


def _nest(rng: random.Random, data: bytes) -> bytes:
    """An attribute's value within so many lists or maps."""
    found = list(re.finditer(rb'\{"(?:string|int|double|bool)Value":(?:"[^"\\]*"|[^{}"]*)\}', data))
    if not found:
        return data
    at, depth = rng.choice(found), rng.choice((1, 5, 30, 100, 300, 1000, 3000))
    before, after = rng.choice(_NESTS)
    return _put(data, at, before * depth + at[0] + after * depth)


_NESTS = (
    (b'{"arrayValue":{"values":[', b"]}}"),
    (b'{"kvlistValue":{"values":[{"key":"k","value":', b"}]}}"),
)

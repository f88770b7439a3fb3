"""
Encodes protobuf primitives: varints, fields, and arrays of numbers as OTLP's repeated values.

An array is encoded at once, as the rows of a table of bytes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mttp.otlp.numbers import Array

__all__ = ["field", "items", "varint"]

_ROWS = 1 << 16
"""Number of rows per table, so that temporary arrays take a few megabytes."""
_KNOWN = 1 << 18
"""Integers below this, such as token ids, are looked up in a table of 2 MiB."""
_DIGITS = 10
_SHIFTS = np.arange(0, 7 * _DIGITS, 7, dtype=np.uint64)
_SECOND_DIGIT_ON = np.array([1 << shift for shift in range(7, 64, 7)], np.uint64)
_ZERO = b"\x0a\x02\x18\x00"
_DOUBLE_ITEM = np.dtype([("before", "S3"), ("value", "<f8")])
_BOOLEAN_ITEM = np.dtype([("before", "S3"), ("value", "u1")])


@lru_cache(maxsize=1 << 10)
def varint(value: int) -> bytes:
    """Encode an unsigned integer of at most 64 bits as a varint."""
    if not 0 <= value < 1 << 64:
        raise OverflowError(f"{value} is not an unsigned 64-bit integer")
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def field(tag: bytes, content: bytes) -> bytes:
    """Encode a message, text or bytes with a tag."""
    return b"".join((tag, varint(len(content)), content))


def items(array: Array) -> bytes:
    """Encode the items of a flat array of floats, booleans or signed 64-bit integers."""
    write = {"f": _doubles, "b": _booleans}.get(array.dtype.kind, _integers)
    return b"".join([write(array[start : start + _ROWS]) for start in range(0, len(array), _ROWS)])


def _doubles(array: Array) -> bytes:
    rows = np.empty(len(array), _DOUBLE_ITEM)
    rows["before"], rows["value"] = b"\x0a\x09\x21", array
    return rows.tobytes()


def _booleans(array: Array) -> bytes:
    rows = np.empty(len(array), _BOOLEAN_ITEM)
    rows["before"], rows["value"] = b"\x0a\x02\x10", array
    return rows.tobytes()


def _integers(array: Array) -> bytes:
    numbers = array.astype(np.int64, copy=False)
    unsigned = numbers.view(np.uint64)
    if np.maximum.reduce(unsigned) >= _KNOWN:
        table, sizes = _table(unsigned)
        return table[np.arange(table.shape[1]) < sizes[:, None]].tobytes()
    encoded = _known().take(numbers).tolist()
    if np.count_nonzero(numbers) < len(numbers):
        for place in np.flatnonzero(numbers == 0):
            encoded[place] = _ZERO
    return b"".join(encoded)


def _table(numbers: Array) -> tuple[Array, Array]:
    """Return one item per row, padded with zeros, and the length of each."""
    digits = int(numbers.max(initial=0)).bit_length() // 7 + 1
    more = numbers[:, None] >= _SECOND_DIGIT_ON[: digits - 1]
    sizes = more.sum(axis=1) + 4
    table = np.zeros((len(numbers), 3 + digits), np.uint8)
    table[:, 0], table[:, 1], table[:, 2] = 0x0A, sizes - 2, 0x18
    table[:, 3:] = (numbers[:, None] >> _SHIFTS[:digits]).astype(np.uint8) & 0x7F
    table[:, 3:-1] |= more.astype(np.uint8) << 7
    return table, sizes


@lru_cache(maxsize=1)
def _known() -> Array:
    """Return the items of integers below `_KNOWN`; numpy strips trailing zeros."""
    table, _ = _table(np.arange(_KNOWN, dtype=np.uint64))
    return table.view(f"S{table.shape[1]}").ravel()

"""Removal of values that a receiver does not support: long text, bytes, NaN, nested and huge values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.codec import tokens
from mttp.codec.left_out import UNSUPPORTED
from mttp.codec.plain import Plain, to_json
from mttp.semconv import attributes as a

__all__ = [
    "cut_texts",
    "drop_binary",
    "drop_huge_integers",
    "drop_non_finite",
    "has_binary",
    "has_non_finite",
    "is_nested",
    "wire_bytes",
    "write_nested",
]

_ARRAY_NAMES = {key: name for name, key in tokens.ARRAY_KEYS.items()}
_ELEMENT_BYTES = 11
"""The size of a double in an OTLP array: nine bytes, and two for each of two length prefixes."""
_MANY_DIGITS = re.compile(r"\d{19}")
_INT64 = range(-(2**63), 2**63)
_FRAME_BYTES = 8
"""The estimated overhead of a key and a value."""


def has_binary(value: Plain) -> bool:
    """Return whether a value contains bytes."""
    if isinstance(value, (list, tuple)):
        return any(map(has_binary, value))
    return any(map(has_binary, value.values())) if isinstance(value, dict) else isinstance(value, bytes)


def has_non_finite(value: Plain) -> bool:
    """Return whether a value contains NaN or an infinity."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and not bool(np.isfinite(value).all())
    if isinstance(value, dict):
        return any(map(has_non_finite, value.values()))
    return isinstance(value, (list, tuple)) and any(map(has_non_finite, value))


def is_nested(value: Plain) -> bool:
    """Return whether a value is a map, or a list of anything but scalars of one type."""
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        return len(kinds) > 1 or bool(kinds & {list, tuple, dict, type(None)})
    return isinstance(value, dict)


def drop_binary(kept: dict[str, Plain], missing: dict[str, str]) -> None:
    """Remove values that contain bytes, in place; `missing` gets the reason of each."""
    for key in [key for key, value in kept.items() if has_binary(value)]:
        missing[key] = f"bytes are {UNSUPPORTED}"
        del kept[key]


def drop_non_finite(kept: dict[str, Plain], missing: dict[str, str]) -> None:
    """Remove values that contain NaN or an infinity, in place; from a token block only that array."""
    for key in [key for key, value in kept.items() if has_non_finite(value)]:
        value = kept.pop(key)
        what = f"{value} is" if isinstance(value, float) else "NaN and infinities are"
        missing[key] = f"{what} {UNSUPPORTED}"
        if key in _ARRAY_NAMES and a.TOKEN_LAYOUT in kept:
            rows = json.loads(kept[a.TOKEN_LAYOUT])
            left = [row for row in rows if row[0] != _ARRAY_NAMES[key]]
            kept[a.TOKEN_LAYOUT] = json.dumps(left, separators=(",", ":"))


def write_nested(kept: dict[str, Plain], missing: dict[str, str]) -> None:
    """Encode maps, and lists of several types, as JSON text, in place."""
    for key, value in kept.items():
        if is_nested(value):
            missing[key] = "written as JSON"
            kept[key] = to_json(value, [])


def drop_huge_integers(kept: dict[str, Plain], missing: dict[str, str]) -> None:
    """Remove JSON texts that contain an integer of more than 64 bits, in place."""
    for key, value in list(kept.items()):
        if isinstance(value, str) and _has_huge_integer(value):
            missing[key] = f"JSON integers of more than 64 bits are {UNSUPPORTED}"
            del kept[key]


def _has_huge_integer(text: str) -> bool:
    if _MANY_DIGITS.search(text) is None:
        return False
    try:
        return _is_huge(json.loads(text))
    except ValueError:  # not JSON, or an integer has more digits than Python parses
        return False


def _is_huge(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_huge, value.values()))
    return (
        any(map(_is_huge, value)) if isinstance(value, list) else type(value) is int and value not in _INT64
    )


def cut_texts(kept: dict[str, Plain], missing: dict[str, str], max_bytes: int) -> None:
    """Cut text longer than `max_bytes`, in place; JSON is removed, since a part of it can't be parsed."""
    for key, value in list(kept.items()):
        if not isinstance(value, str) or 4 * len(value) <= max_bytes:
            continue
        encoded = value.encode()
        if len(encoded) <= max_bytes:
            continue
        if value[0] not in "[{":
            kept[key] = encoded[:max_bytes].decode(errors="ignore")
            missing[key] = f"cut to {max_bytes} of {len(encoded)} bytes"
        elif key == a.TOKEN_LAYOUT:
            tokens.leave_out(kept, f"{key} takes {len(encoded)} bytes, the limit is {max_bytes}")
        else:
            missing[key] = f"{len(encoded)} bytes, the limit is {max_bytes}"
            del kept[key]


def wire_bytes(value: Any) -> int:
    """Return an estimate of a value's size in OTLP protobuf in bytes, rather high than low."""
    if isinstance(value, np.ndarray):
        return _FRAME_BYTES + _ELEMENT_BYTES * int(value.size)
    if isinstance(value, str):
        return _FRAME_BYTES + (len(value) if value.isascii() else len(value.encode()))
    if isinstance(value, bytes):
        return _FRAME_BYTES + len(value)
    if isinstance(value, Mapping):
        return sum(wire_bytes(key) + wire_bytes(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return _FRAME_BYTES + sum(map(wire_bytes, value))
    return _FRAME_BYTES + _ELEMENT_BYTES

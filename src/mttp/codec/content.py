"""Observations, actions and other content: one value, with dtype and shape where it is an array."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from mttp.codec.plain import Faults, Plain, plain
from mttp.semconv import attributes as a

__all__ = [
    "ACTION",
    "BY_VALUE",
    "FINAL_OBSERVATION",
    "NUMBER_BYTES",
    "OBSERVATION",
    "Keys",
    "decode",
    "encode",
    "pack",
    "size",
    "unpack",
]

Keys = tuple[str, str, str]
"""The three attribute names of one piece of content: value, dtype and shape."""

OBSERVATION: Keys = (a.OBSERVATION_VALUE, a.OBSERVATION_DTYPE, a.OBSERVATION_SHAPE)
ACTION: Keys = (a.ACTION_VALUE, a.ACTION_DTYPE, a.ACTION_SHAPE)
FINAL_OBSERVATION: Keys = (
    a.EPISODE_FINAL_OBSERVATION_VALUE,
    a.EPISODE_FINAL_OBSERVATION_DTYPE,
    a.EPISODE_FINAL_OBSERVATION_SHAPE,
)
BY_VALUE = {keys[0]: keys for keys in (OBSERVATION, ACTION, FINAL_OBSERVATION)}
"""All three names of a piece of content, by that of its value."""
NUMBER_BYTES = 8
"""What any number takes, roughly."""


def encode(
    keys: Keys, value: object, faults: Faults, omissions: list[str], *, max_bytes: int | None = None
) -> dict[str, Plain]:
    """Attributes of `value`; beyond `max_bytes` only dtype and shape are kept, and `omissions` says so."""
    if isinstance(value, np.ndarray) and max_bytes is not None and value.nbytes > max_bytes:
        omissions.append(f"{keys[0]}: {value.nbytes} bytes, the limit is {max_bytes}")
        return {keys[1]: value.dtype.name, keys[2]: list(value.shape)}
    content = plain(value, faults)
    if content is None:
        return {}
    attributes: dict[str, Plain] = {keys[0]: content}
    if isinstance(content, np.ndarray):
        attributes[keys[1]] = _name(content.dtype)
        attributes[keys[2]] = list(content.shape)
    if max_bytes is not None and (taken := size(content)) > max_bytes:
        del attributes[keys[0]]
        omissions.append(f"{keys[0]}: {taken} bytes, the limit is {max_bytes}")
    return attributes


@lru_cache(maxsize=64)
def _name(dtype: Any) -> str:
    return str(dtype.name)  # which numpy makes anew each time


def size(content: Plain) -> int:
    """Bytes that plain data takes, roughly: text and arrays exactly, any number as eight."""
    if isinstance(content, np.ndarray):
        return content.nbytes
    if isinstance(content, str):
        return len(content.encode("utf-8", "surrogatepass"))
    if isinstance(content, bytes):
        return len(content)
    if isinstance(content, dict):
        return sum(size(key) + size(item) for key, item in content.items())
    return sum(map(size, content)) if isinstance(content, (list, tuple)) else NUMBER_BYTES


def pack(attributes: dict[str, Plain]) -> None:
    """Replace arrays by their little-endian bytes, in place."""
    for value_key in BY_VALUE:
        value = attributes.get(value_key)
        if isinstance(value, np.ndarray):
            attributes[value_key] = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()


def unpack(attributes: dict[str, Plain]) -> None:
    """Replace what was an array, whether its bytes or its elements are there, by that array, in place."""
    for keys in BY_VALUE.values():
        if keys[0] in attributes and isinstance(attributes.get(keys[1]), str):
            attributes[keys[0]] = decode(keys, attributes)


def decode(keys: Keys, attributes: Mapping[str, Plain]) -> Any:
    """The value that `encode` was given, as plain data; None where it is absent."""
    value = attributes.get(keys[0])
    dtype = attributes.get(keys[1])
    if value is None or not isinstance(dtype, str):
        return value
    shape = tuple(attributes.get(keys[2]) or ())
    if isinstance(value, bytes):
        value = np.frombuffer(value, np.dtype(dtype).newbyteorder("<"))
    array = np.array(value, dtype=np.dtype(dtype))
    return array.reshape(shape) if math.prod(shape) == array.size else array

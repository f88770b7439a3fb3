"""Observations, actions and final observations as attributes: the value, and dtype and shape of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mttp.codec.plain import Faults, Plain, little_endian, plain
from mttp.codec.structures import Flattened, flatten, rebuild
from mttp.semconv import attributes as a

__all__ = [
    "ACTION",
    "BY_VALUE",
    "FINAL_OBSERVATION",
    "NUMBER_BYTES",
    "OBSERVATION",
    "STRUCTURES",
    "ContentKeys",
    "decode",
    "encode",
    "pack",
    "settled",
    "size",
    "unpack",
]


class ContentKeys(NamedTuple):
    """The attribute names of one piece of content."""

    value: str
    dtype: str
    shape: str
    structure: str


OBSERVATION = ContentKeys(
    a.OBSERVATION_VALUE, a.OBSERVATION_DTYPE, a.OBSERVATION_SHAPE, a.OBSERVATION_STRUCTURE
)
ACTION = ContentKeys(a.ACTION_VALUE, a.ACTION_DTYPE, a.ACTION_SHAPE, a.ACTION_STRUCTURE)
FINAL_OBSERVATION = ContentKeys(
    a.EPISODE_FINAL_OBSERVATION_VALUE,
    a.EPISODE_FINAL_OBSERVATION_DTYPE,
    a.EPISODE_FINAL_OBSERVATION_SHAPE,
    a.EPISODE_FINAL_OBSERVATION_STRUCTURE,
)
BY_VALUE = {keys.value: keys for keys in (OBSERVATION, ACTION, FINAL_OBSERVATION)}
"""The attribute names of each piece of content, by the name of its value."""
STRUCTURES = frozenset(keys.structure for keys in BY_VALUE.values())
"""Attributes that are meaningless without their value, and are withheld with it."""
NUMBER_BYTES = 8
"""The estimated size of a number."""


def encode(
    keys: ContentKeys, value: Any, faults: Faults, omissions: list[str], *, max_bytes: int | None = None
) -> dict[str, Plain]:
    """Return the attributes of a value; beyond `max_bytes` only dtype and shape, and an omission."""
    flat = value if type(value) is Flattened else flatten(value, faults, max_bytes=max_bytes)
    if flat is not None:
        value = flat.numbers
    if max_bytes is not None and issubclass(type(value), np.ndarray) and value.nbytes > max_bytes:
        omissions.append(f"{keys.value}: {value.nbytes} bytes, the limit is {max_bytes}")
        return {keys.dtype: value.dtype.name, keys.shape: list(value.shape)}
    content = value if flat is not None else plain(value, faults)
    if content is None:
        return {}
    attributes: dict[str, Plain] = {keys.value: content}
    if isinstance(content, np.ndarray):
        attributes[keys.dtype] = _name(content.dtype)
        attributes[keys.shape] = list(content.shape)
    if max_bytes is not None and (nbytes := size(content)) > max_bytes:
        del attributes[keys.value]
        omissions.append(f"{keys.value}: {nbytes} bytes, the limit is {max_bytes}")
    elif flat is not None:
        attributes[keys.structure] = flat.structure
    return attributes


def settled(value: object, faults: Faults) -> Plain:
    """Return a value as readers decode it after recording."""
    flat = flatten(value, faults)
    return plain(value, faults) if flat is None else rebuild(flat.numbers, flat.structure)


@lru_cache(maxsize=64)
def _name(dtype: Any) -> str:
    return str(dtype.name)  # numpy creates the name at each access


def size(content: Plain) -> int:
    """Return the estimated size of plain data in bytes: text and arrays exactly, a number as eight."""
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
    """Replace arrays with their little-endian bytes, in place."""
    for value_key in BY_VALUE:
        value = attributes.get(value_key)
        if isinstance(value, np.ndarray):
            attributes[value_key] = little_endian(value)


def unpack(attributes: dict[str, Plain]) -> None:
    """Replace the bytes or elements of arrays with numpy arrays, in place."""
    for keys in BY_VALUE.values():
        if keys.value in attributes and isinstance(attributes.get(keys.dtype), str):
            attributes[keys.value] = _array(keys, attributes)


def decode(keys: ContentKeys, attributes: Mapping[str, Plain]) -> Any:
    """Return the value that `encode` encoded, as plain data; None if it is absent."""
    value = attributes.get(keys.value)
    if value is None or not isinstance(attributes.get(keys.dtype), str):
        return value
    array = _array(keys, attributes)
    structure = attributes.get(keys.structure)
    return rebuild(array, structure) if isinstance(structure, str) else array


def _array(keys: ContentKeys, attributes: Mapping[str, Plain]) -> Any:
    """Return the array from its bytes or its elements."""
    value, dtype = attributes[keys.value], attributes[keys.dtype]
    shape = tuple(attributes.get(keys.shape) or ())
    if isinstance(value, bytes):
        value = np.frombuffer(value, np.dtype(dtype).newbyteorder("<"))
    array = np.array(value, dtype=np.dtype(dtype))
    return array.reshape(shape) if math.prod(shape) == array.size else array

"""
Token blocks: their arrays as attributes of their own (array), or back to back in one (packed).

The layout, a JSON list of [name, dtype, length, alignment], goes with both forms.
While an episode runs, a block is only kept as it was handed over: `snapshot` takes it, `unfold` encodes it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from mttp.codec.plain import Faults, Plain, text
from mttp.episodes import Tokens
from mttp.semconv import attributes as a

__all__ = ["ARRAY_KEYS", "KEYS", "Block", "decode", "encode", "leave_out", "make", "pack", "snapshot", "unfold"]

ARRAY_KEYS = {
    "ids": a.TOKEN_IDS,
    "prompt_ids": a.TOKEN_PROMPT_IDS,
    "logprobs": a.TOKEN_LOGPROBS,
    "trainer_logprobs": a.TOKEN_TRAINER_LOGPROBS,
    "ref_logprobs": a.TOKEN_REF_LOGPROBS,
    "masks": a.TOKEN_MASKS,
    "advantages": a.TOKEN_ADVANTAGES,
    "rewards": a.TOKEN_REWARDS,
    "entropies": a.TOKEN_ENTROPIES,
    "values": a.TOKEN_VALUES,
    "loss_weights": a.TOKEN_LOSS_WEIGHTS,
}
"""The attribute of each array in the array form."""
_FACT_KEYS = {
    "count": a.TOKEN_COUNT,
    "prompt_count": a.TOKEN_PROMPT_COUNT,
    "tokenizer": a.TOKEN_TOKENIZER,
    "template_sha256": a.TOKEN_TEMPLATE_SHA256,
    "logprob_basis": a.TOKEN_LOGPROB_BASIS,
    "policy_version": a.TOKEN_POLICY_VERSION,
    "omitted_reason": a.TOKEN_OMITTED_REASON,
}
_FIELDS = frozenset(item.name for item in fields(Tokens))
_LENGTHS = {"ids": "count", "prompt_ids": "prompt_count"}
KEYS = frozenset(
    {*ARRAY_KEYS.values(), *_FACT_KEYS.values(), a.TOKEN_PARENT, a.TOKEN_LAYOUT, a.TOKEN_DATA}
    | {a.TOKEN_ENCODING, a.TOKEN_MEAN_LOGPROB, a.TOKEN_URI, a.TOKEN_SHA256}
)
"""Every attribute of a token block."""


@dataclass(slots=True)
class Block:
    """A token block as it was handed over, and nothing wrong with it."""

    count: int
    """Number of completion tokens."""
    arrays: list[tuple[str, str, bytes, int]]
    """Name, dtype, bytes and length of each array; all but the prompt's ids cover the completion."""
    texts: dict[str, str]
    """What is stated besides, in ASCII."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(len(data) for _, _, data, _ in self.arrays)


_TEXTS = frozenset({"tokenizer", "template_sha256", "logprob_basis", "policy_version"})
_INTEGERS = {np.dtype(kind): kind for kind in ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8")}
_FLOATS = {np.dtype(kind): kind for kind in ("float32", "float64", "float16")}
_DTYPES = {name: _INTEGERS if name in Tokens.INTEGER_ARRAYS else _FLOATS for name in Tokens.ARRAYS}
_NUMBER = (float, int)
_structs = lru_cache(maxsize=1 << 10)(struct.Struct)


def snapshot(ids: Any, given: Mapping[str, Any]) -> Block | None:
    """
    A copy of a block of the usual kind, at the least cost to the caller; None for what must be looked at.

    The usual kind is lists and numpy arrays of numbers, as long as the completion has tokens.
    """
    found = _copied(ids, _INTEGERS)
    if found is None:
        return None
    dtype, data, count = found
    arrays, texts = [("ids", dtype, data, count)], {}
    for name, value in given.items():
        if value is None:
            continue
        if name in _DTYPES:
            found = _copied(value, _DTYPES[name])
            if found is None or (found[2] != count and name != "prompt_ids"):
                return None
            arrays.append((name, *found))
        elif name in _TEXTS and type(value) is str and value.isascii():
            texts[name] = value
        else:
            return None
    return Block(count, arrays, texts)


def _copied(value: Any, dtypes: Mapping[Any, str]) -> tuple[str, bytes, int] | None:
    """Dtype, bytes and length; None for what is no one-dimensional array or list of such numbers."""
    kind = type(value)
    if kind is np.ndarray:
        dtype = dtypes.get(value.dtype)
        return None if dtype is None or value.ndim != 1 else (dtype, value.tobytes(), value.size)
    if kind is not list and kind is not tuple:
        return None
    length = len(value)
    try:
        if dtypes is _INTEGERS:
            return "int64", _structs(f"{length}q").pack(*value), length
        if not length or type(value[0]) in _NUMBER:
            return "float64", _structs(f"{length}d").pack(*value), length
    except (struct.error, OverflowError):
        pass
    return None


def unfold(block: Block) -> dict[str, Plain]:
    """A block's attributes in the array form, as `encode` gives them."""
    arrays = {name: _expanded(name, dtype, data) for name, dtype, data, _ in _in_order(block.arrays)}
    attributes: dict[str, Plain] = {a.TOKEN_COUNT: block.count}
    if "prompt_ids" in arrays:
        attributes[a.TOKEN_PROMPT_COUNT] = len(arrays["prompt_ids"])
    for name, value in block.texts.items():
        attributes[_FACT_KEYS[name]] = value
    if "logprobs" in arrays and block.count:
        attributes[a.TOKEN_MEAN_LOGPROB] = _mean(arrays["logprobs"])
    attributes[a.TOKEN_ENCODING] = "array"
    attributes[a.TOKEN_LAYOUT] = _known_layout(
        tuple((name, array.dtype.name, len(array)) for name, array in arrays.items())
    )
    for name, array in arrays.items():
        attributes[ARRAY_KEYS[name]] = array
    return attributes


_ORDER = {name: place for place, name in enumerate(Tokens.ARRAYS)}


def _in_order(arrays: Sequence[tuple[str, str, bytes, int]]) -> Sequence[tuple[str, str, bytes, int]]:
    return sorted(arrays, key=lambda row: _ORDER[row[0]])


def _expanded(name: str, dtype: str, data: bytes) -> Any:
    array = np.frombuffer(data, dtype)
    if name in Tokens.INTEGER_ARRAYS:
        return array if dtype == "int64" else array.astype(np.int64)
    return array.astype(np.float64) if dtype == "float16" else array


@lru_cache(maxsize=1 << 10)
def _known_layout(arrays: tuple[tuple[str, str, int], ...]) -> str:
    rows = [
        [name, dtype, length, "prompt" if name == "prompt_ids" else "completion"]
        for name, dtype, length in arrays
    ]
    return json.dumps(rows, separators=(",", ":"))


def _mean(logprobs: Any) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.add.reduce(logprobs, dtype=np.float64)) / len(logprobs)


def make(given: Mapping[str, Any], faults: Faults) -> Tokens:
    """The block that a caller states; of an array that can't be kept the length still is."""
    facts = {name: value for name, value in given.items() if value is not None}
    for name in facts.keys() - _FIELDS:
        faults.append(f"argument_unknown: tokens has no {name}")
        del facts[name]
    counts: dict[str, int] = {}
    refused = []
    for name in [name for name in Tokens.ARRAYS if name in facts]:
        try:
            facts[name] = getattr(Tokens(**{name: facts[name]}), name)
        except Exception as error:  # whatever a foreign array raises when it is looked at
            refused.append(str(error))
            if name in _LENGTHS and hasattr(facts[name], "__len__"):
                counts[_LENGTHS[name]] = len(facts[name])
            del facts[name]
    if refused:
        faults.extend(f"tokens_invalid: {reason}" for reason in refused)
        facts["omitted_reason"] = "; ".join(refused)
    if (parent := facts.get("parent")) is not None:
        facts["parent"] = (int(parent[0]), int(parent[1]))
    return Tokens(**{**counts, **facts})


def encode(tokens: Tokens, faults: Faults) -> dict[str, Plain]:
    """A block's attributes in the array form, its arrays as numpy arrays."""
    arrays = tokens.arrays()
    attributes: dict[str, Plain] = {
        key: text(value, faults) if isinstance(value, str) else value
        for name, key in _FACT_KEYS.items()
        if (value := getattr(tokens, name)) is not None
    }
    if tokens.parent is not None:
        attributes[a.TOKEN_PARENT] = list(tokens.parent)
    if tokens.logprobs is not None and len(tokens.logprobs):
        attributes[a.TOKEN_MEAN_LOGPROB] = _mean(tokens.logprobs)
    attributes[a.TOKEN_ENCODING] = "array" if arrays else "none"
    if arrays:
        attributes[a.TOKEN_LAYOUT] = _layout(arrays, tokens.alignment)
        attributes.update({ARRAY_KEYS[name]: array for name, array in arrays.items()})
    faults.extend(
        f"tokens_unaligned: {name} has {len(array)}"
        for name, array in arrays.items()
        if tokens.alignment[name] == "unaligned"
    )
    return attributes


def _layout(arrays: Mapping[str, Any], alignment: Mapping[str, str]) -> str:
    rows = [[name, array.dtype.name, len(array), alignment[name]] for name, array in arrays.items()]
    return json.dumps(rows, separators=(",", ":"))


def pack(attributes: dict[str, Plain]) -> None:
    """Turn the array form into the packed form, in place; ids that fit are stored as int32."""
    if attributes.get(a.TOKEN_ENCODING) != "array":
        return
    rows, chunks = [], []
    for name, _, length, alignment in json.loads(attributes[a.TOKEN_LAYOUT]):
        stored = _storable(attributes.pop(ARRAY_KEYS[name]))
        rows.append([name, stored.dtype.name, length, alignment])
        chunks.append(stored.astype(stored.dtype.newbyteorder("<"), copy=False).tobytes())
    attributes[a.TOKEN_ENCODING] = "packed"
    attributes[a.TOKEN_LAYOUT] = json.dumps(rows, separators=(",", ":"))
    attributes[a.TOKEN_DATA] = b"".join(chunks)


def leave_out(attributes: dict[str, Plain], reason: str) -> None:
    """Keep what is known of a block in the array form but for its arrays, in place."""
    for key in (*ARRAY_KEYS.values(), a.TOKEN_LAYOUT):
        attributes.pop(key, None)
    earlier = attributes.get(a.TOKEN_OMITTED_REASON)
    attributes[a.TOKEN_ENCODING] = "none"
    attributes[a.TOKEN_OMITTED_REASON] = f"{earlier}; {reason}" if earlier else reason


def _storable(array: Any) -> Any:
    """The array in the narrowest type that keeps every value."""
    if array.dtype.kind != "i" or not array.size:
        return array
    low, high = array.min(), array.max()
    for narrow in (np.int8, np.int32):
        if low >= np.iinfo(narrow).min and high <= np.iinfo(narrow).max:
            return array.astype(narrow)
    return array


def decode(attributes: Mapping[str, Plain]) -> Tokens | None:
    """The block that these attributes hold, in whichever form; None where there is none."""
    if a.TOKEN_ENCODING not in attributes and a.TOKEN_COUNT not in attributes:
        return None
    facts: dict[str, Any] = {
        name: attributes[key] for name, key in _FACT_KEYS.items() if attributes.get(key) is not None
    }
    try:
        rows = json.loads(attributes.get(a.TOKEN_LAYOUT) or "[]")
        parent = attributes.get(a.TOKEN_PARENT)
        return Tokens(
            **facts,
            **_arrays(attributes, rows),
            alignment={name: alignment for name, _, _, alignment in rows},
            parent=None if parent is None else (int(parent[0]), int(parent[1])),
        )
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        return Tokens(**facts | {"omitted_reason": f"unreadable: {error}"})


def _arrays(attributes: Mapping[str, Plain], rows: list[Any]) -> dict[str, Any]:
    if attributes.get(a.TOKEN_ENCODING) == "packed":
        return _unpacked(attributes[a.TOKEN_DATA], rows)
    dtypes = {name: dtype for name, dtype, _, _ in rows}
    return {
        name: np.array(attributes[key], dtype=dtypes.get(name, _default_dtype(name)))
        for name, key in ARRAY_KEYS.items()
        if key in attributes
    }


def _default_dtype(name: str) -> str:
    return "int64" if name in Tokens.INTEGER_ARRAYS else "float64"


def _unpacked(data: bytes, rows: list[Any]) -> dict[str, Any]:
    arrays, offset = {}, 0
    for name, dtype, length, _ in rows:
        stored = np.dtype(dtype).newbyteorder("<")
        arrays[name] = np.frombuffer(data, stored, count=length, offset=offset)
        offset += length * stored.itemsize
    return arrays

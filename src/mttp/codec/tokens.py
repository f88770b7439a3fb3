"""
Token blocks in the array form, an attribute per array, and the packed form, all arrays in one attribute.

Both forms have the layout, a JSON list of [name, dtype, length, alignment].
While an episode runs, `snapshot` copies a block without encoding it; `unfold` and `fold` encode it later.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import add
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from mttp.codec import fields
from mttp.codec.plain import Faults, Plain, listed, mapped, scalar_text, text, unknown_arguments
from mttp.codec.plain import count as whole_number
from mttp.model.declarations import keys, table
from mttp.model.episodes import Tokens
from mttp.model.interrupts import raise_interrupt
from mttp.model.reprs import type_name
from mttp.semconv import attributes as a

__all__ = [
    "ARRAY_KEYS",
    "KEYS",
    "Block",
    "Pair",
    "decode",
    "encode",
    "fold",
    "fold_all",
    "leave_out",
    "make",
    "pack",
    "snapshot",
    "unfold",
    "unpack",
]

ARRAY_KEYS = keys(Tokens, *Tokens.ARRAYS)
"""The attribute of each array in the array form."""
_FACT_KEYS = {name: key for name, key in keys(Tokens).items() if name not in ARRAY_KEYS and name != "parent"}
_FIELDS = frozenset(field.name for field in table(Tokens))
_FACTS = tuple(field.name for field in table(Tokens) if field.name not in ARRAY_KEYS)
_LENGTHS = {"ids": "count", "prompt_ids": "prompt_count"}
KEYS = frozenset(
    {*keys(Tokens).values(), a.TOKEN_LAYOUT, a.TOKEN_DATA}
    | {a.TOKEN_ENCODING, a.TOKEN_MEAN_LOGPROB, a.TOKEN_URI, a.TOKEN_SHA256}
)
"""All attributes of a token block."""


Block: TypeAlias = tuple[Any, ...]
"""
An unencoded copy of a token block.

The completion's length, other fields or None, and the total size in bytes; then name, dtype and bytes of
each array.
"""

Pair: TypeAlias = tuple[str, str]
"""The dtypes of token ids and of their log probabilities."""

_TEXTS = frozenset(field.name for field in table(Tokens) if field.declared == "str") - {"omitted_reason"}
_INTEGERS = {
    np.dtype(name): name for name in ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8")
}
_FLOATS = {np.dtype(name): name for name in ("float32", "float64", "float16")}
_PAIRS = {
    integers: {floats: (name, other) for floats, other in _FLOATS.items()}
    for integers, name in _INTEGERS.items()
}
_NOTHING: Mapping[Any, Any] = {}
_LISTED_PAIR = ("int32", "float64")
_DTYPES = {name: _INTEGERS if name in Tokens.INTEGER_ARRAYS else _FLOATS for name in Tokens.ARRAYS}
_ITEM_BYTES = {name: dtype.itemsize for dtypes in (_INTEGERS, _FLOATS) for dtype, name in dtypes.items()}
_NAMES = {np.dtype(name): name for name in ("int64", "int32", "int8", "float64", "float32")}
_LISTED, _NUMBERS = frozenset({list, tuple}), frozenset({float, int})
_ndarray = np.ndarray


def snapshot(ids: Any, logprobs: Any = None, facts: Mapping[str, Any] = MappingProxyType({})) -> Block | None:
    """
    Return a copy of a common block; None for others, which `make` validates.

    A common block has lists and numpy arrays of numbers, with the length of the completion.
    """
    block = None if facts else _pair(ids, logprobs)
    return _snapshot({"ids": ids, "logprobs": logprobs, **facts}) if block is None else block


def _pair(ids: Any, logprobs: Any) -> Block | None:
    """Return a copy of a block of ids and log probabilities of one length; None for others."""
    if type(ids) is _ndarray and type(logprobs) is _ndarray:
        kinds = _PAIRS.get(ids.dtype, _NOTHING).get(logprobs.dtype)
        if kinds is None or ids.ndim != 1 or ids.shape != logprobs.shape:
            return None
        count, (integers, floats) = len(ids), kinds
        ids, logprobs = ids.tobytes(), logprobs.tobytes()
    elif type(ids) is list and type(logprobs) is list and ids:
        count = len(ids)
        if count != len(logprobs) or type(logprobs[0]) is not float:
            return None
        integers, floats = _LISTED_PAIR
        _, as_integers, as_floats = _packers(count)
        try:
            ids, logprobs = as_integers(*ids), as_floats(*logprobs)
        except Exception as error:  # not a number, or an id beyond 32 bits
            raise_interrupt(error)
            return None
    else:
        return None
    return count, None, len(ids) + len(logprobs), "ids", integers, ids, "logprobs", floats, logprobs


def _snapshot(arguments: Mapping[str, Any]) -> Block | None:
    facts, arrays, size = {}, [], 0
    count = -1
    for name, value in arguments.items():
        if value is None and name != "ids":
            continue
        if name in _DTYPES:
            copied = _copied(_DTYPES[name], value)
            if copied is None:
                return None
            count = len(value) if name == "ids" else count
            if len(value) != count and name != "prompt_ids":
                return None
            arrays += [name, *copied]
            size += len(copied[1])
        elif name in _TEXTS and type(value) is str and value.isascii():
            facts[name] = value
        else:
            return None
    return count, facts or None, size, *arrays


def _copied(dtypes: Mapping[Any, str], value: Any) -> tuple[str, bytes] | None:
    kind = type(value)
    if kind is _ndarray:
        dtype = dtypes.get(value.dtype)
        return None if dtype is None or value.ndim != 1 else (dtype, value.tobytes())
    return _packed(value, integer=dtypes is _INTEGERS) if kind in _LISTED else None


def _packed(values: Sequence[Any], *, integer: bool) -> tuple[str, bytes] | None:
    """
    Return a list's numbers as bytes, which the garbage collector does not traverse.

    None for floats of another library, whose dtype may be narrower than float64.
    """
    if not integer and values and type(values[0]) not in _NUMBERS:
        return None
    try:
        as_integers, _, as_floats = _packers(len(values))
        return ("int64", as_integers(*values)) if integer else ("float64", as_floats(*values))
    except Exception as error:  # numbers of other libraries may raise any exception
        raise_interrupt(error)
        return None


@lru_cache(maxsize=1 << 10)
def _packers(count: int) -> tuple[Callable[..., bytes], Callable[..., bytes], Callable[..., bytes]]:
    """Return functions that pack `count` int64, int32 and float64 numbers."""
    return struct.Struct(f"{count}q").pack, struct.Struct(f"{count}i").pack, struct.Struct(f"{count}d").pack


def unfold(block: Block) -> dict[str, Plain]:
    """Return a block's attributes in the array form, as `encode` does."""
    arrays = _arrays_of(block)
    attributes = _about(block, arrays)
    attributes[a.TOKEN_ENCODING] = "array"
    attributes[a.TOKEN_LAYOUT] = _known_layout(
        tuple([(name, _NAMES[array.dtype], len(array)) for name, array in arrays.items()])
    )
    for name, array in arrays.items():
        attributes[ARRAY_KEYS[name]] = array
    return attributes


def fold(block: Block) -> dict[str, Plain]:
    """Return a block's attributes in the packed form."""
    arrays = _arrays_of(block)
    attributes = _about(block, arrays)
    stored = {name: _storable(array) for name, array in arrays.items()}
    attributes[a.TOKEN_ENCODING] = "packed"
    attributes[a.TOKEN_LAYOUT] = _known_layout(
        tuple([(name, _NAMES[array.dtype], len(array)) for name, array in stored.items()])
    )
    attributes[a.TOKEN_DATA] = b"".join([_little(array).tobytes() for array in stored.values()])
    return attributes


def fold_all(blocks: Sequence[Block]) -> list[dict[str, Plain]]:
    """
    Return `fold` of each block.

    Small blocks of ids and log probabilities are encoded together, which saves most of the time.
    """
    folded_blocks: list[dict[str, Plain]] = [{}] * len(blocks)
    alike: dict[Pair | int, list[int]] = {}
    for place, block in enumerate(blocks):
        alike.setdefault(_pair_of(block) or place, []).append(place)
    for kinds, places in alike.items():
        if isinstance(kinds, int):
            folded_blocks[kinds] = fold(blocks[kinds])
            continue
        for start in range(0, len(places), _BATCH):
            some = places[start : start + _BATCH]
            for place, folded in zip(
                some, _fold_pairs(kinds, [blocks[place] for place in some]), strict=True
            ):
                folded_blocks[place] = folded
    return folded_blocks


_BATCH = 64
"""The number of blocks that are encoded together."""
_SMALL = 32 * 1024
"""The maximum size of a small block's log probabilities in bytes."""


def _pair_of(block: Block) -> Pair | None:
    """Return the dtypes of a small block of ids and log probabilities; None for others."""
    if len(block) != 9 or block[1] is not None or block[3] != "ids" or block[6] != "logprobs":
        return None
    is_small = 0 < len(block[8]) <= _SMALL and len(block[5]) // _ITEM_BYTES[block[4]] == block[0]
    return (block[4], block[7]) if is_small else None


def _fold_pairs(kinds: Pair, blocks: Sequence[Block]) -> Iterator[dict[str, Plain]]:
    columns = _columns(kinds, [block[5] for block in blocks], [block[8] for block in blocks])
    for count, mean, layout, data in zip(*columns, strict=True):
        yield {
            a.TOKEN_COUNT: count,
            a.TOKEN_MEAN_LOGPROB: mean,
            a.TOKEN_ENCODING: "packed",
            a.TOKEN_LAYOUT: layout,
            a.TOKEN_DATA: data,
        }


def _columns(
    kinds: Pair, ids: Sequence[bytes], logprobs: Sequence[bytes]
) -> tuple[list[int], list[float], list[str], list[bytes]]:
    """Return lengths, mean log probabilities, layouts and packed data of blocks that are not empty."""
    integers = _expanded("ids", kinds[0], b"".join(ids))
    floats = _expanded("logprobs", kinds[1], b"".join(logprobs))
    counts = [len(each) // _ITEM_BYTES[kinds[0]] for each in ids]
    starts = [0, *accumulate(counts[:-1])]
    dtypes, stored = _storable_parts(integers, starts, counts)
    kind, rest = _NAMES[floats.dtype], _parts(_little(floats), counts)
    layouts = [
        _known_layout((("ids", dtype, count), ("logprobs", kind, count)))
        for dtype, count in zip(dtypes, counts, strict=True)
    ]
    return counts, _means(floats, starts, counts), layouts, list(map(add, stored, rest))


def _means(floats: Any, starts: Sequence[int], counts: Sequence[int]) -> list[float]:
    """Return `_mean` of each part, bit for bit."""
    with np.errstate(invalid="ignore", over="ignore"):
        if len(set(counts)) == 1:
            rows = floats.reshape(len(counts), -1)
            sums = np.add.reduce(rows, axis=1, dtype=np.float64).tolist()
        else:
            parts = zip(starts, counts, strict=True)
            sums = [
                float(np.add.reduce(floats[start : start + count], dtype=np.float64))
                for start, count in parts
            ]
    return [total / count for total, count in zip(sums, counts, strict=True)]


def _storable_parts(
    integers: Any, starts: Sequence[int], counts: Sequence[int]
) -> tuple[list[str], list[bytes]]:
    """Return dtype and bytes of each part in the narrowest type that holds all its values."""
    largest = np.maximum.reduceat(integers.view(np.uint64), starts)  # negative numbers become the largest
    if largest.min() > _INT8_MAX and largest.max() <= _INT32_MAX:  # the common case
        return ["int32"] * len(counts), _parts(_little(integers.astype(np.int32)), counts)
    narrow = [_storable(integers[start : start + count]) for start, count in zip(starts, counts, strict=True)]
    return [_NAMES[part.dtype] for part in narrow], [_little(part).tobytes() for part in narrow]


def _parts(array: Any, counts: Sequence[int]) -> list[bytes]:
    """Return the bytes of consecutive parts with these lengths."""
    data, place, parts = array.tobytes(), 0, []
    for count in counts:
        upto = place + count * array.itemsize
        parts.append(data[place:upto])
        place = upto
    return parts


def _arrays_of(block: Block) -> dict[str, Any]:
    """Return the arrays by name, in layout order."""
    listed = sorted(zip(block[3::3], block[4::3], block[5::3], strict=True), key=lambda row: _ORDER[row[0]])
    return {name: _expanded(name, dtype, data) for name, dtype, data in listed}


def _about(block: Block, arrays: Mapping[str, Any]) -> dict[str, Plain]:
    """Return a block's attributes without its arrays."""
    count, facts = block[:2]
    attributes: dict[str, Plain] = {a.TOKEN_COUNT: count}
    if "prompt_ids" in arrays:
        attributes[a.TOKEN_PROMPT_COUNT] = len(arrays["prompt_ids"])
    if facts:
        attributes |= {_FACT_KEYS[name]: value for name, value in facts.items()}
    if "logprobs" in arrays and count:
        attributes[a.TOKEN_MEAN_LOGPROB] = _mean(arrays["logprobs"])
    return attributes


def _expanded(name: str, dtype: str, data: bytes) -> Any:
    """Return the array in its recorded dtype."""
    array = np.frombuffer(data, dtype)
    if name in Tokens.INTEGER_ARRAYS:
        return array if dtype == "int64" else array.astype(np.int64)
    return array.astype(np.float64) if dtype == "float16" else array


_ORDER = {name: place for place, name in enumerate(Tokens.ARRAYS)}


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
    """Return the block from a caller's arguments; of an invalid array only the length is kept."""
    facts = {name: value for name, value in given.items() if value is not None}
    faults += unknown_arguments("tokens", [name for name in facts if name not in _FIELDS])
    facts = {name: value for name, value in facts.items() if name in _FIELDS}
    counts: dict[str, int] = {}
    refused = []
    for name in [name for name in Tokens.ARRAYS if name in facts]:
        try:
            facts[name] = getattr(Tokens(**{name: facts[name]}), name)
        except Exception as error:  # arrays of other libraries may raise any exception
            raise_interrupt(error)
            refused.append(_refusal(name, error))
            if name in _LENGTHS and (length := _length(facts[name])) is not None:
                counts[_LENGTHS[name]] = length
            del facts[name]
    if refused:
        faults.extend(f"tokens_invalid: {reason}" for reason in refused)
        facts["omitted_reason"] = "; ".join(refused)
    for name in [name for name in _FACTS if name in facts]:
        if (fact := _fact(name, facts.pop(name), faults)) is not None:
            facts[name] = fact
    return Tokens(**{**counts, **facts})


def _fact(name: str, value: Any, faults: Faults) -> Any:
    """Return what a block states about its arrays; None for what can't be understood, with a fault."""
    if name in _TEXTS or name == "omitted_reason":
        return text(value, faults)
    fact: Any = None
    if name == "texts":
        fact = tuple(text(item, faults) for item in listed("tokens", value, []) or ())
    elif name == "parent":
        places = [whole_number(place) for place in listed("tokens", value, []) or ()]
        fact = tuple(places) if len(places) == 2 and None not in places else None
    elif name == "alignment":
        alignment = mapped("tokens", value, [])
        fact = {key: word for key, word in alignment.items() if type(key) is type(word) is str} or None
    else:
        fact = whole_number(value)
    if fact is None:
        faults.append(f"tokens_invalid: {name} is {scalar_text(value):.80}")
    return fact


def _length(array: Any) -> int | None:
    try:
        return len(array)
    except Exception as error:  # objects of other libraries may raise any exception
        raise_interrupt(error)
        return None


def _refusal(name: str, error: Exception) -> str:
    """Return why an array is invalid, without messages of other libraries, which may quote content."""
    message = text(error, [])
    return message if message.startswith("tokens: ") else f"tokens: {name} raised {type_name(error)}"


def encode(tokens: Tokens, faults: Faults) -> dict[str, Plain]:
    """Return a block's attributes in the array form, with numpy arrays."""
    arrays = tokens.arrays()
    attributes: dict[str, Plain] = {
        key: text(value, faults) if isinstance(value, str) else value
        for name, key in _FACT_KEYS.items()
        if name != "texts" and (value := getattr(tokens, name)) is not None
    }
    if tokens.texts:
        attributes[a.TOKEN_TEXTS] = [text(item, faults) for item in tokens.texts]
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
    """Convert the array form to the packed form, in place, with integers in the narrowest type."""
    if attributes.get(a.TOKEN_ENCODING) != "array":
        return
    rows, chunks = [], []
    for name, _, length, alignment in json.loads(attributes[a.TOKEN_LAYOUT]):
        stored = _storable(attributes.pop(ARRAY_KEYS[name]))
        rows.append([name, stored.dtype.name, length, alignment])
        chunks.append(_little(stored).tobytes())
    attributes[a.TOKEN_ENCODING] = "packed"
    attributes[a.TOKEN_LAYOUT] = json.dumps(rows, separators=(",", ":"))
    attributes[a.TOKEN_DATA] = b"".join(chunks)


def unpack(attributes: dict[str, Plain]) -> None:
    """Convert either form to the array form with numpy arrays, in place."""
    if attributes.get(a.TOKEN_ENCODING) not in ("packed", "array"):
        return
    rows = _rows(attributes)
    arrays = {
        name: array.astype(np.int64) if name in Tokens.INTEGER_ARRAYS else array
        for name, array in _arrays(attributes, rows).items()
    }
    attributes.pop(a.TOKEN_DATA, None)
    attributes[a.TOKEN_ENCODING] = "array"
    attributes[a.TOKEN_LAYOUT] = _layout(arrays, {row[0]: row[3] for row in rows})
    attributes.update({ARRAY_KEYS[name]: array for name, array in arrays.items()})


def leave_out(attributes: dict[str, Plain], reason: str, *, names: Sequence[str] = tuple(ARRAY_KEYS)) -> None:
    """Remove arrays, by default all, from a block in the array form, in place."""
    left = [row for row in _rows(attributes) if row[0] not in names]
    for name in names:
        attributes.pop(ARRAY_KEYS[name], None)
    if left:
        attributes[a.TOKEN_LAYOUT] = json.dumps(left, separators=(",", ":"))
    else:
        attributes.pop(a.TOKEN_LAYOUT, None)
        attributes[a.TOKEN_ENCODING] = "none"
    earlier = attributes.get(a.TOKEN_OMITTED_REASON)
    if reason not in (earlier or "").split("; "):
        attributes[a.TOKEN_OMITTED_REASON] = f"{earlier}; {reason}" if earlier else reason


def _rows(attributes: Mapping[str, Plain]) -> list[list[Any]]:
    """Return the layout's rows: name, dtype, length and alignment of each array."""
    return _parsed_layout(attributes.get(a.TOKEN_LAYOUT) or "[]")


@lru_cache(maxsize=1 << 10)
def _parsed_layout(layout: str) -> list[list[Any]]:
    rows: list[list[Any]] = json.loads(layout)
    return rows


def _storable(array: Any) -> Any:
    """Return the array in the narrowest type that holds all its values."""
    if array.dtype.kind != "i" or not array.size:
        return array
    if array.dtype == np.int64:
        largest = array.view(np.uint64).max()  # negative numbers become the largest
        if largest <= _INT32_MAX:
            return array.astype(np.int8 if largest <= _INT8_MAX else np.int32)
    low, high = array.min(), array.max()
    for narrow, least, most in _NARROW:
        if low >= least and high <= most:
            return array.astype(narrow)
    return array


_INT8_MAX, _INT32_MAX = 2**7 - 1, 2**31 - 1
_NARROW = [(kind, int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in (np.int8, np.int32)]


def _little(array: Any) -> Any:
    """Return the array in little-endian byte order."""
    return array if sys.byteorder == "little" else array.byteswap()


def decode(attributes: Mapping[str, Plain]) -> Tokens | None:
    """Return the block of these attributes, in either form; None without one."""
    if a.TOKEN_ENCODING not in attributes and a.TOKEN_COUNT not in attributes:
        return None
    facts = fields.decode(Tokens, attributes, *_FACT_KEYS)
    try:
        rows = _rows(attributes)
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
        name: np.array(
            attributes[key], dtypes.get(name, "int64" if name in Tokens.INTEGER_ARRAYS else "float64")
        )
        for name, key in ARRAY_KEYS.items()
        if key in attributes
    }


def _unpacked(data: bytes, rows: list[Any]) -> dict[str, Any]:
    arrays, offset = {}, 0
    for name, dtype, length, _ in rows:
        stored = np.dtype(dtype).newbyteorder("<")
        arrays[name] = np.frombuffer(data, stored, count=length, offset=offset)
        offset += length * stored.itemsize
    return arrays

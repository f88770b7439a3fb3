"""Blocks of up to 1,000 consecutive steps in columns: attributes of `steps` spans, and steps from them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np

from mttp.codec import content, left_out, steps
from mttp.codec.plain import Plain, little_endian
from mttp.model.episodes import Step
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = [
    "MAX_STEPS",
    "SAME",
    "Column",
    "columns",
    "decode",
    "drop",
    "encode",
    "entries",
    "is_block",
    "laid_out",
    "longest",
    "longest_described",
    "narrowest",
    "pack",
    "reward_errors",
    "rows",
    "times",
    "unpack",
    "values_of",
    "with_rows",
]

MAX_STEPS = 1000
"""The maximum number of steps in a block."""

_PREFIX = f"{a.STEPS_COLUMN}."
_TIMES = (a.STEPS_START_TIMES, a.STEPS_END_TIMES)
_SCALARS: dict[Any, Any] = {float: np.float64, bool: np.bool_, int: np.int64}
_NARROW = [(np.dtype(f"int{bits}"), 1 << (bits - 1)) for bits in (8, 16, 32)]
"""Integer types, and the bound on the magnitude of their values."""
SAME: Final = "same"
"""Marks a column with one entry for all steps."""


class Column(NamedTuple):
    """The values of one attribute, for the steps that have it."""

    entries: Any
    """The values in order of index: a list of plain data, or an array of shape [steps, ...]."""
    at: Sequence[int] | Literal["same"] | None = None
    """The positions of these steps in the block; None for all steps, `SAME` for one entry for all."""


class _Stored(NamedTuple):
    """A column's recorded values, with dtype and shape of an entry if all entries have the same."""

    values: Any
    dtype: str | None = None
    shape: list[int] | None = None


def is_block(values: Mapping[str, Plain]) -> bool:
    """Return whether these are the attributes of a block."""
    return a.STEPS_COUNT in values


# Encoding.


def columns(given: Sequence[Mapping[str, Plain]]) -> dict[str, Column]:
    """Return the attributes of steps, one mapping per step, as columns."""
    collected: dict[str, tuple[list[Plain], list[int]]] = {}
    for position, row in enumerate(given):
        for key, value in row.items():
            entries, at = collected.setdefault(key, ([], []))
            entries.append(value)
            at.append(position)
    return {
        key: Column(entries, None if len(at) == len(given) else at)
        for key, (entries, at) in collected.items()
    }


def encode(
    given: Mapping[str, Column], *, first_index: int, start_times: Sequence[int], end_times: Sequence[int]
) -> dict[str, Plain]:
    """
    Return the attributes of a block, arrays as numpy arrays; times are in nanoseconds since the Unix epoch.

    The columns are those of step spans' attributes without agent and index, which are on the block's span.
    """
    return {
        a.STEPS_FIRST_INDEX: first_index,
        a.STEPS_COUNT: len(start_times),
        a.STEPS_START_TIMES: np.array(start_times, np.int64),
        a.STEPS_END_TIMES: np.array(end_times, np.int64),
        **_reward_totals(given, len(start_times)),
        **laid_out(given),
    }


def _reward_totals(by_key: Mapping[str, Column], count: int) -> dict[str, Plain]:
    """Return the sum of the rewards and the number of errors, for readers that do not decode columns."""
    totals: dict[str, Plain] = {}
    if a.STEP_REWARD in by_key:
        with suppress(OverflowError):  # the sum of finite numbers can overflow
            totals[a.STEPS_REWARD_SUM] = math.fsum(entries(by_key, a.STEP_REWARD, count))
    if errors := reward_errors(by_key, count):
        totals[a.STEPS_REWARD_ERRORS] = errors
    return totals


def reward_errors(given: Mapping[str, Column], count: int) -> int:
    """Return the number of steps with the status error and no reward; a floor reward has that status, too."""
    statuses = entries(given, a.STEP_REWARD_STATUS, count)
    if "error" not in statuses:
        return 0
    rewarded = {*_positions(given, a.STEP_REWARD, count)}
    return sum(
        status == "error" and place not in rewarded
        for place, status in zip(_positions(given, a.STEP_REWARD_STATUS, count), statuses, strict=True)
    )


def _positions(by_key: Mapping[str, Column], key: str, count: int) -> Sequence[int]:
    """Return the positions of the steps that have an attribute."""
    at = by_key.get(key, Column((), ())).at
    return range(count) if at is None or at == SAME else at


def entries(given: Mapping[str, Column], key: str, count: int) -> list[Any]:
    """Return an attribute's values over the steps that have it, in a block of `count` steps."""
    column = given.get(key, Column(()))
    values = column.entries.tolist() if isinstance(column.entries, np.ndarray) else list(column.entries)
    return values * (count if column.at == SAME else 1)


def laid_out(given: Mapping[str, Column]) -> dict[str, Plain]:
    """Return the columns' attributes and their layout."""
    stored = {key: _stored(column.entries) for key, column in given.items()}
    remaining = dict(given)
    for keys in content.BY_VALUE.values():
        if keys.value in stored and stored[keys.value].shape:
            _imply(remaining, (keys.dtype, keys.shape), given[keys.value].at)
    attributes: dict[str, Plain] = {}
    layout: list[list[Any]] = []
    for key, column in remaining.items():
        values, dtype, shape = stored[key] if column is given[key] else _stored(column.entries)
        which: Any = column.at if column.at is None or column.at == SAME else list(column.at)
        if which is None and dtype is None and _are_same(values):
            values, which = values[:1], SAME
        attributes[_PREFIX + key] = values
        layout.append([key, dtype, shape, which])
    attributes[a.STEPS_LAYOUT] = msgspec.json.encode(layout).decode()
    return attributes


def _imply(remaining: dict[str, Column], keys: Sequence[str], at: Any) -> None:
    """Remove dtype and shape of steps with an array in a column, since the layout states both."""
    implied = None if at is None else {*at}
    for key in keys:
        column = remaining.pop(key, None)
        if column is None or implied is None:
            continue
        places: Any = range(len(column.entries)) if column.at is None else column.at
        left = {at: entry for at, entry in zip(places, column.entries, strict=True) if at not in implied}
        if left:
            remaining[key] = Column([*left.values()], [*left])


def _stored(entries: Any) -> _Stored:
    """Return entries of one type, dtype and shape as an array, others as a list."""
    if isinstance(entries, np.ndarray):
        return _of_array(entries)
    kinds = set(map(type, entries))
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind in _SCALARS:
        return _of_array(np.array(entries, _SCALARS[kind]))
    if kind is np.ndarray and _are_alike(entries):
        return _of_array(np.concatenate(entries).reshape(len(entries), *entries[0].shape))
    # of an array the elements, as its dtype and shape have columns
    return _Stored([entry.ravel().tolist() if isinstance(entry, np.ndarray) else entry for entry in entries])


def _are_alike(arrays: Sequence[Any]) -> bool:
    return len({array.dtype for array in arrays}) == 1 and len({array.shape for array in arrays}) == 1


def _of_array(entries: Any) -> _Stored:
    shape = list(entries.shape[1:])
    if not shape and entries.dtype.kind == "i":
        entries = _narrowed(entries)
    return _Stored(entries, _name(entries.dtype), shape)


@cache
def _name(dtype: Any) -> str:
    """Return the dtype's name, cached because numpy creates it at each access."""
    return str(dtype.name)


def _narrowed(numbers: Any) -> Any:
    """Return integers in the narrowest type that holds them all."""
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    return numbers.astype(narrowest(low, high, numbers.dtype), copy=False)


def narrowest(low: int, high: int, widest: Any) -> Any:
    """Return the narrowest integer type for the range from `low` to `high`, else `widest`."""
    return next((narrow for narrow, limit in _NARROW if -limit <= low and high < limit), widest)


def _are_same(values: Sequence[Plain]) -> bool:
    """Return whether all entries are equal text or lists of text; other types can be equal and differ."""
    first = values[0]
    texts = first if isinstance(first, list) else [first]
    return all(type(item) is str for item in texts) and all(value == first for value in values)


def pack(attributes: dict[str, Plain]) -> None:
    """Replace the block's arrays with their little-endian bytes, in place."""
    for key, value in attributes.items():
        if isinstance(value, np.ndarray) and (key.startswith(_PREFIX) or key in _TIMES):
            attributes[key] = little_endian(value)


def unpack(attributes: dict[str, Plain]) -> None:
    """Replace the bytes or elements of the block's arrays with numpy arrays, in place."""
    dtypes = {_PREFIX + key: dtype for key, dtype, _, _ in json.loads(attributes.get(a.STEPS_LAYOUT) or "[]")}
    for key, dtype in (dtypes | dict.fromkeys(_TIMES, "int64")).items():
        if dtype is not None and key in attributes:
            attributes[key] = _array(attributes[key], dtype)


# Decoding.


def rows(values: Mapping[str, Plain]) -> list[dict[str, Plain]]:
    """Return the attributes of each step of a block, as on a step span but without index and agent."""
    by_step: list[dict[str, Plain]] = [{} for _ in range(values[a.STEPS_COUNT])]
    for key, dtype, shape, which in json.loads(values.get(a.STEPS_LAYOUT) or "[]"):
        stored = values.get(_PREFIX + key)
        if stored is None:  # a transport left the column out
            continue
        at = which if isinstance(which, list) else range(len(by_step))
        described = {}
        if shape and key in content.BY_VALUE:
            keys = content.BY_VALUE[key]
            described = {keys.dtype: dtype, keys.shape: shape}
        for position, entry in zip(at, _entries(stored, dtype, shape, which, len(at)), strict=True):
            by_step[position] |= {key: entry, **described}
    return by_step


def values_of(values: Mapping[str, Plain], key: str) -> Any:
    """Return an attribute of the steps of a block that have it, as an array where that was recorded."""
    for name, dtype, shape, which in json.loads(values.get(a.STEPS_LAYOUT) or "[]"):
        if name == key and (stored := values.get(_PREFIX + key)) is not None:
            count = len(which) if isinstance(which, list) else values[a.STEPS_COUNT]
            entries = _entries(stored, dtype, shape, which, count)
            return entries if isinstance(entries, np.ndarray) else [*entries]
    return []


def times(values: Mapping[str, Plain]) -> list[tuple[int, int]]:
    """Return start and end of each step of a block, in nanoseconds since the Unix epoch."""
    starts, ends = (_array(values.get(key, ()), "int64").tolist() for key in _TIMES)
    return list(zip(starts, ends, strict=False))


def _entries(stored: Any, dtype: str | None, shape: list[int] | None, which: Any, count: int) -> Any:
    if dtype is None:
        return (_copy(stored[0]) for _ in range(count)) if which == SAME else stored
    array = _array(stored, dtype)
    return array.reshape(count, *shape) if shape else array.ravel().tolist()


def _copy(entry: Plain) -> Plain:
    return list(entry) if isinstance(entry, list) else entry


def _array(stored: Any, dtype: str) -> Any:
    """Return a copy of a column's numbers, from bytes or elements."""
    if isinstance(stored, bytes):
        stored = np.frombuffer(stored, np.dtype(dtype).newbyteorder("<"))
    return np.array(stored, np.dtype(dtype))


def decode(record: SpanRecord) -> Iterator[Step]:
    """Yield the steps of a block; the block's agent and omissions apply to each."""
    for step in spans(record):
        yield steps.decode(replace(step, span_id=""))


_SHARED = (a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID)
"""Attributes of a block that each of its steps has."""


def spans(record: SpanRecord) -> Iterator[SpanRecord]:
    """Yield a span for each step of a block, as if it had one; its id tells part, agent, index and start."""
    values = record.attributes
    first = values.get(a.STEPS_FIRST_INDEX, 0)
    shared = {key: values[key] for key in _SHARED if key in values}
    place = f"{shared.get(a.SEGMENT_ID, '')}:{shared.get(a.AGENT_ID, '')}"
    omitted = [str(omission).removeprefix(_PREFIX) for omission in values.get(a.OMISSIONS) or ()]
    starts, ends = (_array(values.get(key, ()), "int64").tolist() for key in _TIMES)
    for position, row in enumerate(rows(values)):
        if omitted:
            row[a.OMISSIONS] = [*(row.get(a.OMISSIONS) or ()), *omitted]
        start = starts[position] if starts else record.start_time
        yield SpanRecord(
            trace_id=record.trace_id,
            span_id=f"{place}:{first + position}:{start}",
            parent_id=record.parent_id,
            name=names.STEP,
            start_time=start,
            end_time=ends[position] if ends else record.end_time,
            attributes={a.STEP_INDEX: first + position, **shared, **left_out.restored(row)},
        )


# Withholding.


def longest(values: Mapping[str, Plain]) -> int:
    """Return the maximum number of elements in one attribute of one step."""
    counts = [0]
    for key, dtype, shape, _ in json.loads(values[a.STEPS_LAYOUT]):
        listed = () if dtype is not None else values.get(_PREFIX + key, ())
        counts += [math.prod(shape)] if dtype is not None else map(_count, listed)
    return max(counts)


def _count(entry: Plain) -> int:
    return sum(map(_count, entry)) if isinstance(entry, list) else 1


def with_rows(values: Mapping[str, Plain], kept: Sequence[Mapping[str, Plain]]) -> dict[str, Plain]:
    """Return the block's attributes with these steps instead of its own."""
    block_attributes = {key: value for key, value in values.items() if not key.startswith(_PREFIX)}
    return {**block_attributes, **laid_out(columns(kept))}


def longest_described(values: Mapping[str, Plain]) -> str:
    """Return the attribute of the column with the longest description in the layout."""
    rows = json.loads(values[a.STEPS_LAYOUT])
    return str(_PREFIX + max(rows, key=lambda row: len(json.dumps(row)))[0])


def drop(values: dict[str, Plain], key: str) -> None:
    """Remove a column by its attribute, in place."""
    rows = json.loads(values[a.STEPS_LAYOUT])
    left = [row for row in rows if _PREFIX + row[0] != key]
    values[a.STEPS_LAYOUT] = msgspec.json.encode(left).decode()
    values.pop(key, None)

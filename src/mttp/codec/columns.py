"""Consistency checks of arrays and columns: whether values match their dtype, shape and layout."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from mttp.semconv import attributes as a
from mttp.semconv.registry import INT64, type_of

__all__ = ["COLUMN", "ColumnLayout", "UnfitAttribute", "arrays", "layout", "numbers"]

COLUMN: Final = f"{a.STEPS_COLUMN}."
_MAX_STEPS = 1000
"""The maximum number of steps in a block of an episode."""
_MAX_ANNOTATED_STEPS = 1 << 24
"""The maximum number of steps in an annotation."""
_SIZES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}
"""The size of a number in bytes, by numpy's dtype name."""
_CONTENT = (
    (a.OBSERVATION_VALUE, a.OBSERVATION_DTYPE, a.OBSERVATION_SHAPE),
    (a.ACTION_VALUE, a.ACTION_DTYPE, a.ACTION_SHAPE),
    (
        a.EPISODE_FINAL_OBSERVATION_VALUE,
        a.EPISODE_FINAL_OBSERVATION_DTYPE,
        a.EPISODE_FINAL_OBSERVATION_SHAPE,
    ),
)


class UnfitAttribute(NamedTuple):
    """An attribute whose value contradicts other attributes of the span."""

    key: str
    found: str
    expected: str


class ColumnLayout(NamedTuple):
    """The layout of one column."""

    key: str
    """The steps' attribute."""
    dtype: str | None
    """The dtype of its numbers; None for a list of plain data."""
    size: int
    """The number of elements per entry."""
    entries: int | None
    """The number of entries; None for one per step."""
    last: int
    """The last position with an entry; -1 if the layout has no positions."""


def arrays(found: Mapping[str, Any]) -> Iterator[UnfitAttribute]:
    """Yield inconsistent attributes of observations, actions and blocks of steps."""
    for keys in _CONTENT:
        if keys[1] in found:
            yield from _content(found, *keys)
    if a.STEPS_COUNT in found:
        yield from _block(found)


def _content(attributes: Mapping[str, Any], key: str, dtype: str, shape: str) -> Iterator[UnfitAttribute]:
    numpy_type, sizes = attributes[dtype], attributes.get(shape, ())
    if numpy_type not in _SIZES:
        yield UnfitAttribute(dtype, f"{numpy_type!r:.40}", "a type of numbers")
        return
    if any(size < 0 for size in sizes):
        yield UnfitAttribute(shape, "a negative size", "sizes")
    elif key in attributes and (wrong := numbers(attributes[key], numpy_type, None)):
        yield UnfitAttribute(key, wrong, f"an array of {numpy_type}")


def _block(attributes: Mapping[str, Any]) -> Iterator[UnfitAttribute]:
    count, first = attributes[a.STEPS_COUNT], attributes.get(a.STEPS_FIRST_INDEX, 0)
    limit = _MAX_STEPS if a.EPISODE_ID in attributes else _MAX_ANNOTATED_STEPS
    if not 0 <= count <= limit:
        yield UnfitAttribute(a.STEPS_COUNT, str(count), f"0 to {limit:,}")
        return
    if not 0 <= first <= INT64[-1] - count:
        yield UnfitAttribute(a.STEPS_FIRST_INDEX, str(first), "an index")
    for key in (a.STEPS_START_TIMES, a.STEPS_END_TIMES):
        if key in attributes and (wrong := numbers(attributes[key], "int64", count)):
            yield UnfitAttribute(key, wrong, f"{count} times")
    if a.STEPS_LAYOUT not in attributes:
        return
    columns = layout(attributes[a.STEPS_LAYOUT])
    if columns is None or any(column.last >= count for column in columns):
        yield UnfitAttribute(a.STEPS_LAYOUT, "not a layout", f"the layout of {count} steps")
        return
    for column in columns:
        key = COLUMN + column.key
        if key in attributes and (unfit := _column(attributes[key], column, count)):
            yield UnfitAttribute(key, *unfit)


def _column(value: Any, column: ColumnLayout, count: int) -> tuple[str, str] | None:
    """Return what a column's values are and what was expected; None if they match the layout."""
    entries = count if column.entries is None else column.entries
    if column.dtype is None:
        is_list = isinstance(value, (list, tuple)) and len(value) == entries
        return None if is_list else (_described(value), f"a list of {entries}")
    wrong = numbers(value, column.dtype, entries * column.size)
    return (wrong, f"{entries} entries of {column.dtype}") if wrong else None


def numbers(value: Any, dtype: str, count: int | None) -> str:
    """Describe a value that is not `count` numbers of a dtype, as bytes or elements; empty if it is."""
    kind = dtype.rstrip("0123456789")
    if isinstance(value, bytes):
        is_whole = (
            len(value) == count * _SIZES[dtype] if count is not None else not len(value) % _SIZES[dtype]
        )
    elif hasattr(value, "dtype"):
        is_whole = value.dtype.kind in "biuf" and count in (None, value.size)
    elif isinstance(value, (list, tuple)):
        is_whole = count in (None, len(value)) and _are_all(value, dtype, kind)
    else:
        is_whole = False
    return "" if is_whole else _described(value)


def _are_all(values: list[Any] | tuple[Any, ...], dtype: str, kind: str) -> bool:
    kinds = set(map(type, values))
    if kind == "float":
        return kinds <= {float, int, bool}
    if not kinds <= {int, bool}:
        return False
    bits = 8 * _SIZES[dtype] - (kind == "int")
    least = 0 if kind != "int" else -(1 << bits)
    return (
        not values
        or (kind == "bool" and min(values) >= 0 and max(values) <= 1)
        or (kind != "bool" and least <= min(values) and max(values) < 1 << bits)
    )


def _described(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, (list, tuple)):
        return f"{type_of(value)} of {len(value)}"
    return type_of(value)


@lru_cache(maxsize=256)
def layout(document: str) -> tuple[ColumnLayout, ...] | None:
    """Return the columns of a layout; None if it is not a layout."""
    try:
        return tuple(_described_column(*row) for row in json.loads(document))
    except (ValueError, TypeError, RecursionError):
        return None


def _described_column(key: Any, dtype: Any, shape: Any, which: Any) -> ColumnLayout:
    sizes = shape or []
    positions = which if isinstance(which, list) else []
    is_good = (
        type(key) is str
        and (dtype is None or dtype in _SIZES)
        and isinstance(sizes, list)
        and all(type(size) is int and size >= 0 for size in sizes)
        and (which is None or which == "same" or isinstance(which, list))
        and all(type(position) is int and position >= 0 for position in positions)
        and (dtype is None or which != "same")
    )
    if not is_good:
        raise ValueError("not a column")
    return ColumnLayout(
        key=key,
        dtype=dtype,
        size=math.prod(sizes),
        entries=1 if which == "same" else len(positions) if isinstance(which, list) else None,
        last=max(positions, default=-1),
    )

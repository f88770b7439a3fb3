"""
Columns of plain values by SQL type, as data that a process can hand to another, and as Arrow arrays.

`pyarrow.array` would import pandas if that is installed, which takes longer than most queries.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias

import numpy as np

from mttp.reading.worker import Rows

__all__ = ["Column", "arrow_table", "arrow_tables", "arrow_type", "as_arrow", "encode"]

Column: TypeAlias = tuple[str, int, list[Any], list[Any]]
"""SQL type, length, the buffers of an Arrow array as bytes or None, and the columns of the values within."""

_LIST: Final = "[]"
_MAP: Final = "MAP("
_ROWS: Final = 10_000
"""Rows that a table has at least, since many small ones take long to load."""
_SCALARS: Final[dict[str, tuple[type, Any]]] = {
    "VARCHAR": (str, ""),
    "BIGINT": (int, 0),
    "DOUBLE": (float, 0.0),
    "BOOLEAN": (bool, False),
}
"""Python's type of the values of a type, and the value that stands for null."""


def encode(values: Sequence[Any], type_: str) -> Column:
    """Return a column of these values; None and those of another type are null. A map is given as pairs."""
    if type_ in _SCALARS:
        try:
            return _scalars(values, type_)
        except TypeError:
            kind, _ = _SCALARS[type_]
            return _scalars([value if isinstance(value, kind) else None for value in values], type_)
    listed = [() if value is None else value for value in values]
    items = [*chain.from_iterable(listed)]
    types = _inner_types(type_)
    parts = [items] if type_.endswith(_LIST) else [[item[place] for item in items] for place in range(2)]
    within = [encode(part, inner) for part, inner in zip(parts, types, strict=True)]
    return type_, len(values), [_validity(values), _places(listed)], within


def arrow_table(rows: Rows, *, place: int) -> Any:
    """Return rows as an Arrow table, whose first column, `place`, counts from there."""
    import pyarrow as pa

    count = rows.stop - rows.start
    places = as_arrow(encode(range(place, place + count), "BIGINT"))
    arrays = [as_arrow(column) if isinstance(column, tuple) else column for column in rows.columns.values()]
    columns = [column.slice(rows.start, count) for column in arrays]
    return pa.Table.from_arrays([places, *columns], names=["place", *rows.columns])


def arrow_tables(rows: Iterable[Rows], *, place: int = 1) -> Iterator[Any]:
    """Yield rows as tables of at least `_ROWS` rows, but for the last; their `place` counts from there."""
    import pyarrow as pa

    tables: list[Any] = []
    count = 0
    for part in rows:
        tables.append(arrow_table(part, place=place + count))
        count += part.stop - part.start
        if count >= _ROWS:
            yield pa.concat_tables(tables, promote_options="default")
            tables, place, count = [], place + count, 0
    if tables:
        yield pa.concat_tables(tables, promote_options="default")


def _scalars(values: Sequence[Any], type_: str) -> Column:
    _, null = _SCALARS[type_]
    filled = [null if value is None else value for value in values]
    if type_ == "VARCHAR":
        buffers = _texts(filled)
    elif type_ == "BOOLEAN":
        buffers = [_bits(filled)]
    else:
        buffers = [array("q" if type_ == "BIGINT" else "d", filled).tobytes()]
    return type_, len(values), [_validity(values), *buffers], []


def _texts(values: Sequence[str]) -> list[bytes]:
    joined = "".join(values)
    if joined.isascii():
        return [_places(values), joined.encode()]
    encoded = [value.encode(errors="replace") for value in values]
    return [_places(encoded), b"".join(encoded)]


def _places(values: Iterable[Any]) -> bytes:
    """Return where each value begins among all of them in a row, and where the last one ends."""
    return array("i", accumulate(map(len, values), initial=0)).tobytes()


def _validity(values: Sequence[Any]) -> bytes | None:
    present = [value is not None for value in values]
    return None if all(present) else _bits(present)


def _bits(values: Sequence[bool]) -> bytes:
    """Return a bit for each, the lowest first."""
    return np.packbits(np.array(values, np.bool_), bitorder="little").tobytes()


def _inner_types(type_: str) -> list[str]:
    """Return the type of a list's items, or those of a map's keys and values."""
    if type_.endswith(_LIST):
        return [type_.removesuffix(_LIST)]
    return type_.removeprefix(_MAP).removesuffix(")").split(", ")


def as_arrow(column: Column) -> Any:
    """Return a column as an Arrow array."""
    import pyarrow as pa

    type_, length, buffers, within = column
    children = [*map(as_arrow, within)]
    arrow = arrow_type(type_)
    if type_.startswith(_MAP):
        fields = [arrow.key_field, arrow.item_field]
        children = [pa.StructArray.from_arrays(children, fields=fields)]
    pieces = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(arrow, length, pieces, children=children)


def arrow_type(type_: str) -> Any:
    """Return Arrow's type of an SQL type."""
    import pyarrow as pa

    if type_ in _SCALARS:
        scalars = {"VARCHAR": pa.string, "BIGINT": pa.int64, "DOUBLE": pa.float64, "BOOLEAN": pa.bool_}
        return scalars[type_]()
    inner = map(arrow_type, _inner_types(type_))
    return pa.list_(*inner) if type_.endswith(_LIST) else pa.map_(*inner)

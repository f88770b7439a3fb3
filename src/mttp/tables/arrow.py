"""
Columns of plain values by SQL type as Arrow arrays, and numpy's arrays as Arrow's.

`pyarrow.array` would import pandas if that is installed, which takes longer than most queries; so do
functions of `pyarrow.compute` that are given a value of Python's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import numpy as np

from mttp.reading.lines import Rows

__all__ = [
    "arrow_tables",
    "arrow_type",
    "booleans",
    "encode",
    "integers",
    "lengths",
    "numbers",
    "scalar",
    "scalars",
]

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


def encode(values: Sequence[Any], type_: str) -> Any:
    """Return an Arrow array of values; None and those of another type are null. A map is given as pairs."""
    import pyarrow as pa

    if type_ in _SCALARS:
        try:
            return _scalars(values, type_)
        except TypeError:
            kind, _ = _SCALARS[type_]
            return _scalars([value if isinstance(value, kind) else None for value in values], type_)
    listed = [() if value is None else value for value in values]
    items = [*chain.from_iterable(listed)]
    arrow = arrow_type(type_)
    if type_.endswith(_LIST):
        within = encode(items, type_.removesuffix(_LIST))
    else:
        parts = [[item[place] for item in items] for place in range(2)]
        arrays = [*map(encode, parts, _inner_types(type_))]
        within = pa.StructArray.from_arrays(arrays, fields=[arrow.key_field, arrow.item_field])
    return _array(arrow, values, _places(listed), children=[within])


def arrow_tables(rows: Iterable[Rows], *, place: int = 1) -> Iterator[Any]:
    """Yield rows as tables of at least `_ROWS` rows, but for the last; their `place` counts from there."""
    import pyarrow as pa

    tables: list[Any] = []
    count = 0
    for (batch,) in rows:
        places = integers(np.arange(place + count, place + count + len(batch)))
        tables.append(pa.Table.from_batches([batch]).add_column(0, "place", places))
        count += len(batch)
        if count >= _ROWS:
            yield pa.concat_tables(tables, promote_options="default")
            tables, place, count = [], place + count, 0
    if tables:
        yield pa.concat_tables(tables, promote_options="default")


def _scalars(values: Sequence[Any], type_: str) -> Any:
    _, null = _SCALARS[type_]
    filled = [null if value is None else value for value in values]
    if type_ == "VARCHAR":
        buffers = _texts(filled)
    elif type_ == "BOOLEAN":
        buffers = [_bits(filled)]
    else:
        buffers = [array("q" if type_ == "BIGINT" else "d", filled).tobytes()]
    return _array(arrow_type(type_), values, *buffers)


def _array(arrow: Any, values: Sequence[Any], *buffers: bytes, children: Sequence[Any] = ()) -> Any:
    """Return the Arrow array of values with these buffers."""
    import pyarrow as pa

    present = [value is not None for value in values]
    pieces = [None if all(present) else pa.py_buffer(_bits(present)), *map(pa.py_buffer, buffers)]
    return pa.Array.from_buffers(arrow, len(values), pieces, children=children)


def _texts(values: Sequence[str]) -> list[bytes]:
    joined = "".join(values)
    if joined.isascii():
        return [_places(values), joined.encode()]
    encoded = [value.encode(errors="replace") for value in values]
    return [_places(encoded), b"".join(encoded)]


def _places(values: Iterable[Any]) -> bytes:
    """Return where each value begins among all of them in a row, and where the last one ends."""
    return array("i", accumulate(map(len, values), initial=0)).tobytes()


def _bits(values: Sequence[bool]) -> bytes:
    """Return a bit for each, the lowest first."""
    return np.packbits(np.array(values, np.bool_), bitorder="little").tobytes()


def _inner_types(type_: str) -> list[str]:
    """Return the type of a list's items, or those of a map's keys and values."""
    if type_.endswith(_LIST):
        return [type_.removesuffix(_LIST)]
    return type_.removeprefix(_MAP).removesuffix(")").split(", ")


def arrow_type(type_: str) -> Any:
    """Return Arrow's type of an SQL type."""
    import pyarrow as pa

    if type_ in _SCALARS:
        scalars = {"VARCHAR": pa.string, "BIGINT": pa.int64, "DOUBLE": pa.float64, "BOOLEAN": pa.bool_}
        return scalars[type_]()
    inner = map(arrow_type, _inner_types(type_))
    return pa.list_(*inner) if type_.endswith(_LIST) else pa.map_(*inner)


def scalar(value: Any, type_: str) -> Any:
    """Return a value as an Arrow scalar; None is null."""
    return encode([value], type_)[0]


def numbers(array: Any) -> Any:
    """Return numbers or booleans as a numpy array; `pyarrow`'s own way imports pandas."""
    from pyarrow import types

    _, buffer = array.buffers()
    stop = array.offset + len(array)
    if types.is_boolean(array.type):
        return np.unpackbits(np.frombuffer(buffer, np.uint8), count=stop, bitorder="little")[array.offset :]
    kind = "f" if types.is_floating(array.type) else "i"
    return np.frombuffer(buffer, f"{kind}{array.type.bit_width // 8}", stop)[array.offset :]


def scalars(array: Any) -> list[Any]:
    """Return an Arrow array of texts, numbers or booleans as plain values."""
    from pyarrow import types

    if array.null_count == len(array):
        return [None] * len(array)
    if types.is_string(array.type):
        cells = _decoded(array)
    else:
        values = numbers(array)
        cells = (values.astype(np.bool_) if types.is_boolean(array.type) else values).tolist()
    if array.null_count:
        for row in np.flatnonzero(numbers(array.is_null())).tolist():
            cells[row] = None
    return cells


def _decoded(array: Any) -> list[Any]:
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, array.offset + len(array) + 1)[array.offset :].tolist()
    encoded = b"" if data is None else data.to_pybytes()
    if encoded.isascii():
        text = encoded.decode()
        return [text[start:end] for start, end in pairwise(ends)]
    return [encoded[start:end].decode() for start, end in pairwise(ends)]


def integers(values: Any, *, is_valid: Any = None) -> Any:
    """Return a numpy array of integers as an Arrow array."""
    import pyarrow as pa

    valid = None if is_valid is None else booleans(is_valid).buffers()[1]
    return pa.Array.from_buffers(pa.int64(), len(values), [valid, pa.py_buffer(values.astype(np.int64))])


def booleans(values: Any) -> Any:
    """Return a numpy array of booleans as an Arrow array."""
    import pyarrow as pa

    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def lengths(lists: Any) -> Any:
    """Return the number of items of each list or map."""
    return np.diff(numbers(lists.offsets))

"""Converts Arrow tables to pandas data frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mttp.errors import MissingExtra, ReadError

if TYPE_CHECKING:
    from mttp.reading.tables import Tables

__all__ = ["to_pandas"]


def to_pandas(tables: Tables, name: str, expand: Sequence[str]) -> Any:
    """
    One table as a data frame, with a column `map.key` for each key of the map columns in `expand`.

    Integers and booleans have pandas' nullable types: large integers are not exact as floats.
    Raises ReadError for an unknown table or map, and MissingExtra if pandas is not installed.
    """
    pandas = _pandas()
    if name not in tables.NAMES:
        raise ReadError(f"there is no table {name!r}; the tables are {', '.join(tables.NAMES)}")
    table = getattr(tables, name)
    maps = [field.name for field in table.schema if str(field.type).startswith("map<")]
    unknown = [column for column in expand if column not in maps]
    if unknown:
        known = f"its maps are {', '.join(maps)}" if maps else "it has no maps"
        raise ReadError(f"the table {name!r} has no map {', '.join(map(repr, unknown))}; {known}")
    kinds = {"int64": pandas.Int64Dtype(), "bool": pandas.BooleanDtype()}
    frame = table.drop_columns([*expand]).to_pandas(
        maps_as_pydicts="strict", types_mapper=lambda kind: kinds.get(str(kind))
    )
    for column in expand:
        cells = [dict(cell or ()) for cell in table[column].to_pylist()]
        for key in dict.fromkeys(key for cell in cells for key in cell):
            frame[f"{column}.{key}"] = [cell.get(key) for cell in cells]
    return frame


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra(package="pandas", extra=None, purpose="recording.to_pandas") from error
    return pandas

"""Lists of attributes in OTLP JSON as Arrow arrays: a parser, and the columns that they become."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from mttp.reading.column_types import ATTRIBUTES, TEMPLATES
from mttp.tables.arrow import booleans, encode, integers, lengths, numbers, scalar

__all__ = ["WITHOUT_SCALAR", "AttributeLists", "list_type", "parsed"]

_FIELDS: Final = {"string": "stringValue", "double": "doubleValue", "int": "intValue", "boolean": "boolValue"}
"""Fields of scalar values by type; of several in one value, the first counts."""
_TYPES: Final = [*_FIELDS]
WITHOUT_SCALAR: Final = -1
NOT_PLAIN: Final = -2
_INTEGER: Final = r"^-?\d{1,18}$"


class AttributeLists(NamedTuple):
    """The attributes of spans."""

    number: int
    """The number of spans."""
    keys: list[str]
    """The different keys."""
    values: list[Any]
    """Arrays of the values of each type; where an attribute has none of the type, its place is null."""
    rows: Any
    """The span of each attribute, from 0."""
    codes: Any
    """The key of each."""
    types: Any
    """The type of each value, from 0; `WITHOUT_SCALAR`, or `NOT_PLAIN` for what may be no valid integer."""
    places: Any
    """The place of each value."""

    @classmethod
    def of(cls, lists: Any) -> AttributeLists:
        """Return the attributes in an array of `list_type`; raises ValueError for a key that repeats."""
        from pyarrow import compute

        flat = lists.flatten()
        keys, value = flat.flatten()
        if keys.null_count:
            raise ValueError("an attribute has no key")
        texts, doubles, digits, switches = value.flatten()
        is_integer = compute.match_substring_regex(digits, _INTEGER)
        whole = compute.if_else(is_integer, digits, scalar(None, "VARCHAR")).cast("int64")
        values = [texts, doubles, whole, switches]
        types = np.where(numbers(digits.is_valid()), NOT_PLAIN, WITHOUT_SCALAR)
        for number in reversed(range(len(values))):
            types[numbers(values[number].is_valid()) > 0] = number
        encoded = keys.dictionary_encode()
        rows = np.repeat(np.arange(len(lists)), lengths(lists))
        codes = numbers(encoded.indices)
        pairs = np.sort(rows * len(encoded.dictionary) + codes)
        if np.any(pairs[1:] == pairs[:-1]):
            raise ValueError("a span has an attribute twice")
        return cls(
            len(lists), encoded.dictionary.to_pylist(), values, rows, codes, types, np.arange(len(flat))
        )

    def split(self) -> tuple[dict[str, Any], AttributeLists]:
        """Return the columns that Parquet files have of attributes, and the attributes without columns."""
        wanted = [ATTRIBUTES.get(key) or TEMPLATES.get(key.rpartition(".")[0]) for key in self.keys]
        types = np.array([_TYPES.index(type_) if type_ in _TYPES else len(_TYPES) for type_ in wanted])
        fits = self.types == types[self.codes]
        order = np.flatnonzero(fits)
        order = order[np.argsort(self.codes[order], kind="stable")]
        ends = np.cumsum(np.bincount(self.codes[order], minlength=len(wanted)))
        columns: dict[str, Any] = {}
        maps: dict[str, list[Any]] = {}
        for key, of_key in zip(self.keys, np.split(order, ends), strict=False):
            if len(of_key) and key in ATTRIBUTES:
                columns[key] = self._scattered(of_key)
            elif len(of_key):
                maps.setdefault(key.rpartition(".")[0], []).append(of_key)
        for prefix, of_keys in maps.items():
            columns[prefix] = self._map(prefix, np.sort(np.concatenate(of_keys)))
        others = {name: getattr(self, name)[~fits] for name in ("rows", "codes", "types", "places")}
        return columns, self._replace(**others)

    def value(self, number: int) -> Any:
        """Return the value of an attribute that has one."""
        return self.values[self.types[number]][self.places[number]].as_py()

    def _scattered(self, order: Any) -> Any:
        """Return a column of the values of these attributes, each in the row of its span."""
        chosen = np.full(self.number, -1)
        chosen[self.rows[order]] = self.places[order]
        return self.values[self.types[order[0]]].take(integers(chosen, is_valid=chosen >= 0))

    def _map(self, prefix: str, order: Any) -> Any:
        """Return a column of maps from names to the values of these attributes; null for spans without."""
        import pyarrow as pa

        names = [key.removeprefix(f"{prefix}.") for key in self.keys]
        keys = encode(names, "VARCHAR").take(integers(self.codes[order]))
        values = self.values[self.types[order[0]]].take(integers(self.places[order]))
        counts = np.bincount(self.rows[order], minlength=self.number)
        offsets = integers(np.concatenate([[0], np.cumsum(counts)])).cast("int32")
        maps = pa.MapArray.from_arrays(offsets, keys, values)
        buffers = [booleans(counts > 0).buffers()[1], offsets.buffers()[1]]
        entries = pa.StructArray.from_arrays(
            [keys, values], fields=[maps.type.key_field, maps.type.item_field]
        )
        return pa.Array.from_buffers(maps.type, len(counts), buffers, children=[entries])


def list_type() -> Any:
    """Return the Arrow type of a list of attributes with scalars."""
    import pyarrow as pa

    types = (pa.string(), pa.float64(), pa.string(), pa.bool_())
    value = pa.struct([*zip(_FIELDS.values(), types, strict=True)])
    return pa.list_(pa.struct([("key", pa.string()), ("value", value)]))


def parsed(documents: Any, field: str, type_: Any) -> Any:
    """Return a field of JSON documents, one in each line; raises ValueError for others."""
    import pyarrow as pa
    from pyarrow import json

    table = json.read_json(
        pa.BufferReader(documents),
        read_options=json.ReadOptions(use_threads=False, block_size=len(documents) + 1),
        parse_options=json.ParseOptions(
            explicit_schema=pa.schema([(field, type_)]), unexpected_field_behavior="ignore"
        ),
    )
    return table.column(field).combine_chunks()

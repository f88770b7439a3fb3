"""
Values that programs hand over and that are no plain data, by name; each factory returns a new one.

`NUMBERS` are numbers of other libraries, with the number that is recorded.
`OTHERS` have no exact conversion in each place, and many raise where another object answers.
`AWKWARD` are both; none of them may cost more than itself, wherever it is given.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pydantic

__all__ = ["AWKWARD", "NUMBERS", "OTHERS", "AskedError", "raising", "shared"]


class AskedError(Exception):
    """What the objects below raise."""


def _raise(*_: Any, **__: Any) -> Any:
    raise AskedError("asked")


def raising(*methods: str, error: type[Exception] = AskedError) -> Any:
    """Return an object whose special methods of these names raise."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error("asked")

    return type("Odd", (), dict.fromkeys(methods, fail))()


def shared(levels: int = 60, leaf: Any = 0.0) -> list[Any]:
    """Return a list that holds the next one twice, and so on: few objects, 2**levels values."""
    value = [leaf]
    for _ in range(levels):
        value = [value, value]
    return value


class Elementwise:
    """Compares as an array does: the answer is neither true nor false."""

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])

    __ne__ = __eq__
    __lt__ = __gt__ = __le__ = __ge__ = __eq__
    __hash__ = None


class NotGiven:
    """A marker of a client library for an argument that was left out."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "NOT_GIVEN"


class _Attributes:
    """An object that has no attribute that can be asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise AskedError(name)


class _EveryAttribute:
    """A proxy that answers each attribute with itself, as mocks do."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class _Class:
    """An object whose class can't be asked for."""

    @property
    def __class__(self) -> Any:
        raise AskedError("class")


class _WrongTypes:
    """Its special methods return values of the wrong types."""

    __repr__ = __str__ = lambda self: 3
    __len__ = __hash__ = __index__ = __bool__ = lambda self: "?"
    __float__ = __int__ = __iter__ = lambda self: b"?"


class _SameList:
    """`tolist` returns the object again."""

    def tolist(self) -> Any:
        return self


class _ObjectArray:
    """Converts to an array with itself."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        array = np.empty(2, object)
        array[:] = [self, 1.5]
        return array


class _NoArray:
    """Says that it converts to an array, and does not."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        return "no array"


class _Detached:
    """A tensor that can't be copied to the CPU."""

    detach = __array__ = _raise


class _Rows(Mapping[Any, Any]):
    """A mapping whose items raise."""

    def __getitem__(self, key: Any) -> Any:
        raise AskedError(key)

    def __iter__(self) -> Iterator[Any]:
        raise AskedError("iter")

    def __len__(self) -> int:
        return 3


class _Items(dict[Any, Any]):
    """A dict whose items raise."""

    items = keys = values = __iter__ = __len__ = __getitem__ = _raise


class _List(list[Any]):
    """A list that can't be read."""

    __iter__ = __len__ = __getitem__ = __bool__ = __eq__ = _raise
    __hash__ = None


class _Text(str):
    """A text whose methods raise."""

    __slots__ = ()
    __str__ = __repr__ = __eq__ = __len__ = encode = isascii = _raise
    __hash__ = str.__hash__


class _Integer(int):
    """An integer whose methods raise."""

    __int__ = __index__ = __float__ = __repr__ = __str__ = __eq__ = __lt__ = __abs__ = __bool__ = _raise
    __hash__ = int.__hash__


class _Float(float):
    """A float whose methods raise."""

    __float__ = __int__ = __repr__ = __str__ = __eq__ = __lt__ = __bool__ = _raise
    __hash__ = float.__hash__


class _Color(enum.Enum):
    RED = 1


class _Level(enum.IntEnum):
    HIGH = 3


class _Mode(str, enum.Enum):
    FAST = "fast"


@dataclasses.dataclass
class _Point:
    x: int = 1
    y: Any = None


class _Model(pydantic.BaseModel):
    name: str = "model"
    size: int = 3


_Pair = collections.namedtuple("_Pair", ["left", "right"])


def _cyclic_list() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def _cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {"name": "root"}
    value["children"] = [{"parent": value, "visits": 0}]
    return value


def _cyclic_array() -> Any:
    array = np.empty(2, object)
    array[:] = [1.5, array]
    return array


def _cyclic_dataclass() -> Any:
    value = _Point()
    value.y = [value]
    return value


def _generator() -> Any:
    return (number for number in range(3))


NUMBERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "numpy float64": (lambda: np.float64(0.5), 0.5),
    "numpy float32": (lambda: np.float32(0.5), 0.5),
    "numpy float16": (lambda: np.float16(0.5), 0.5),
    "numpy longdouble": (lambda: np.longdouble(0.5), 0.5),
    "numpy int64": (lambda: np.int64(3), 3),
    "numpy uint8": (lambda: np.uint8(3), 3),
    "numpy bool": (lambda: np.bool_(True), True),
    "array without dimensions": (lambda: np.array(2.5), 2.5),
    "enum of integers": (lambda: _Level.HIGH, 3),
    "integer that raises": (lambda: _Integer(3), 3),
    "float that raises": (lambda: _Float(0.5), 0.5),
}
"""Factories of numbers of other libraries and of subclasses, and the number of each."""

OTHERS: dict[str, Callable[[], Any]] = {
    # Of numpy and pandas.
    "numpy complex": lambda: np.complex64(1 + 2j),
    "numpy datetime": lambda: np.datetime64("2026-01-02T03:04:05"),
    "numpy timedelta": lambda: np.timedelta64(3, "s"),
    "numpy not a time": lambda: np.datetime64("NaT"),
    "numpy text": lambda: np.str_("text"),
    "numpy bytes": lambda: np.bytes_(b"\x00\xff"),
    "numpy record": lambda: np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])[0],
    "array": lambda: np.arange(3.0),
    "empty array": lambda: np.zeros((0, 3)),
    "array of objects": lambda: np.array([1, "two", None], object),
    "array of texts": lambda: np.array(["one", "two"]),
    "array of complex numbers": lambda: np.array([1 + 2j]),
    "array of times": lambda: np.array(["2026-01-02"], "datetime64[D]"),
    "array with itself": _cyclic_array,
    "masked element": lambda: np.ma.masked,
    "masked array": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "pandas Series": lambda: pd.Series([1.0, 2.0]),
    "pandas Series of objects": lambda: pd.Series([1, "two", None], dtype=object),
    "pandas DataFrame": lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
    "pandas Index": lambda: pd.Index([1, 2]),
    "pandas Categorical": lambda: pd.Categorical(["a", "b"]),
    "pandas NA": lambda: pd.NA,
    "pandas NaT": lambda: pd.NaT,
    "pandas Timestamp": lambda: pd.Timestamp("2026-01-02"),
    # Of the standard library and of pydantic.
    "None": lambda: None,
    "nothing was given": NotGiven,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "complex": lambda: 1 + 2j,
    "not a number": lambda: float("nan"),
    "infinity": lambda: float("-inf"),
    "huge integer": lambda: 10**5000,
    "integer beyond 64 bits": lambda: 2**64,
    "Decimal": lambda: decimal.Decimal("0.1"),
    "signaling Decimal": lambda: decimal.Decimal("sNaN"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "lone surrogate": lambda: "a\udcffb",
    "text with a null character": lambda: "a\0b",
    "bytes": lambda: b"\x00\xff",
    "bytearray": lambda: bytearray(b"\x00\xff"),
    "memoryview": lambda: memoryview(b"abc"),
    "set": lambda: {3, 1, "two"},
    "frozenset": lambda: frozenset({1}),
    "range": lambda: range(3),
    "deque": lambda: collections.deque([1, 2]),
    "named tuple": lambda: _Pair(1, "two"),
    "dict of other keys": lambda: {1: "a", None: "b", (1, 2): "c", np.float32(0.5): "d"},
    "dict of colliding keys": lambda: {1: "a", "1": "b"},
    "ordered dict": lambda: collections.OrderedDict(a=1),
    "dict view": lambda: {"a": 1}.keys(),
    "enum": lambda: _Color.RED,
    "enum of text": lambda: _Mode.FAST,
    "dataclass": lambda: _Point(),
    "pydantic model": lambda: _Model(),
    "namespace": lambda: SimpleNamespace(a=1),
    "datetime": lambda: datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
    "timedelta": lambda: datetime.timedelta(seconds=3),
    "path": lambda: pathlib.PurePosixPath("a/b"),
    "uuid": lambda: uuid.UUID(int=3),
    "class": lambda: _Model,
    "type": lambda: int,
    "exception": lambda: ValueError("wrong"),
    "function": lambda: _raise,
    "lambda": lambda: lambda: None,
    "partial": lambda: functools.partial(int, base=2),
    "module": lambda: collections,
    "generator": _generator,
    "iterator": lambda: iter([1, 2]),
    "object": object,
    # With cycles and sharing.
    "cyclic list": _cyclic_list,
    "cyclic dict": _cyclic_dict,
    "cyclic dataclass": _cyclic_dataclass,
    "shared list": shared,
    "set of shared tuples": lambda: {functools.reduce(lambda inner, _: (inner, inner), range(12), ())},
    "deep list": lambda: functools.reduce(lambda inner, _: [inner], range(3000), [1]),
    "nested containers": lambda: {"a": [{"b": ({1, 2}, [None, np.float32(1.5)])}]},
    # That raise where other objects answer.
    "element-wise comparison": Elementwise,
    "raising ==": lambda: raising("__eq__", "__ne__"),
    "raising repr": lambda: raising("__repr__"),
    "raising str": lambda: raising("__str__"),
    "raising repr by recursion": lambda: raising("__repr__", "__str__", error=RecursionError),
    "raising bool": lambda: raising("__bool__"),
    "raising len": lambda: raising("__len__"),
    "raising iter": lambda: raising("__iter__", "__next__", "__contains__", "__getitem__"),
    "raising hash": lambda: raising("__hash__"),
    "raising float": lambda: raising("__float__", "__int__", "__index__", "__complex__"),
    "raising array": lambda: raising("__array__", "__array_interface__"),
    "raising tolist": lambda: raising("tolist", "item"),
    "raising items": lambda: raising("items", "keys", "values"),
    "raising attributes": _Attributes,
    "raising getattr": lambda: raising("__getattr__", error=RuntimeError),
    "raising class": _Class,
    "raising everything": lambda: raising(
        *("__eq__", "__ne__", "__lt__", "__repr__", "__str__", "__bool__", "__len__", "__iter__"),
        *("__hash__", "__float__", "__int__", "__index__", "__array__", "__getattr__", "tolist", "items"),
        *("detach", "__format__", "__reduce_ex__", "__deepcopy__", "__copy__", "__dir__", "__contains__"),
    ),
    "mapping that raises": _Rows,
    "dict that raises": lambda: _Items(a=1),
    "list that raises": lambda: _List([1]),
    "text that raises": lambda: _Text("text"),
    "wrong types": _WrongTypes,
    "list of itself": _SameList,
    "array of itself": _ObjectArray,
    "no array": _NoArray,
    "tensor that raises": _Detached,
    "every attribute": _EveryAttribute,
}
"""Factories of values that are no numbers."""

AWKWARD: dict[str, Callable[[], Any]] = {
    **{name: factory for name, (factory, _) in NUMBERS.items()},
    **OTHERS,
}
"""Factories of all awkward values by name."""

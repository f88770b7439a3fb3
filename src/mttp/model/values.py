"""
The base class of all values: frozen dataclasses with equality by content and a short repr.

NaN equals NaN, arrays compare by dtype, shape and content, and span ids and times do not count.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar, cast

from mttp.model.interrupts import raise_interrupt
from mttp.model.reprs import bounded_repr

__all__ = ["Value", "differences", "has_masked", "is_masked", "same"]


def is_masked(value: object) -> bool:
    """Return whether a value is one masked element of numpy, which counts as missing."""
    return has_masked(value) and cast(Any, value).size == 1


def has_masked(value: object) -> bool:
    """Return whether a value is an array of numpy with masked elements."""
    ma: Any = sys.modules.get("numpy.ma")
    return ma is not None and issubclass(type(value), ma.MaskedArray) and bool(ma.getmaskarray(value).any())


def same(left: object, right: object) -> bool:
    """Return whether values are equal; NaN equals NaN, arrays compare by dtype, shape and content."""
    if left is right:
        return True
    try:
        return _same(left, right)
    except Exception as error:  # objects of other libraries may raise any exception
        raise_interrupt(error)
        return False


def _same(left: Any, right: Any) -> bool:
    if hasattr(left, "__array__") or hasattr(right, "__array__"):
        return _same_array(left, right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)
    return type(left) is type(right) and bool(left == right)


def _same_array(left: Any, right: Any) -> bool:
    import numpy as np

    if not (hasattr(left, "dtype") and hasattr(right, "dtype") and left.dtype == right.dtype):
        return False  # both are tested, since numpy treats None as float64
    return np.array_equal(left, right, equal_nan=left.dtype.kind in "fc")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Value:
    """The base class of all values, with equality by content."""

    __hash__: ClassVar[None]  # type: ignore[assignment]  # values hold arrays and mappings

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return not differences(self, other)

    def __repr__(self) -> str:
        """Return the class and the fields that differ from their defaults, long ones abridged."""
        members = (
            f"{item.name}={_abridged(getattr(self, item.name))}"
            for item in fields(self)
            if not _is_default(self, item)
        )
        return f"{type(self).__name__}({', '.join(members)})"


def _is_default(value: Value, item: Field[Any]) -> bool:
    default = item.default if item.default_factory is MISSING else item.default_factory()
    return default is not MISSING and same(getattr(value, item.name), default)


def _abridged(value: object) -> str:
    if hasattr(type(value), "dtype"):
        return f"<{cast(Any, value).dtype} {getattr(value, 'shape', ())}>"
    if isinstance(value, tuple) and value and isinstance(value[0], Value):
        return f"<{len(value)} {type(value[0]).__name__}>"
    text = bounded_repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def differences(left: Value, right: Value) -> list[str]:
    """Return the names of the compared fields in which two values of one class differ."""
    return [
        item.name
        for item in fields(left)
        if item.compare and not same(getattr(left, item.name), getattr(right, item.name))
    ]

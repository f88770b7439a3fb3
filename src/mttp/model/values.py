"""
What all values of the vocabulary share: frozen, equal when they say the same thing, shown by what they state.

NaN equals NaN, arrays compare by dtype, shape and content, and neither span ids nor clock times count.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar

__all__ = ["Value", "differences", "is_masked", "same"]


def is_masked(value: object) -> bool:
    """Whether a value is one masked element of numpy's, which is missing although a number lies below it."""
    ma: Any = sys.modules.get("numpy.ma")
    if ma is None or not isinstance(value, ma.MaskedArray):
        return False
    return value.size == 1 and bool(ma.getmaskarray(value).all())


def same(left: object, right: object) -> bool:
    """Whether two recorded values say the same thing, NaN and arrays included."""
    if hasattr(left, "__array__") or hasattr(right, "__array__"):
        return _same_array(left, right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)
    return type(left) is type(right) and left == right


def _same_array(left: Any, right: Any) -> bool:
    import numpy as np

    if not (hasattr(left, "dtype") and hasattr(right, "dtype") and left.dtype == right.dtype):
        return False  # asked one by one, since numpy takes None for float64
    return np.array_equal(left, right, equal_nan=left.dtype.kind in "fc")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Value:
    """Equality by meaning, shared by every value of the vocabulary."""

    __hash__: ClassVar[None]  # type: ignore[assignment]  # values hold arrays and mappings

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return not differences(self, other)

    def __repr__(self) -> str:
        """What was stated, arrays and long members abridged."""
        shown = (
            f"{item.name}={_abridged(getattr(self, item.name))}" for item in fields(self) if _said(self, item)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _said(value: Value, item: Field[Any]) -> bool:
    found = getattr(value, item.name)
    default = item.default if item.default_factory is MISSING else item.default_factory()
    return default is MISSING or not same(found, default)


def _abridged(value: object) -> str:
    if hasattr(value, "dtype"):
        return f"<{value.dtype} {getattr(value, 'shape', ())}>"
    if isinstance(value, tuple) and value and isinstance(value[0], Value):
        return f"<{len(value)} {type(value[0]).__name__}>"
    shown = repr(value)
    return shown if len(shown) <= 120 else f"{shown[:117]}..."


def differences(left: Value, right: Value) -> list[str]:
    """Names of the fields in which two values of one class differ."""
    return [
        item.name
        for item in fields(left)
        if item.compare and not same(getattr(left, item.name), getattr(right, item.name))
    ]

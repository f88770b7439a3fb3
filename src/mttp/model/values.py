"""
The base class of all values: frozen dataclasses with equality by content and a short repr.

NaN equals NaN, arrays compare by dtype, shape and content, and span ids and times do not count.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar

__all__ = ["Value", "differences", "is_masked", "same"]


def is_masked(value: object) -> bool:
    """Return whether a value is one masked element of numpy, which counts as missing."""
    ma: Any = sys.modules.get("numpy.ma")
    if ma is None or not isinstance(value, ma.MaskedArray):
        return False
    return value.size == 1 and bool(ma.getmaskarray(value).all())


def same(left: object, right: object) -> bool:
    """Return whether values are equal; NaN equals NaN, arrays compare by dtype, shape and content."""
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
    if hasattr(value, "dtype"):
        return f"<{value.dtype} {getattr(value, 'shape', ())}>"
    if isinstance(value, tuple) and value and isinstance(value[0], Value):
        return f"<{len(value)} {type(value[0]).__name__}>"
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def differences(left: Value, right: Value) -> list[str]:
    """Return the names of the compared fields in which two values of one class differ."""
    return [
        item.name
        for item in fields(left)
        if item.compare and not same(getattr(left, item.name), getattr(right, item.name))
    ]

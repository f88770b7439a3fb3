"""Where two recorded values differ, within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def is_close(recorded: Any, seen: Any, tolerance: float) -> bool:
    """
    Whether two values are equal; numbers within `tolerance`, absolute and relative, and NaN equals NaN.

    Mappings, sequences and arrays are compared member by member; a scalar equals an array of one number.
    """
    if isinstance(recorded, Mapping) or isinstance(seen, Mapping):
        return (
            isinstance(recorded, Mapping)
            and isinstance(seen, Mapping)
            and {str(key) for key in recorded} == {str(key) for key in seen}
            and all(is_close(value, _member(seen, key), tolerance) for key, value in recorded.items())
        )
    if isinstance(recorded, str) or isinstance(seen, str):
        return str(recorded) == str(seen)
    if recorded is None or seen is None:
        return recorded is seen
    if _is_nested(recorded) or _is_nested(seen):
        return (
            isinstance(recorded, Sequence)
            and isinstance(seen, Sequence)
            and len(recorded) == len(seen)
            and all(is_close(left, right, tolerance) for left, right in zip(recorded, seen, strict=True))
        )
    return _are_numbers_close(recorded, seen, tolerance)


def _member(values: Mapping[Any, Any], key: Any) -> Any:
    if key in values:
        return values[key]
    return next(value for name, value in values.items() if str(name) == str(key))


def _is_nested(value: Any) -> bool:
    """Whether it is a sequence with members that are no numbers."""
    return isinstance(value, (list, tuple)) and any(
        isinstance(item, (Mapping, str, list, tuple)) or hasattr(item, "shape") or item is None
        for item in value
    )


def _are_numbers_close(recorded: Any, observed: Any, tolerance: float) -> bool:
    import numpy as np

    try:
        first, second = np.asarray(recorded), np.asarray(observed)
    except ValueError:
        return False
    if first.size != second.size or "O" in (first.dtype.kind, second.dtype.kind):
        return bool(first.shape == second.shape and recorded == observed)
    if first.shape != second.shape and min(first.ndim, second.ndim) > 0:
        return False
    if first.dtype.kind in "US" or second.dtype.kind in "US":
        return bool(np.array_equal(first, second))
    return bool(np.allclose(first, second, rtol=tolerance, atol=tolerance, equal_nan=True))


def distance(recorded: Any, seen: Any) -> float | None:
    """The largest absolute difference of two numbers or arrays; None for other values."""
    import numpy as np

    try:
        first, second = np.asarray(recorded, dtype=float), np.asarray(seen, dtype=float)
        gap = float(np.max(np.abs(first - second))) if first.shape == second.shape and first.size else None
    except (TypeError, ValueError):
        return None
    return gap if gap is not None and math.isfinite(gap) else None

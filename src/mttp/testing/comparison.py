"""Comparing recorded values, with a line for each difference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import Any

from mttp.model.values import same

__all__ = ["assert_same", "where_different"]

_SHOWN_CHARACTERS = 200
_SHOWN_LINES = 20
_ABSENT: Any = type("_Absent", (), {"__repr__": lambda _: "nothing"})()


def assert_same(expected: object, actual: object, *, ignore: Collection[str] = ()) -> None:
    """
    Raise AssertionError with the places in which two values differ.

    The values are those of `mttp.model`, or lists and mappings of them.
    They are compared with `==`: NaN equals NaN, and span ids and clock times are ignored.
    `ignore` names fields that are not compared, such as `{"trace_id", "id", "run_id"}`.
    """
    places = where_different(expected, actual, ignore=ignore)
    if places:
        shown = [f"  {place}" for place in places[:_SHOWN_LINES]]
        more = len(places) - len(shown)
        counted = "one place" if len(places) == 1 else f"{len(places)} places"
        raise AssertionError(
            "\n".join(
                [
                    f"what was recorded differs in {counted}:",
                    *shown,
                    *([f"  … and {more} more"] if more else []),
                ]
            )
        )


def where_different(expected: object, actual: object, *, ignore: Collection[str] = ()) -> list[str]:
    """Return a line for each place in which two values differ: `path: expected this, was that`."""
    return [f"{path or 'it'}: {difference}" for path, difference in _places(expected, actual, "", ignore)]


def _places(expected: Any, actual: Any, path: str, ignore: Collection[str]) -> Iterator[tuple[str, str]]:
    if is_dataclass(expected) and type(expected) is type(actual):
        for item in fields(expected):
            if item.compare and item.name not in ignore:
                name = f"{path}.{item.name}" if path else item.name
                yield from _places(getattr(expected, item.name), getattr(actual, item.name), name, ignore)
    elif isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            pair = expected.get(key, _ABSENT), actual.get(key, _ABSENT)
            yield from _places(*pair, f"{path}[{key!r}]", ignore)
    elif isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        for index, pair in enumerate(zip_longest(expected, actual, fillvalue=_ABSENT)):
            yield from _places(*pair, f"{path}[{index}]", ignore)
    elif not same(expected, actual):
        yield (
            path,
            _array_difference(expected, actual) or f"expected {_shown(expected)}, was {_shown(actual)}",
        )


def _array_difference(expected: Any, actual: Any) -> str:
    """Return how two arrays of one dtype and shape differ; empty for other values."""
    if not (_is_array(expected) and _is_array(actual)):
        return ""
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return ""
    import numpy as np

    is_other = np.array([not same(one, other) for one, other in zip(expected.flat, actual.flat, strict=True)])
    first = int(is_other.argmax())
    place = ", ".join(str(int(index)) for index in np.unravel_index(first, expected.shape))
    found = f"expected {expected.flat[first]} at [{place}], was {actual.flat[first]}"
    return f"{found} ({int(is_other.sum())} of {is_other.size} elements differ)"


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and value.shape != ()


def _shown(value: Any) -> str:
    if _is_array(value):
        return f"{value.dtype} array of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"

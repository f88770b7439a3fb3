"""The inputs of a sample, held against what the spec says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mttp.rewards.scores import shown

__all__ = ["problem"]


def problem(inputs: Mapping[str, str], sample: Mapping[str, Any]) -> str | None:
    """What is wrong with a sample, in words; None where it has all inputs, of the stated types."""
    for name, stated in inputs.items():
        kind = stated.rstrip("?")
        value = sample.get(name)
        if value is None and stated.endswith("?"):
            continue
        if name not in sample:
            return f"the sample has no {name}; the spec's inputs are {', '.join(inputs)}"
        if not _IS.get(kind, _any)(value):
            return f"{name} is {shown(value)}, the spec says {kind}"
    return None


def _any(_: Any) -> bool:
    return True


def _number(value: Any) -> bool:
    return (
        hasattr(type(value), "__float__") and not isinstance(value, bool) and getattr(value, "ndim", 0) == 0
    )


def _integer(value: Any) -> bool:
    return (
        hasattr(type(value), "__index__") and not isinstance(value, bool) and getattr(value, "ndim", 0) == 0
    )


def _boolean(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _array(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


_IS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "array": _array,
    "object": lambda value: isinstance(value, Mapping),
}

"""Validation of a sample's inputs against the spec's `inputs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mttp.model.episodes import Episode
from mttp.rewards.component_results import shown


class Inputs:
    """The expected names and types of a sample's inputs."""

    def __init__(self, types: Mapping[str, str]) -> None:
        """Take types by name; a `?` after the type makes the input optional."""
        self._names = ", ".join(types)
        self._expected = [
            (name, kind.rstrip("?"), _IS.get(kind.rstrip("?"), lambda _: True), kind.endswith("?"))
            for name, kind in types.items()
        ]

    def problem(self, sample: Mapping[str, Any]) -> str | None:
        """Return an error message, or None for a sample that has all inputs with the expected types."""
        for name, kind, is_one, is_optional in self._expected:
            value = sample.get(name)
            if value is None and is_optional:
                continue
            if value is None and name not in sample:
                return f"the sample lacks the input {name}; the spec's inputs are {self._names}"
            if not is_one(value):
                return f"the input {name} is {shown(value)}, expected {kind}"
        return None


def _number(value: Any) -> bool:
    return hasattr(type(value), "__float__") and _is_one(value)


def _integer(value: Any) -> bool:
    return hasattr(type(value), "__index__") and _is_one(value)


def _is_one(value: Any) -> bool:
    return not _boolean(value) and getattr(value, "ndim", 0) == 0


def _boolean(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


_IS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "array": lambda value: isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0,
    "object": lambda value: isinstance(value, Mapping),
    "episode": lambda value: isinstance(value, Episode),
}

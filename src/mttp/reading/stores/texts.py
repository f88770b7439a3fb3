"""Values of stores that keep text instead, with the types that the convention has for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mttp.semconv import attributes as a
from mttp.semconv.types import ATTRIBUTE_TYPES, TEMPLATE_TYPES

__all__ = ["typed"]

_DTYPES = {
    a.OBSERVATION_VALUE: a.OBSERVATION_DTYPE,
    a.ACTION_VALUE: a.ACTION_DTYPE,
    a.EPISODE_FINAL_OBSERVATION_VALUE: a.EPISODE_FINAL_OBSERVATION_DTYPE,
}


def typed(found: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes, where text stands for a number, a truth or an array of the convention with that."""
    return {key: _typed(key, value, found) if type(value) is str else value for key, value in found.items()}


def _typed(key: str, text: str, found: Mapping[str, Any]) -> Any:
    wanted = ATTRIBUTE_TYPES.get(key) or TEMPLATE_TYPES.get(key.rpartition(".")[0], "any")
    is_array = wanted.endswith("[]") or _DTYPES.get(key) in found
    read: Callable[[str], Any] = _READ.get(wanted, _array if is_array else str)
    try:
        return read(text)
    except ValueError:  # it was cut, or is something else
        return text


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _array(text: str) -> Any:
    return json.loads(text) if text.startswith("[") else text


_READ: Mapping[str, Callable[[str], Any]] = {"int": int, "double": float, "boolean": _truth}

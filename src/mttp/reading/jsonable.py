"""Converts values to strict JSON: NaN and infinities become null, bytes become base64."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["jsonable", "to_json"]


def jsonable(value: object) -> Any:
    """`value` as JSON types; a dataclass becomes an object with its fields."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if is_dataclass(value):
        return {item.name.rstrip("_"): jsonable(getattr(value, item.name)) for item in fields(value)}
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    return str(value)


def to_json(value: object, *, indent: int | None = None) -> str:
    """`value` as one JSON document."""
    return json.dumps(jsonable(value), ensure_ascii=False, allow_nan=False, indent=indent)

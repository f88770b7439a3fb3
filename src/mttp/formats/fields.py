"""Reads fields of other libraries' records, of which the types are not certain."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

__all__ = ["as_list", "as_mapping", "json_value", "nanoseconds", "number", "text", "trace_id", "whole"]


def number(value: object) -> float | None:
    """Return a finite number, or a flag, as a float; None for anything else."""
    if not isinstance(value, (int, float)):
        return None
    try:
        figure = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return figure if math.isfinite(figure) else None


def whole(value: object) -> int | None:
    """Return a whole number; None for anything else."""
    figure = None if isinstance(value, bool) else number(value)
    return int(figure) if figure is not None and figure == int(figure) else None


def text(value: object) -> str | None:
    """Return a text, or a number as text; None for an empty text and anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return a list or tuple; an empty one for anything else."""
    return value if isinstance(value, (list, tuple)) else ()


def nanoseconds(seconds: object) -> int | None:
    """
    Return a time as nanoseconds since the Unix epoch; None if it is not a time after 1970.

    Takes seconds since the Unix epoch and ISO 8601; a time without a zone is UTC.
    """
    if isinstance(seconds, str):
        try:
            moment = datetime.fromisoformat(seconds.replace("Z", "+00:00"))
        except ValueError:
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        seconds = moment.timestamp()
    epoch = number(seconds)
    return None if epoch is None or not 0 < epoch < 2**33 else round(epoch * 1e9)


def trace_id(*parts: object) -> str:
    """
    Return a trace id of 32 hex digits: the one part if it is one, else a digest of all parts.

    The same record always has the same trace id, so that a file that is imported twice is one recording.
    """
    if len(parts) == 1 and isinstance(parts[0], str):
        digits = parts[0].replace("-", "").lower()
        if len(digits) == 32 and digits.strip("0") and not digits.strip("0123456789abcdef"):
            return digits
    document = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(document.encode()).hexdigest()[:32]


def json_value(value: object) -> object:
    """Return the value of a JSON text that holds an object or a list; anything else unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value

"""Plain data: which values a spec document and its digest can represent."""

from __future__ import annotations

import math
from typing import Any

_MOST = 2**53 - 1
"""The largest integer that canonical JSON (RFC 8785) represents exactly."""
_DEEPEST = 100


def unfit(value: Any, *, is_exact: bool = False, depth: int = 0) -> str | None:
    """Return why a value is not plain data, or with `is_exact` why a digest can't hold it; None if it is."""
    if depth > _DEEPEST:
        return f"is nested more than {_DEEPEST} levels deep"
    if isinstance(value, (list, tuple)):
        problems = (unfit(item, is_exact=is_exact, depth=depth + 1) for item in value)
        return next(filter(None, problems), None)
    if isinstance(value, dict):
        return _of_mapping(value, is_exact=is_exact, depth=depth)
    if value is None or type(value) in (bool, int, float, str):
        return _inexact(value) if is_exact else None
    kind = type(value).__qualname__
    return f"holds {value!r:.60} of the type {kind}; use text, a number, a bool, a list or a dict"


def _inexact(value: Any) -> str | None:
    if type(value) is int and not -_MOST <= value <= _MOST:
        return f"holds {value}, an integer beyond 2**53; write it as text"
    if type(value) is float and not math.isfinite(value):
        return f"holds {value}, which JSON can't represent; write it as text"
    return _of_text(value) if isinstance(value, str) else None


def _of_mapping(value: dict[Any, Any], *, is_exact: bool, depth: int) -> str | None:
    if other := [key for key in value if not isinstance(key, str)]:
        return f"holds a dict with the key {other[0]!r:.60}; write keys as text"
    return unfit([*value, *value.values()], is_exact=is_exact, depth=depth)


def _of_text(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"holds {value!a:.60}, which UTF-8 can't encode; remove the surrogates"
    return None

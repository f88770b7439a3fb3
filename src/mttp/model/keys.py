"""The last part of an attribute's key, made of a name that a user chose."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["name_key"]

_NOT_A_KEY = re.compile(r"[^a-z0-9_]")


def name_key(name: object) -> str:
    """A user's name in lower case letters, digits and underscores."""
    written = str.__str__(name) if isinstance(name, str) else str(name)  # an enum's text is its value
    return _key(written)


@lru_cache(maxsize=1 << 12)
def _key(written: str) -> str:
    return _NOT_A_KEY.sub("_", written.lower())

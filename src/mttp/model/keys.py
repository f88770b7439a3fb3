"""The last part of an attribute's key, from a user-supplied name."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["name_key"]

_DISALLOWED = re.compile(r"[^a-z0-9_]")


def name_key(name: object) -> str:
    """Return a name in lower case, with an underscore for each character but ASCII letters and digits."""
    text = str.__str__(name) if isinstance(name, str) else str(name)  # for an enum of str, its value
    return _key(text)


@lru_cache(maxsize=1 << 12)
def _key(text: str) -> str:
    return _DISALLOWED.sub("_", text.lower())

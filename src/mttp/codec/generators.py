"""States of random generators, whose digests identify the randomness of episodes."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Mapping
from operator import methodcaller
from typing import Any

__all__ = ["GeneratorState", "digest", "sha256"]


class GeneratorState:
    """
    A snapshot of a generator's state; `str` of it is the digest, computed on demand.

    `parts` is the state as numpy returns it: integers and text, not shared with other code.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return sha256(self.parts)

    @property
    def document(self) -> bytes:
        """The state for `digest`, which may be computed in another process."""
        return marshal.dumps(dict(self.parts))


def digest(document: bytes) -> str:
    """Return `sha256` of the state in a document."""
    return sha256(marshal.loads(document))


def sha256(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a state as JSON with sorted keys and arrays as lists; 64 hex digits."""
    return hashlib.sha256(_document(state).encode()).hexdigest()


_document = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=methodcaller("tolist")).encode
"""Return a state as JSON; a shared encoder saves creating one per call as `json.dumps` does."""

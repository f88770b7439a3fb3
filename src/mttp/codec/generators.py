"""The state of a random generator, by which an episode says where its randomness came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["GeneratorState", "sha256"]


class GeneratorState:
    """
    A generator's state at one time; its digest is computed when its text is needed.

    `parts` are the state as numpy gives it: integers and text, not shared with other code.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return sha256(self.parts)


def sha256(state: Mapping[str, Any]) -> str:
    """SHA-256 of a generator's state as JSON with sorted keys, arrays as lists; 64 hex digits."""
    return hashlib.sha256(_document(state).encode()).hexdigest()


def _listed(value: Any) -> Any:
    return value.tolist()


_document = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_listed).encode
"""A generator's state as text; `json.dumps` would make an encoder for each."""

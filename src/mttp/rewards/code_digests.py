"""Digests of scoring code, which name the method by which they are made."""

from __future__ import annotations

from typing import Final

__all__ = ["METHOD", "is_same_method"]

METHOD: Final = "files:1"
"""The method of this version, before the 64 hex digits of a digest; digests of older versions have none."""


def is_same_method(digest: str, other: str) -> bool:
    """Return whether two digests are made by one method, so that different digests mean different code."""
    return digest.rpartition(":")[0] == other.rpartition(":")[0]

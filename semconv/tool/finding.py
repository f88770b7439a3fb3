"""What is wrong with the registry, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tool.registry import Registry

__all__ = ["Check", "Finding", "Problem"]

Problem: TypeAlias = tuple[str, str, str]
"""What breaks a rule: the file, the definition in it, and what is wrong and what to do about it."""

Check: TypeAlias = Callable[[Registry], Iterator[Problem]]
"""A rule; its name is the id of what it finds."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """One thing that is wrong."""

    file: str
    """The file to change, below the registry's folder."""
    where: str
    """The definition in that file."""
    id: str
    """The check that found it."""
    message: str
    """What is wrong, and what to do about it."""

    def __str__(self) -> str:
        return f"{self.file}: {self.where}: {self.message} [{self.id}]"

"""What is wrong with the registry, as data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


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

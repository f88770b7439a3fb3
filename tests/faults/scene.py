"""The registry of faults: each is a function that causes one while a session records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from faults.account import Account

__all__ = ["FAULTS", "Fault", "fault"]


class Fault(NamedTuple):
    """A fault."""

    name: str
    promise: str
    """What mttp guarantees."""
    cause: Callable[[Path], Account]
    """Records in a folder while the fault happens, checks the account and returns it."""


FAULTS: dict[str, Fault] = {}
"""All faults, by the name of their function."""


def fault(name: str, promise: str) -> Callable[[Callable[[Path], Account]], Callable[[Path], Account]]:
    """Register a fault."""

    def registered(cause: Callable[[Path], Account]) -> Callable[[Path], Account]:
        FAULTS[cause.__name__] = Fault(name, promise, cause)
        return cause

    return registered

"""What a check of `mttp doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """One fact about the set-up, and whether it is a problem."""

    check: str
    """What was checked, e.g. `"request"`."""
    status: Literal["ok", "warning", "error"]
    """An error keeps episodes from being recorded as they should be; a warning may."""
    found: str
    """What was found, without secrets."""
    advice: str = ""
    """What to do; empty if there is nothing to do."""

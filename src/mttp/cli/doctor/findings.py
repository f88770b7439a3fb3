"""What a check of `mttp doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["SetupFinding", "error", "ok", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFinding:
    """One fact about the set-up, and whether it is a problem."""

    check: str
    """What was checked, e.g. `"clock"`."""
    status: Literal["ok", "warning", "error"]
    """An error keeps episodes from being recorded as they should be; a warning may."""
    found: str
    """What was found, without secrets."""
    advice: str = ""
    """What to do; empty if there is nothing to do."""


def ok(check: str, found: str, advice: str = "") -> SetupFinding:
    """Return a finding that is no problem."""
    return SetupFinding(check=check, status="ok", found=found, advice=advice)


def warning(check: str, found: str, advice: str) -> SetupFinding:
    """Return a finding that may be a problem."""
    return SetupFinding(check=check, status="warning", found=found, advice=advice)


def error(check: str, found: str, advice: str) -> SetupFinding:
    """Return a problem."""
    return SetupFinding(check=check, status="error", found=found, advice=advice)

"""Compares the spans of a recording with the registry of the convention."""

from mttp.reading.checking.checker import check
from mttp.reading.checking.findings import LEVELS, Example, Finding, Findings, Level

__all__ = ["LEVELS", "Example", "Finding", "Findings", "Level", "check"]

"""
From files, directories and sessions back to episodes, runs, tables and summaries.

What only `read` needs is not imported for a summary, nor the other way round.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mttp.reading.problems import Problem
    from mttp.reading.recording import Recording, read
    from mttp.reading.scanning import Scan, scan
    from mttp.reading.summary import Summary, summarize

__all__ = ["Problem", "Recording", "Scan", "Summary", "read", "scan", "summarize"]

_HOMES = {
    "Problem": "problems",
    "Recording": "recording",
    "read": "recording",
    "Scan": "scanning",
    "scan": "scanning",
    "Summary": "summary",
    "summarize": "summary",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"mttp.reading.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'mttp.reading' has no attribute {name!r}")

"""How often each detector alarms on healthy runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["FALSE_ALARMS", "FALSE_ALARM_METHOD"]

FALSE_ALARM_METHOD: Final = (
    "share of healthy runs with a finding of this kind, medium or high: the largest over the kinds of run of "
    "benchmarks/diagnoses.py"
)
FALSE_ALARMS: Final[Mapping[str, float]] = {}
"""The measured rate of each detector that ever alarmed; 0 for the others."""

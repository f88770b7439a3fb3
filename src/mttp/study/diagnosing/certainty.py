"""How severe and how sure a finding is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mttp.study.diagnosis import SEVERITIES, Severity

CERTAIN: Final = "certain: counted, not estimated"
LIKELY: Final = "likely: the whole 95 % interval is beyond the threshold"
HINT: Final = "a hint: no independent measure confirms it"


def severity_of(value: float, thresholds: Sequence[float]) -> Severity | None:
    """The worst severity whose threshold the value reaches; they begin with that of high."""
    return next((level for level, least in zip(SEVERITIES, thresholds, strict=False) if value >= least), None)

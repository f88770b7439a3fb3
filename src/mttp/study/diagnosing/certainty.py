"""How sure a finding is, in words."""

from __future__ import annotations

from typing import Final

__all__ = ["CERTAIN", "HINT", "LIKELY"]

CERTAIN: Final = "certain: counted, not estimated"
LIKELY: Final = "likely: the whole 95 % interval is beyond the threshold"
HINT: Final = "a hint: no independent measure confirms it"

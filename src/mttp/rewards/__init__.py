"""
Reward specs: what is paid, by which rule, at which version.

mttp supplies no reward functions; a spec names, versions, checks, composes and tests those of the user.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RESULT"]

RESULT: Final = "mttp_result"
"""Where the info of an environment's step has what a spec says of it, an `mttp.RewardResult`."""

"""
TRL's GRPOTrainer and RLOOTrainer, and their subclasses.

A trainer generates a batch of completions, scores them, and learns from them in one or more updates.
Each completion is recorded as an episode after its batch is scored, and each update as an update.
"""

from __future__ import annotations

from mttp.integrations.trl.inplace import attach
from mttp.integrations.trl.library import attach_all

__all__ = ["attach", "attach_all"]

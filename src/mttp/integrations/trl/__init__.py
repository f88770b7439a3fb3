"""
TRL's trainers that learn from groups of completions: GRPOTrainer, RLOOTrainer, and what derives from them.

A trainer generates a batch of completions, scores them, and learns from them in one or more updates.
Each completion is an episode, recorded as a value once its batch is scored; each update is recorded as well.
"""

from __future__ import annotations

from mttp.integrations.trl.inplace import attach
from mttp.integrations.trl.library import attach_all

__all__ = ["attach", "attach_all"]

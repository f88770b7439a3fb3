"""
Stable-Baselines3's algorithms, recorded by a callback.

A model is recorded from its next `learn` on: training episodes, value estimates and log probabilities,
advantages, and updates.
"""

from __future__ import annotations

from mttp.errors import MissingExtra

try:
    import stable_baselines3 as _stable_baselines3  # noqa: F401 - checked here, used in the modules
except ImportError as error:
    raise MissingExtra(
        package="stable-baselines3>=2.7", extra="sb3", purpose="recording Stable-Baselines3's training"
    ) from error

from mttp.integrations.stable_baselines3.library import attach, attach_all

__all__ = ["attach", "attach_all"]

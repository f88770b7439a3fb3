"""
Stable-Baselines3's algorithms, by the callback that the library offers.

A model is recorded from the next `learn` on: its training episodes, what it thought of each step, the
advantages that it computed and the updates that it made.
"""

from __future__ import annotations

from mttp.errors import MissingExtra

try:
    import stable_baselines3 as _stable_baselines3  # noqa: F401 - asked for here, and used in each module
except ImportError as error:
    raise MissingExtra(
        package="stable-baselines3>=2.7", extra="sb3", purpose="recording Stable-Baselines3's training"
    ) from error

from mttp.integrations.stable_baselines3.library import attach, attach_all

__all__ = ["attach", "attach_all"]

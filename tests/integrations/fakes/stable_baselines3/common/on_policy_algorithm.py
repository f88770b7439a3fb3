"""What the library's on-policy algorithms derive from."""

from __future__ import annotations

from stable_baselines3.common.base_class import BaseAlgorithm


class OnPolicyAlgorithm(BaseAlgorithm):
    """Learns as they all do."""

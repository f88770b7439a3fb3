"""What the library's off-policy algorithms derive from."""

from __future__ import annotations

from stable_baselines3.common.base_class import BaseAlgorithm


class OffPolicyAlgorithm(BaseAlgorithm):
    """Learns as they all do."""

"""What tests of a training loop need."""

from __future__ import annotations

from mttp.testing.receiver import Behaviour, OtlpReceiver

__all__ = ["Behaviour", "OtlpReceiver"]

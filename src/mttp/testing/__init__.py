"""
Tools for testing code that records: captured episodes, counting ids, a frozen clock, comparisons, a receiver.

pytest loads the plugin in `mttp.testing.plugin` by its entry point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.testing.capture import Captured, capture_episodes
    from mttp.testing.clock import FrozenClock, frozen_clock
    from mttp.testing.comparison import assert_same, where_different
    from mttp.testing.ids import CountingIds, counting_ids
    from mttp.testing.receiver import Behaviour, OtlpReceiver

__all__ = [
    "capture_episodes",
    "Captured",
    "counting_ids",
    "CountingIds",
    "frozen_clock",
    "FrozenClock",
    "assert_same",
    "where_different",
    "OtlpReceiver",
    "Behaviour",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "capture_episodes": "capture",
        "Captured": "capture",
        "counting_ids": "ids",
        "CountingIds": "ids",
        "frozen_clock": "clock",
        "FrozenClock": "clock",
        "assert_same": "comparison",
        "where_different": "comparison",
        "OtlpReceiver": "receiver",
        "Behaviour": "receiver",
    },
)

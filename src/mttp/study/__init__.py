"""Studies of recordings: whether a run is better than another, by statistics that state their method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.study.comparing import compare
    from mttp.study.comparison import Comparison, Flip, MetricComparison
    from mttp.study.differences import SideDifference

__all__ = ["Comparison", "Flip", "MetricComparison", "SideDifference", "compare"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "Comparison": "comparison",
        "Flip": "comparison",
        "MetricComparison": "comparison",
        "SideDifference": "differences",
        "compare": "comparing",
    },
)

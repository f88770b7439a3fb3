"""Faults of all kinds, and one measure for all of them: recorded = delivered + pending + lost."""

from faults import conditions, disks, processes, receivers
from faults.scene import FAULTS

__all__ = ["FAULTS", "conditions", "disks", "processes", "receivers"]

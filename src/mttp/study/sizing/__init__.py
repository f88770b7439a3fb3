"""Sizes of recordings before they are made: bytes, spans, requests and memory of a number of workers."""

from __future__ import annotations

from mttp.study.sizing.estimate import CollectorNeeds, ProcessMemory, Sizing, StoredSize, size
from mttp.study.sizing.workload import Workload

__all__ = ["CollectorNeeds", "StoredSize", "ProcessMemory", "Sizing", "Workload", "size"]

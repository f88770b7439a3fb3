"""Ids on which all processes that train together agree, without asking each other while they train."""

from __future__ import annotations

import itertools
import os
import sys
from hashlib import blake2b

__all__ = ["Launch"]

_attached = itertools.count()
"""Trainers are attached to in the same order in every process."""


class Launch:
    """
    One trainer as one launch of its processes has it; another launch of the same run has other ids.

    A rank derives the ids of the others' episodes, so that a group that is spread over several is one record.
    """

    def __init__(self, run_id: str, *, process: int, processes: int) -> None:
        self.process = process
        self.processes = processes
        self.id = _agreed(next(_attached)) if processes > 1 else os.urandom(16).hex()
        if not self.id:  # they have the run in common, at least
            self.id = _digest(run_id)

    def trace_id(self, batch: int, row: int) -> str:
        """The trace of a completion, by its batch and its row among those of all processes."""
        return _digest(f"{self.id}/{batch}/{row}")

    def group_id(self, batch: int, position: int) -> str:
        """The group of a prompt, by its batch and its position among the prompts of all processes."""
        return f"{self.id[:8]}-{batch}-{position}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _agreed(attached: int) -> str:
    """The value that the first process put into torch's store; unlike a collective, this does not wait."""
    torch = sys.modules.get("torch")
    try:
        store = torch.distributed.distributed_c10d._get_default_store()  # type: ignore[union-attr]
        found = store.compare_set(f"mttp/trl/{attached}", "", os.urandom(16).hex())
    except Exception:  # whatever a store, or its absence, raises
        return ""
    return found.decode() if isinstance(found, bytes) else str(found)

"""Ids that all processes of a training derive alike, without communicating while they train."""

from __future__ import annotations

import itertools
import os
import sys
from hashlib import blake2b

from mttp.model.interrupts import raise_interrupt

__all__ = ["Launch"]

_trainers = itertools.count()
"""Numbers the instrumented trainers, whose order is the same in every process."""


class Launch:
    """
    Derives the ids of one trainer in one launch of its processes; another launch of the run has other ids.

    Each rank can derive the ids of all episodes, so that a group over several ranks is one record.
    """

    def __init__(self, run_id: str, *, process: int, processes: int) -> None:
        self.process = process
        self.processes = processes
        self.id = _shared_value(next(_trainers)) if processes > 1 else os.urandom(16).hex()
        if not self.id:  # all processes know the run's id
            self.id = _digest(run_id)

    def trace_id(self, batch: int, row: int) -> str:
        """Return the trace id of a completion, by its row among those of all processes."""
        return _digest(f"{self.id}/{batch}/{row}")

    def group_id(self, batch: int, position: int) -> str:
        """Return the group id of a prompt, by its position among the prompts of all processes."""
        return f"{self.id[:8]}-{batch}-{position}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _shared_value(trainer: int) -> str:
    """
    Return the random value that the first process stored in torch's store; empty without a store.

    Unlike a collective operation, this does not wait for the other processes.
    """
    torch = sys.modules.get("torch")
    try:
        store = torch.distributed.distributed_c10d._get_default_store()  # type: ignore[union-attr]
        stored = store.compare_set(f"mttp/trl/{trainer}", "", os.urandom(16).hex())
    except Exception as error:  # any error of the store, or no torch
        raise_interrupt(error)
        return ""
    return stored.decode() if isinstance(stored, bytes) else str(stored)

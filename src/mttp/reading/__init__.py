"""Reads recordings: files, sessions and trace stores to episodes, runs, tables and summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.reading.datasets import TrainingDataset, training_dataset
    from mttp.reading.problems import Problem
    from mttp.reading.recording import Recording, read
    from mttp.reading.scanning import Scan, scan
    from mttp.workflows.curves import write_curves

__all__ = [
    "Problem",
    "Recording",
    "Scan",
    "TrainingDataset",
    "read",
    "scan",
    "training_dataset",
    "write_curves",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "Problem": "problems",
        "Recording": "recording",
        "read": "recording",
        "Scan": "scanning",
        "scan": "scanning",
        "TrainingDataset": "datasets",
        "training_dataset": "datasets",
        "write_curves": "workflows.curves",
    },
)

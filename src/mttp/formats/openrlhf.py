"""OpenRLHF: generated and scored samples as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import completion_episode, group_id, scored
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.model.episodes import Episode

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "OpenRLHF samples"
LACKS = ("tokens and log probabilities", "advantages", "training steps", "seeds, times")
_OWN = ("input", "output", "reward", "_place")


def recognizes(sample: FileSample) -> bool:
    """Return whether the first row has prompt, output and reward, and none of verl's fields."""
    return {"input", "output", "reward"} <= sample.row.keys() and "gts" not in sample.row


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each line."""
    yield from json_records.episodes(json_records.placed(path), episode)


def episode(record: Mapping[str, Any]) -> Episode:
    """Return the episode of a line; further fields are metadata."""
    return completion_episode(
        "openrlhf",
        [record.get("_place"), record["input"], record["output"]],
        prompt=record["input"],
        completion=record["output"],
        reward=scored(record["reward"]),
        rest={name: value for name, value in record.items() if name not in _OWN},
        task=str(record["input"])[:500],
        group=group_id(None, record["input"]),
    )

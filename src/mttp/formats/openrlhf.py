"""OpenRLHF: generated and scored samples as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import completion_episode, group_id, saved_texts, scored
from mttp.formats.fields import as_mapping
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.formats.saved import keeping, saved_record
from mttp.model.episodes import Episode

__all__ = ["LACKS", "SUFFIX", "TITLE", "episode", "read", "recognizes", "record"]

TITLE = "OpenRLHF samples"
SUFFIX = ".jsonl"
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
    value = completion_episode(
        "openrlhf",
        [record.get("_place"), record["input"], record["output"]],
        prompt=record["input"],
        completion=record["output"],
        reward=scored(record["reward"]),
        rest={name: value for name, value in record.items() if name not in _OWN},
        task=str(record["input"])[:500],
        group=group_id(None, record["input"]),
    )
    return keeping("openrlhf", record, value, _derived, ("input", "output"))


def record(episode: Episode) -> dict[str, Any]:
    """Return the row of an imported episode as it was saved; raises ValueError for another episode."""
    return saved_record("openrlhf", episode, _derived)


def _derived(episode: Episode) -> dict[str, Any]:
    asked, answered = saved_texts("openrlhf", episode)
    rest = as_mapping(episode.metadata.get("openrlhf"))
    return {"input": asked, "output": answered, "reward": episode.reward.value, **rest}

"""verl: the rollouts that its trainers dump as JSON lines, one file for each training step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import completion_episode, group_id, scored
from mttp.formats.fields import number, text, whole
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.model.episodes import Episode

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "verl rollouts"
LACKS = (
    "tokens and log probabilities",
    "advantages",
    "messages (prompt and response are text)",
    "seeds, times",
)
_OWN = ("input", "output", "gts", "score", "step", "uid", "request_id")


def recognizes(sample: FileSample) -> bool:
    """Return whether the first row has the fields that every dump has."""
    return {"input", "output", "gts", "score", "step"} <= sample.row.keys()


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each line."""
    yield from json_records.episodes(json_records.placed(path), episode)


def episode(record: Mapping[str, Any]) -> Episode:
    """
    Return the episode of a line.

    Further numbers, which the reward function returned, are metrics; other values are metadata.
    """
    others = {name: value for name, value in record.items() if name not in (*_OWN, "_place")}
    metrics = {name: found for name, value in others.items() if (found := number(value)) is not None}
    step = whole(record["step"])
    return completion_episode(
        "verl",
        [record.get("_place"), record["input"], record["output"], step],
        prompt=record["input"],
        completion=record["output"],
        reward=scored(record["score"]),
        rest={name: value for name, value in others.items() if name not in metrics},
        metrics=metrics,
        inputs=None if record["gts"] is None else {"ground_truth": record["gts"]},
        task=str(record["input"])[:500],
        group=text(record.get("uid")) or group_id(step, record["input"]),
        policy_update_index=step,
        policy_version_start=text(step),
    )

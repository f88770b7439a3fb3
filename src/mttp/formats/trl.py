"""TRL: the completions that its trainers save as Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import completion_episode, group_id, saved_texts, scored
from mttp.formats.fields import as_mapping, number, text, whole
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.formats.saved import keeping, saved_record
from mttp.model.episodes import Episode

__all__ = ["LACKS", "SUFFIX", "TITLE", "episode", "read", "recognizes", "record"]

TITLE = "TRL completions"
SUFFIX = ".parquet"
LACKS = (
    "tokens and log probabilities",
    "weights of reward functions (the reward is the sum of the numeric columns)",
    "seeds, versions of the policy, times",
)
_OWN = ("step", "prompt", "completion", "advantage")


def recognizes(sample: FileSample) -> bool:
    """Return whether a Parquet file has the columns that every trainer of TRL writes."""
    return {*_OWN} <= {*sample.columns}


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each row."""
    yield from json_records.episodes(json_records.placed(path), episode)


def episode(record: Mapping[str, Any]) -> Episode:
    """
    Return the episode of a row.

    Numeric columns besides step and advantage are the values of reward functions, others are metadata.
    """
    others = {name: value for name, value in record.items() if name not in _OWN and name != "_place"}
    components = {name: value for name, value in others.items() if value is None or _is_number(value)}
    known = [found for value in components.values() if (found := number(value)) is not None]
    step = whole(record.get("step"))
    value = completion_episode(
        "trl",
        [record.get("_place"), record["prompt"], record["completion"], step],
        prompt=record["prompt"],
        completion=record["completion"],
        reward=scored(sum(known) if known else None, components),
        rest={name: value for name, value in others.items() if name not in components},
        task=_task(record["prompt"]),
        group=group_id(step, record["prompt"]),
        policy_update_index=step,
        policy_version_start=text(step),
        advantage=number(record.get("advantage")),
    )
    return keeping("trl", record, value, _derived, ("prompt", "completion"))


def record(episode: Episode) -> dict[str, Any]:
    """Return the row of an imported episode as it was saved; raises ValueError for another episode."""
    return saved_record("trl", episode, _derived)


def _derived(episode: Episode) -> dict[str, Any]:
    asked, answered = saved_texts("trl", episode)
    return {
        "step": episode.policy_update_index,
        "prompt": asked,
        "completion": answered,
        **as_mapping(episode.metadata.get("trl")),
        "advantage": episode.advantage,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _task(prompt: object) -> str:
    """Return the text of the prompt, by which its samples are compared."""
    last: object = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    return str(as_mapping(last).get("content") or last)[:500]

"""SkyRL: the results of evaluations as JSON lines, one file for each data source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import completion_episode, scored
from mttp.formats.fields import as_list, number, text
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.model.episodes import Episode, Tokens

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "SkyRL evaluation results"
LACKS = (
    "tokens and log probabilities",
    "messages (prompt and response are text)",
    "seeds, times, the policy's version",
)
_MAPPED = frozenset(
    {
        "input_prompt",
        "output_response",
        "score",
        "env_class",
        "env_extras",
        "data_source",
        "stop_reason",
        "_place",
    }
)


def recognizes(sample: FileSample) -> bool:
    """Return whether the first row has the fields of a result."""
    return {"input_prompt", "output_response", "score", "env_class"} <= sample.row.keys()


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each line."""
    yield from json_records.episodes(json_records.placed(path), episode)


def episode(record: Mapping[str, Any]) -> Episode:
    """
    Return the episode of a line.

    A list of scores has one for each token of the response; the reward is their sum.
    """
    score = record["score"]
    per_token = [number(token_score) for token_score in as_list(score)]
    values = [value for value in per_token if value is not None]
    complete = bool(values) and len(values) == len(per_token)
    rewards: Any = values
    return completion_episode(
        "skyrl",
        [record.get("_place"), record["input_prompt"], record["output_response"]],
        prompt=record["input_prompt"],
        completion=record["output_response"],
        reward=scored(sum(values) if complete else score),
        tokens=Tokens(rewards=rewards, count=len(values)) if complete else None,
        rest={name: value for name, value in record.items() if name not in _MAPPED and value is not None},
        env=text(record["env_class"]) or "",
        inputs=record.get("env_extras"),
        split=text(record.get("data_source")),
        task=str(record["input_prompt"])[:500],
        stop_reason=text(record.get("stop_reason")),
        truncated=record.get("stop_reason") == "length" if record.get("stop_reason") else None,
    )

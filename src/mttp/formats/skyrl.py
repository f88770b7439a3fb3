"""SkyRL: the results of evaluations as JSON lines, one file for each data source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import completion_episode, saved_texts, scored
from mttp.formats.fields import as_list, as_mapping, number, text
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.formats.saved import keeping, saved_record
from mttp.model.episodes import Episode, Tokens

__all__ = ["LACKS", "SUFFIX", "TITLE", "episode", "read", "recognizes", "record"]

TITLE = "SkyRL evaluation results"
SUFFIX = ".jsonl"
LACKS = (
    "tokens and log probabilities",
    "messages (prompt and response are text)",
    "seeds, times, the policy's version",
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
    per_token = [number(one) for one in as_list(score)]
    values = [one for one in per_token if one is not None]
    complete = bool(values) and len(values) == len(per_token)
    rewards: Any = values
    value = completion_episode(
        "skyrl",
        [record.get("_place"), record["input_prompt"], record["output_response"]],
        prompt=record["input_prompt"],
        completion=record["output_response"],
        reward=scored(sum(values) if complete else score),
        tokens=Tokens(rewards=rewards, count=len(values)) if complete else None,
        rest={name: record[name] for name in ("env_metrics",) if record.get(name) is not None},
        env=text(record["env_class"]) or "",
        inputs=record.get("env_extras"),
        split=text(record.get("data_source")),
        task=str(record["input_prompt"])[:500],
        stop_reason=text(record.get("stop_reason")),
        truncated=record.get("stop_reason") == "length" if record.get("stop_reason") else None,
    )
    return keeping("skyrl", record, value, _derived, ("input_prompt", "output_response", "env_extras"))


def record(episode: Episode) -> dict[str, Any]:
    """Return the row of an imported episode as it was saved; raises ValueError for another episode."""
    return saved_record("skyrl", episode, _derived)


def _derived(episode: Episode) -> dict[str, Any]:
    asked, answered = saved_texts("skyrl", episode)
    tokens = episode.steps[0].tokens
    per_token = None if tokens is None or tokens.rewards is None else tokens.rewards.tolist()
    return {
        "input_prompt": asked,
        "output_response": answered,
        "score": episode.reward.value if per_token is None else per_token,
        "env_class": episode.env,
        "env_extras": episode.inputs,
        "data_source": episode.split,
        "stop_reason": episode.stop_reason,
        **as_mapping(episode.metadata.get("skyrl")),
    }

"""verl: the rollouts that its trainers dump as JSON lines, one file for each training step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import completion_episode, group_id, saved_texts, scored
from mttp.formats.fields import as_list, as_mapping, number, text, whole
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.formats.saved import keeping, saved_record
from mttp.model.episodes import Episode, Step, Tokens

__all__ = ["LACKS", "SUFFIX", "TITLE", "episode", "read", "recognizes", "record", "rollout"]

TITLE = "verl rollouts"
SUFFIX = ".jsonl"
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
    metrics = {name: figure for name, value in others.items() if (figure := number(value)) is not None}
    step = whole(record["step"])
    value = completion_episode(
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
    return keeping("verl", record, value, _derived, ("input", "output", "gts"))


def record(episode: Episode) -> dict[str, Any]:
    """Return the row of an imported episode as it was saved; raises ValueError for another episode."""
    return saved_record("verl", episode, _derived)


def _derived(episode: Episode) -> dict[str, Any]:
    asked, answered = saved_texts("verl", episode)
    return {
        "input": asked,
        "output": answered,
        "gts": as_mapping(episode.inputs).get("ground_truth"),
        "score": episode.reward.value,
        "step": episode.policy_update_index,
        **as_mapping(episode.metadata.get("verl")),
    }


def rollout(record: Mapping[str, Any]) -> Episode:
    """
    Return the episode of a rollout of an agent loop.

    `record` has the fields of verl's `AgentLoopOutput`, those of the trajectory (`step`, `sample_index`,
    `rollout_n`, `validate`), `raw_prompt` and `response_text`.
    """
    fields = as_mapping(record.get("extra_fields"))
    info = as_mapping(fields.get("reward_extra_info"))
    metrics = {**as_mapping(record.get("metrics")), **info}
    arrays: dict[str, Any] = {
        "ids": list(as_list(record.get("response_ids"))),
        "prompt_ids": list(as_list(record.get("prompt_ids"))),
        "masks": list(as_list(record.get("response_mask"))) or None,
        "logprobs": list(as_list(record.get("response_logprobs"))) or None,
    }
    step, index = whole(record.get("step")), text(record.get("sample_index"))
    split = "val" if record.get("validate") else "train"
    reward = scored(record.get("reward_score"))
    asked, answer = as_list(record.get("raw_prompt")), text(record.get("response_text"))
    only = Step(
        observation=list(asked) or None,
        action={"role": "assistant", "content": answer} if answer else None,
        tokens=Tokens(**arrays) if arrays["ids"] else None,
    )
    return Episode(
        task=str(as_mapping(asked[-1]).get("content"))[:500] if asked else None,
        group=None if index is None else f"{split}/{step}/{index}",
        split=split,
        policy_update_index=step,
        policy_version_start=text(step),
        steps=(only,),
        step_count=1,
        length=1,
        reward=reward,
        rewards=() if reward.status == "missing" else (reward,),
        return_=reward.value,
        return_basis=None if reward.value is None else "episode",
        metrics={name: value for name, metric in metrics.items() if (value := number(metric)) is not None},
        metadata={"verl": {name: record[name] for name in ("rollout_n", "num_turns") if name in record}},
    )

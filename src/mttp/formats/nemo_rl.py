"""NeMo-RL: the samples of each training or validation step as JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import completion_episode, group_id, scored
from mttp.formats.fields import as_list, number, text, whole
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.model.episodes import Episode, Tokens

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "NeMo-RL samples"
LACKS = ("roles of messages (all but the last are taken for the user's)", "reward functions", "seeds, times")
_STEP = re.compile(r"step(\d+)")
_OWN = (
    "idx",
    "content",
    "rewards",
    "token_ids",
    "token_loss_mask",
    "input_lengths",
    "advantages",
    "generation_logprobs",
    "prev_logprobs",
    "_place",
)


def recognizes(sample: FileSample) -> bool:
    """Return whether the first row has the contents and rewards of a sample, and its number."""
    return {"content", "rewards", "idx"} <= sample.row.keys()


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each line; the training step is in the name of the file."""
    yield from json_records.episodes(json_records.placed(path), episode)


def episode(record: Mapping[str, Any]) -> Episode:
    """Return the episode of a line, whose values are lists of one."""
    contents = _only(record["content"])
    texts = [str(content) for content in contents] if isinstance(contents, list) else [str(contents)]
    ids = as_list(_only(record.get("token_ids")))
    tokens, prompt = _tokens(record, ids)
    advantages = {number(value) for value in ([] if tokens is None else _values(record, "advantages"))} - {
        0.0,
        None,
    }
    match = _STEP.search(str(record.get("_place", "")))
    step = None if match is None else int(match[1])
    asked = [{"role": "user", "content": content} for content in texts[:-1]]
    return completion_episode(
        "nemo_rl",
        [record.get("_place"), texts, record["idx"]],
        prompt=asked,
        completion=texts[-1],
        reward=scored(_only(record["rewards"])),
        tokens=tokens,
        rest={name: _only(value) for name, value in record.items() if name not in _OWN},
        task=texts[0][:500] if asked else None,
        group=group_id(step, prompt or texts[:-1]) if prompt or asked else None,
        policy_update_index=step,
        policy_version_start=text(step),
        advantage=advantages.pop() if len(advantages) == 1 else None,
    )


def _tokens(record: Mapping[str, Any], ids: Any) -> tuple[Tokens | None, list[int]]:
    """Return the tokens without padding, and the ids of the prompt: those before the first in the loss."""
    length = whole(_only(record.get("input_lengths"))) or len(ids)
    mask = [int(bool(flag)) for flag in as_list(_only(record.get("token_loss_mask")))][:length]
    if not ids or 1 not in mask:
        return None, []
    first = mask.index(1)
    arrays: dict[str, Any] = {
        name: values[first:length]
        for name, key in (("logprobs", "generation_logprobs"), ("trainer_logprobs", "prev_logprobs"))
        if len(values := _values(record, key)) >= length
    }
    if len(advantages := _values(record, "advantages")) >= length:
        arrays["advantages"] = advantages[first:length]
    prompt = [*ids[:first]]
    arrays |= {"ids": [*ids[first:length]], "prompt_ids": prompt, "masks": mask[first:]}
    return Tokens(**arrays), prompt


def _values(record: Mapping[str, Any], name: str) -> Any:
    return as_list(_only(record.get(name)))


def _only(value: object) -> Any:
    """Return the only value of a list of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value

"""The episodes of a scored batch of completions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from mttp.codec.plain import number, to_json
from mttp.integrations.options import Options
from mttp.integrations.trl import trainers
from mttp.integrations.trl.batch import CompletionBatch
from mttp.integrations.trl.launch import Launch
from mttp.integrations.trl.scoring import BatchScoring
from mttp.integrations.trl.tensors import Tensors
from mttp.integrations.trl.turns import Completion, steps
from mttp.model.episodes import Call, Episode, Step, Tokens
from mttp.otlp.spans import error_message, qualified_name

__all__ = ["Completions"]

Array = np.ndarray[Any, Any]

_IMAGES = ("image", "images")


class Completions:
    """
    Combines one process's batch with TRL's tensors of it, and makes episodes of the completions.

    `result` is the mapping of tensors that TRL learns from; empty if scoring failed.
    """

    def __init__(
        self,
        trainer: Any,
        batch: CompletionBatch,
        result: Mapping[str, Any],
        *,
        launch: Launch,
        options: Options,
        end: int,
    ) -> None:
        self.batch = batch
        self.launch = launch
        self.end = end
        self.count = len(batch.completion_ids)
        self.size = trainers.generations(trainer)
        self.first = launch.process * self.count
        self.tensors = Tensors(result, batch.logprobs)
        self._trainer = trainer
        self._options = options
        self._ends = trainers.ends(trainer)
        self._policy = options.policy or trainers.policy(trainer)
        names, weights = trainers.reward_names(trainer), trainers.reward_weights(trainer)
        self.scoring = BatchScoring(batch, names, weights, first=self.first, end=end)
        self.trained = self._trained_rewards()

    def _trained_rewards(self) -> Array | None:
        """
        Return RLOO's adjusted rewards, shape [completions].

        They are the totals clipped to `reward_clip_range`, minus `beta` times the divergence from the
        reference model. None if the rewards are not adjusted, as in GRPO, or if a part is unknown.
        """
        limits = getattr(self._trainer, "reward_clip_range", None)
        diverges = trainers.family(self._trainer) == "rloo" and self._trainer.beta != 0.0
        if not (limits or diverges) or self.scoring.totals is None or self.tensors.mask is None:
            return None
        totals = self.scoring.totals
        rewards: Array = np.clip(totals, *limits) if limits else totals
        if not diverges:
            return rewards
        if len(self.batch.logprobs) < 2:
            return None
        policy, reference = (trainers.matrix(tensor) for tensor in self.batch.logprobs)
        with np.errstate(all="ignore"):
            divergence = ((policy - reference) * self.tensors.mask).sum(axis=1)
            trained: Array = rewards - np.float32(self._trainer.beta) * divergence
        return trained

    def advantage(self, row: int) -> float | None:
        """Return the advantage of a completion; None without advantages, or with one per token."""
        advantages = self.tensors.advantages
        return float(advantages[row]) if advantages is not None and advantages.ndim == 1 else None

    def group(self, row: int) -> str:
        """Return the group id of a completion."""
        return self.launch.group_id(self.batch.number, (self.first + row) // self.size)

    def episodes(self, error: BaseException | None = None) -> Iterator[Episode]:
        """Yield an episode per completion; `error` is the exception that ended the scoring."""
        ending = {} if error is None else _ended_by(error)
        return (self._episode(row, ending) for row in range(self.count))

    def _episode(self, row: int, ending: Mapping[str, Any]) -> Episode:
        batch, options = self.batch, self._options
        ids, version = batch.completion_ids[row], str(batch.version)
        columns = batch.inputs[row] if row < len(batch.inputs) else {}
        prompt = _without_images(batch.prompts[row])
        truncated = len(ids) > 0 and ids[-1] not in self._ends
        extras = {name: values[row] for name, values in batch.extras.items() if row < len(values)}
        numbers = {name: _finite(value) for name, value in extras.items()}
        return Episode(
            trace_id=self.launch.trace_id(batch.number, self.first + row),
            env=trainers.environment(self._trainer, row) or "",
            task=_task(prompt) if options.task is None else str(options.task),
            split="train" if batch.is_training else "eval",
            group=self.group(row),
            policy=None if self._policy is None else str(self._policy),
            policy_version_start=version,
            policy_version_end=version,
            policy_update_index=batch.version - 1 if batch.version else None,
            inputs=_inputs(columns),
            metrics={name: value for name, value in numbers.items() if value is not None},
            metadata={
                **{name: extras[name] for name, value in numbers.items() if value is None},
                **(options.metadata or {}),
            },
            terminated=not truncated,
            truncated=truncated,
            advantage=self.advantage(row),
            steps=self._steps(row, prompt, truncated=truncated),
            reward=self.scoring.reward(row),
            omissions=tuple(f"{name}: not recorded" for name in _IMAGES if columns.get(name) is not None),
            **ending,
        )

    def _steps(self, row: int, prompt: Any, *, truncated: bool) -> tuple[Step, ...]:
        batch, ids = self.batch, self.batch.completion_ids[row]
        completion = Completion(
            prompt=prompt,
            text=_without_images(batch.completions[row]),
            prompt_ids=self.tensors.prompt(row),
            ids=np.asarray(ids, np.int64),
            sampled=self._sampled(row, len(ids)),
            arrays=self.tensors.arrays(row, len(ids)),
            version=str(batch.version),
            truncated=truncated,
            uses=batch.uses.get(row, ()),
            decode=self._decode,
            start=batch.began,
            end=self.end if batch.scoring is None else batch.scoring,
        )
        trained = math.nan if self.trained is None else float(self.trained[row])
        completion_steps = steps(completion, trained_reward=None if math.isnan(trained) else trained)
        is_all = self._options.observations and self._options.actions
        return completion_steps if is_all else tuple(map(self._kept, completion_steps))

    def _sampled(self, row: int, count: int) -> Array | None:
        """Return per token 1 if the policy sampled it; None if it sampled all, or without TRL's mask."""
        if self.batch.tool_mask is not None:
            return np.asarray(self.batch.tool_mask[row], np.int64)
        mask = self.tensors.sampled(row, count)
        return mask if mask is not None and mask.any() else None

    def _kept(self, step: Step) -> Step:
        """Return a step without the texts that the options leave out, and without their token ids."""
        calls, tokens = step.calls, cast(Tokens, step.tokens)
        if not self._options.observations:
            calls, tokens = _without(calls, "result"), replace(tokens, prompt_ids=None)
            step = replace(step, observation=None)
        if not self._options.actions:
            calls, tokens = _without(calls, "arguments"), replace(tokens, ids=None)
            step = replace(step, action=None)
        return replace(step, calls=calls, tokens=tokens)

    def _decode(self, ids: Array) -> str:
        return str(trainers.tokenizer(self._trainer).decode(ids.tolist(), skip_special_tokens=True))


def _finite(value: Any) -> float | None:
    """Return a finite number as a float; None for anything else."""
    figure = number(value)
    return figure if figure is not None and math.isfinite(figure) else None


def _ended_by(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, Exception):  # for example Ctrl-C
        return {"status": "aborted", "stop_reason": qualified_name(error)}
    return {
        "status": "error",
        "error_type": qualified_name(error),
        "error_message": error_message(error),
    }


def _without(calls: Sequence[Call], name: str) -> tuple[Call, ...]:
    changes: dict[str, Any] = {name: None}
    return tuple(replace(call, **changes) for call in calls)


def _inputs(columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the dataset's columns without those that the steps record."""
    left = {"prompt", "completion", "completion_ids", *_IMAGES}
    return {name: value for name, value in columns.items() if name not in left} or None


def _task(prompt: Any) -> str:
    """Return a digest of the prompt, which is the same in every epoch and every run."""
    return f"prompt-{hashlib.sha256(to_json(prompt, []).encode()).hexdigest()[:16]}"


def _without_images(text: Any) -> Any:
    """Return messages without their images; text unchanged."""
    if not isinstance(text, (list, tuple)):
        return text
    return [_message(message) if isinstance(message, Mapping) else message for message in text]


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [
        {"type": "image"} if isinstance(part, Mapping) and part.get("type") == "image" else part
        for part in content
    ]
    return {**message, "content": parts}

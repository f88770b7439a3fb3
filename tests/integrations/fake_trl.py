"""A stand-in for TRL's trainers and their patched methods; it needs neither TRL nor torch."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import warnings
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["GRPOTrainer", "RLOOTrainer"]

PAD, EOS = 0, 1


class Tensor(np.ndarray):  # type: ignore[type-arg]  # of whatever
    """The used part of a torch tensor."""

    def new_tensor(self, values: Any) -> Any:
        """Return a tensor with these values."""
        return np.asarray(values).view(Tensor)


def tensor(values: Any, dtype: Any = None) -> Any:
    """Return an array as such a tensor."""
    return np.asarray(values, dtype).view(Tensor)


class Tokenizer:
    """A token per character, after two special tokens."""

    eos_token_id = EOS
    pad_token_id = PAD

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; a full stop is the end token."""
        return [EOS if character == "." else ord(character) for character in text]

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """Return the text of tokens."""
        return "".join(chr(id) for id in ids if id not in (PAD, EOS))


class Trainer:
    """
    The common part of TRL's two trainers. `script` has the completions, which repeat. Each update learns from
    one part of a batch.
    """

    eos_token_ids = (EOS,)

    def __init__(
        self,
        reward_funcs: list[Any],
        script: list[str],
        rows: list[dict[str, Any]],
        *,
        generations: int = 2,
        steps_per_generation: int = 1,
        weights: list[float] | None = None,
        process: int = 0,
        processes: int = 1,
    ) -> None:
        self.reward_funcs = reward_funcs
        self.reward_func_names = [getattr(f, "__name__", type(f).__name__) for f in reward_funcs]
        self.reward_weights = tensor(weights or [1.0] * len(reward_funcs), np.float32)
        self.num_generations = self.num_generations_eval = generations
        self.beta = 0.0
        self.args = SimpleNamespace(
            seed=11, logging_steps=1, steps_per_generation=steps_per_generation, to_json_string=self._config
        )
        self.state = SimpleNamespace(global_step=0, epoch=0.0)
        self.model = SimpleNamespace(training=True, config=SimpleNamespace(_name_or_path="some/model"))
        self.optimizer = SimpleNamespace(param_groups=[{"lr": 0.5}])
        self.processing_class = Tokenizer()
        self.accelerator = SimpleNamespace(
            process_index=process, num_processes=processes, clip_grad_norm_=lambda: tensor(0.25)
        )
        self.callback_handler = SimpleNamespace(callbacks=[])
        self.environments = None
        self.weight = 1.0
        self._metrics: dict[str, Any] = {"train": defaultdict(list), "eval": defaultdict(list)}
        self._logs: dict[str, Any] = {"advantages": deque(maxlen=64)}
        self._buffered_inputs: Any = None
        self._script, self._rows, self._step = script, rows, 0
        self._extra: dict[str, Any] = defaultdict(list)

    def _config(self) -> str:
        return json.dumps({"learning_rate": 0.5})

    def get_num_trainable_parameters(self) -> int:
        """Return 1."""
        return 1

    def add_callback(self, callback: Any) -> None:
        """Add a callback."""
        self.callback_handler.callbacks.append(callback)

    def remove_callback(self, callback: Any) -> None:
        """Remove a callback."""
        self.callback_handler.callbacks.remove(callback)

    def _tell(self, event: str, **facts: Any) -> None:
        for callback in self.callback_handler.callbacks:
            if hasattr(callback, event):
                getattr(callback, event)(self.args, self.state, None, optimizer=self.optimizer, **facts)

    # The trainer's loop.

    def train(self, steps: int) -> None:
        """Make `max_steps` updates, counted from 0."""
        self.state.global_step = 0
        self._tell("on_train_begin")
        for _ in range(steps):
            self._tell("on_step_begin")
            loss = self.training_step(self.model, self._rows)
            norm = self.accelerator.clip_grad_norm_()
            self._tell("on_pre_optimizer_step")
            self.weight -= float(loss)
            self.state.global_step += 1
            self._tell("on_step_end")
            self._tell("on_log", logs={"loss": float(loss), "grad_norm": float(norm)})
            self._metrics["train"].clear()
        self._tell("on_train_end")

    def evaluate(self) -> None:
        """Generate and score without learning."""
        self.model.training = False
        self._prepare_inputs(self._rows)
        self.model.training = True

    def training_step(self, model: Any, inputs: Any) -> Any:
        """Learn from part of a batch."""
        part = self._prepare_inputs(inputs)
        assert "mttp_rows" not in part, "the loss is shown what is none of its business"
        self._step += 1
        self._metrics["train"]["entropy"].append(0.5)
        self._metrics["train"]["clip_ratio/region_mean"].append(0.125)
        return tensor(part["advantages"].sum() + 0.01)

    def _prepare_inputs(self, inputs: Any) -> Any:
        if not self.model.training:
            return self._generate_and_score_completions(inputs)
        parts = self.args.steps_per_generation
        if self._step % parts == 0:
            batch = self._generate_and_score_completions(inputs)
            rows = np.arange(len(batch["completion_ids"]))[::-1]  # shuffled
            size = len(rows) // parts
            self._buffered_inputs = [
                {name: values[rows[part * size : (part + 1) * size]] for name, values in batch.items()}
                for part in range(parts)
            ]
        return self._buffered_inputs[self._step % parts]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        prompts = [row["prompt"] for row in inputs]
        completions = [self._script[index % len(self._script)] for index in range(len(prompts))]
        ids = [self.processing_class.encode(text) for text in completions]
        texts = [self.processing_class.decode(some) for some in ids]
        prompt_ids, prompt_mask = _padded([self.processing_class.encode(text) for text in prompts], left=True)
        completion_ids, completion_mask = _padded(ids, left=False)
        self._logprobs(completion_ids)
        rewards = self._calculate_rewards(inputs, prompts, texts, ids)
        total = np.nansum(rewards * self.reward_weights, axis=1)
        total[np.isnan(rewards).all(axis=1)] = np.nan
        advantages = np.nan_to_num(self._compared(np.asarray(total).reshape(-1, self.num_generations)))
        self._logs["advantages"].extend(advantages.tolist())
        first = self.accelerator.process_index * len(prompts)
        return {
            "prompt_ids": prompt_ids,
            "prompt_mask": prompt_mask,
            "completion_ids": completion_ids,
            "completion_mask": completion_mask,
            "advantages": tensor(advantages[first : first + len(prompts)], np.float32),
        }

    def _logprobs(self, ids: Any) -> None:
        """Compute log probabilities where the algorithm does."""

    def _compared(self, groups: Any) -> Any:
        raise NotImplementedError

    def _log_extra(self, column: str, values: list[Any]) -> None:
        self._extra[column].extend(values)

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Any:
        columns = {name: [row[name] for row in inputs] for name in inputs[0] if name != "prompt"}
        given = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids_list}
        given |= {**columns, "log_extra": self._log_extra, "trainer_state": self.state}
        paid = [self._answer(function, given) for function in self.reward_funcs]
        rewards = np.array([[np.nan if value is None else value for value in some] for some in paid])
        return tensor(np.tile(rewards.T, (self.accelerator.num_processes, 1)), np.float32)

    def _answer(self, function: Any, given: dict[str, Any]) -> list[Any]:
        """Return a function's rewards; an async one runs on a loop in another thread, as in TRL."""
        if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)):
            return list(function(**given))
        answers: list[Any] = []

        async def ask() -> None:
            answers.extend(await function(**given))

        thread = threading.Thread(target=lambda: asyncio.run(ask()))
        thread.start()
        thread.join()
        return answers


class GRPOTrainer(Trainer):
    """Compares rewards with the mean of the group."""

    scale_rewards = "group"

    def _compared(self, groups: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            deviation = np.nanstd(groups, axis=1, ddof=1, keepdims=True)
            return ((groups - np.nanmean(groups, axis=1, keepdims=True)) / (deviation + 1e-4)).reshape(-1)

    def _tool_call_loop(self, *_: Any) -> Any:
        raise NotImplementedError


class RLOOTrainer(Trainer):
    """Compares rewards with the mean of the other members."""

    reward_clip_range: Any = None
    normalize_advantages = False

    def _compared(self, groups: Any) -> Any:
        with np.errstate(invalid="ignore"):
            others = (np.nansum(groups, axis=1, keepdims=True) - groups) / (groups.shape[1] - 1)
            return (groups - others).reshape(-1)

    def _logprobs(self, ids: Any) -> None:
        self._get_per_token_logps_and_entropies(self.model, ids, -0.5)
        self._get_per_token_logps_and_entropies(self.model, ids, -0.75)

    def _get_per_token_logps_and_entropies(self, model: Any, ids: Any, logprob: float) -> Any:
        return tensor(np.full(ids.shape, logprob), np.float32), None, None


for kind in (Trainer, GRPOTrainer, RLOOTrainer):
    kind.__module__ = "trl.fake"


def _padded(rows: list[list[int]], *, left: bool) -> tuple[Any, Any]:
    """Return rows padded to one length, and their mask."""
    size = max(map(len, rows))
    sides = [(size - len(row), 0) if left else (0, size - len(row)) for row in rows]
    ids = [np.pad(row, side, constant_values=PAD) for row, side in zip(rows, sides, strict=True)]
    masks = [np.pad(np.ones(len(row), int), side) for row, side in zip(rows, sides, strict=True)]
    return tensor(ids), tensor(masks)

"""Reading a TRL trainer's attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mttp.codec.plain import as_array
from mttp.model.keys import name_key

__all__ = [
    "FAMILIES",
    "ends",
    "environment",
    "family",
    "generations",
    "is_training",
    "matrix",
    "metrics",
    "policy",
    "processes",
    "reward_names",
    "reward_weights",
    "tokenizer",
    "version",
]

FAMILIES: Mapping[str, str] = {"GRPOTrainer": "grpo", "RLOOTrainer": "rloo"}
"""Algorithms by the name of the trainer's class."""


def family(trainer: object) -> str | None:
    """Return the algorithm of the trainer's class or base class; None for other trainers."""
    named = (base.__name__ for base in type(trainer).__mro__ if base.__module__.partition(".")[0] == "trl")
    return next((FAMILIES[name] for name in named if name in FAMILIES), None)


def processes(trainer: Any) -> tuple[int, int]:
    """Return this process's index and the number of processes."""
    return int(trainer.accelerator.process_index), int(trainer.accelerator.num_processes)


def is_training(trainer: Any) -> bool:
    """Return whether the trainer is training, and not evaluating."""
    return bool(trainer.model.training)


def version(trainer: Any) -> int:
    """Return the number of updates, with those before a checkpoint."""
    return int(trainer.state.global_step)


def generations(trainer: Any) -> int:
    """Return the number of completions per prompt."""
    several = trainer.num_generations
    return int(several if is_training(trainer) else getattr(trainer, "num_generations_eval", several))


def tokenizer(trainer: Any) -> Any:
    """Return the tokenizer, or that of a multimodal processor."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def ends(trainer: Any) -> frozenset[int]:
    """Return the token ids that, as the last token, mean to TRL that a completion is not truncated."""
    tokens = tokenizer(trainer)
    known = getattr(trainer, "eos_token_ids", None) or [tokens.eos_token_id]  # a single id before TRL 1.13
    return frozenset([*known, tokens.pad_token_id])


def policy(trainer: Any) -> str | None:
    """Return the model's name, without its directory or account."""
    name = getattr(getattr(trainer.model, "config", None), "_name_or_path", None)
    return str(name).rstrip("/").rpartition("/")[2] or None if name else None


def environment(trainer: Any, row: int) -> str | None:
    """Return the class name of a completion's environment; None without environments."""
    environments = getattr(trainer, "environments", None)
    return type(environments[row]).__name__ if environments else None


def reward_names(trainer: Any) -> list[str]:
    """Return a unique name per reward function."""
    names: list[str] = []
    for name in trainer.reward_func_names:
        keys = {name_key(other) for other in names}
        candidate, count = str(name), 1
        while name_key(candidate) in keys:
            count += 1
            candidate = f"{name}_{count}"
        names.append(candidate)
    return names


def reward_weights(trainer: Any) -> np.ndarray[Any, Any]:
    """Return the weights of the reward functions, float32 as in TRL, shape [functions]."""
    return matrix(trainer.reward_weights).astype(np.float32)


def metrics(trainer: Any) -> Mapping[str, Sequence[float]]:
    """Return the numbers that TRL collects for its next log line of training, by TRL's names."""
    by_mode = getattr(trainer, "_metrics", None)
    return by_mode.get("train", {}) if isinstance(by_mode, Mapping) else {}


def matrix(tensor: Any) -> np.ndarray[Any, Any]:
    """Return a tensor on any device as a numpy array."""
    array = as_array(tensor)
    return np.asarray(tensor) if array is None else array

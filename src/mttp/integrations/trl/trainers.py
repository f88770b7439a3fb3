"""What is asked of a trainer: the attributes of TRL's that are relied on, each in one place."""

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
"""The algorithm by the trainer's class."""


def family(trainer: object) -> str | None:
    """The algorithm: of the class, or of the one that it derives from; None for any other trainer."""
    named = (base.__name__ for base in type(trainer).__mro__ if base.__module__.partition(".")[0] == "trl")
    return next((FAMILIES[name] for name in named if name in FAMILIES), None)


def processes(trainer: Any) -> tuple[int, int]:
    """Which process this is, and how many train together."""
    return int(trainer.accelerator.process_index), int(trainer.accelerator.num_processes)


def is_training(trainer: Any) -> bool:
    """Whether it trains just now, and does not evaluate."""
    return bool(trainer.model.training)


def version(trainer: Any) -> int:
    """How many updates the policy has had, those before a checkpoint included."""
    return int(trainer.state.global_step)


def generations(trainer: Any) -> int:
    """How many completions of one prompt are compared with each other."""
    several = trainer.num_generations
    return int(several if is_training(trainer) else getattr(trainer, "num_generations_eval", several))


def tokenizer(trainer: Any) -> Any:
    """The tokenizer, also that of a processor of text and images."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def ends(trainer: Any) -> frozenset[int]:
    """The tokens by which TRL knows that a completion ended by itself."""
    tokens = tokenizer(trainer)
    known = getattr(trainer, "eos_token_ids", None) or [tokens.eos_token_id]  # one only before TRL 1.13
    return frozenset([*known, tokens.pad_token_id])


def policy(trainer: Any) -> str | None:
    """The model's name, without the directory or the account that it is from."""
    name = getattr(getattr(trainer.model, "config", None), "_name_or_path", None)
    return str(name).rstrip("/").rpartition("/")[2] or None if name else None


def environment(trainer: Any, row: int) -> str | None:
    """The class of the environment that a completion was generated in."""
    environments = getattr(trainer, "environments", None)
    return type(environments[row]).__name__ if environments else None


def reward_names(trainer: Any) -> list[str]:
    """A name per reward function, none of them twice."""
    names: list[str] = []
    for name in trainer.reward_func_names:
        taken = {name_key(other) for other in names}
        found, count = str(name), 1
        while name_key(found) in taken:
            count += 1
            found = f"{name}_{count}"
        names.append(found)
    return names


def reward_weights(trainer: Any) -> np.ndarray[Any, Any]:
    """A weight per reward function, shape [functions], float32 as TRL has them."""
    return matrix(trainer.reward_weights).astype(np.float32)


def metrics(trainer: Any) -> Mapping[str, Sequence[float]]:
    """What TRL noted in training for its next log line, by its names; nothing where it keeps none."""
    kept = getattr(trainer, "_metrics", None)
    return kept.get("train", {}) if isinstance(kept, Mapping) else {}


def matrix(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor on whichever device as an array of numpy's."""
    found = as_array(tensor)
    return np.asarray(tensor) if found is None else found

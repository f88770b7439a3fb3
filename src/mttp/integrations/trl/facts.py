"""The facts of a run from its trainer: algorithm, configuration, policy network and optimizer."""

from __future__ import annotations

import json
import sys
from typing import Any

from mttp.integrations.trl import trainers

__all__ = ["of"]

_SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")


def of(trainer: Any) -> dict[str, Any]:
    """Return a trainer's facts as arguments for `Session.describe`."""
    args = trainer.args
    return {
        "algorithm": trainers.family(trainer),
        "trainer": "trl",
        "trainer_version": getattr(sys.modules.get("trl"), "__version__", None),
        "config": json.loads(args.to_json_string()),
        "seed": args.seed,
        "policy_architecture": _architecture(trainer.model),
        "policy_parameters": trainer.get_num_trainable_parameters(),
        "optimizer": _optimizer(trainer.optimizer),
    }


def _architecture(model: Any) -> str:
    """Return the model's class, and the sizes in its configuration."""
    config: Any = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    sizes = [f"{name}={getattr(config, name)}" for name in _SHAPE if getattr(config, name, None) is not None]
    return f"{type(model).__name__}({', '.join(sizes)})"


def _optimizer(optimizer: Any) -> str | None:
    """Return the optimizer's class, without accelerate's wrapper."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return None if inner is None else type(inner).__name__

"""What a trainer says of the run: algorithm, configuration, the policy's network, and its optimizer."""

from __future__ import annotations

import json
import sys
from typing import Any

from mttp.integrations.trl import trainers

__all__ = ["of"]

_SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")


def of(trainer: Any) -> dict[str, Any]:
    """The facts that `Session.describe` takes, as far as they are known once training begins."""
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
    """The model's class, and what its configuration says of its size."""
    config: Any = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    sizes = [f"{name}={getattr(config, name)}" for name in _SHAPE if getattr(config, name, None) is not None]
    return f"{type(model).__name__}({', '.join(sizes)})"


def _optimizer(optimizer: Any) -> str | None:
    """Its class, without what makes it one of several processes."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return None if inner is None else type(inner).__name__

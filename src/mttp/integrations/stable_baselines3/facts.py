"""What a model is: its hyperparameters, its network, its optimizer."""

from __future__ import annotations

import inspect
from typing import Any

import stable_baselines3

from mttp.codec.plain import scalar_text

__all__ = ["of_run"]

_NOT_HYPERPARAMETERS = {"self", "env", "policy", "tensorboard_log", "verbose", "seed", "device"}


def of_run(model: Any) -> dict[str, Any]:
    """What the run is told of a model that begins to learn, in the words of `Session.describe`."""
    return {
        "trainer": "stable-baselines3",
        "trainer_version": stable_baselines3.__version__,
        "algorithm": type(model).__name__.lower(),
        "seed": model.seed,
        "config": hyperparameters(model),
        "policy_architecture": architecture(model.policy),
        "policy_parameters": sum(item.numel() for item in model.policy.parameters() if item.requires_grad),
        "optimizer": _optimizer(model.policy),
    }


def hyperparameters(model: Any) -> dict[str, Any]:
    """The arguments that the model was made with, as far as it kept them."""
    names = [name for kind in type(model).__mro__ for name in _arguments(kind)]
    found = {
        name: _plain(getattr(model, name))
        for name in dict.fromkeys(names)
        if name not in _NOT_HYPERPARAMETERS and not name.startswith("_") and hasattr(model, name)
    }
    return {"policy": type(model.policy).__name__, "device": str(model.device), **found}


def _arguments(kind: type) -> list[str]:
    made = vars(kind).get("__init__")
    return list(inspect.signature(made).parameters) if inspect.isfunction(made) else []


def _plain(value: Any) -> Any:
    """A hyperparameter as JSON can say it; a schedule by its value at the start."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if callable(value):
        return _scheduled(value)
    return scalar_text(value)


def _scheduled(schedule: Any) -> Any:
    try:
        return float(schedule(1.0))
    except Exception:  # whatever it is, it is no schedule
        return getattr(schedule, "__name__", None) or scalar_text(schedule)


def architecture(policy: Any) -> str:
    """The policy's class and the widths of its layers, `ActorCriticPolicy(pi=64x64, vf=64x64)` say."""
    layers = getattr(policy, "net_arch", None)
    if isinstance(layers, dict):
        widths = ", ".join(f"{name}={_widths(found)}" for name, found in layers.items())
    else:
        widths = _widths(layers or [])
    extractor = type(getattr(policy, "features_extractor", None)).__name__
    shown = [widths, *([extractor] if extractor not in ("NoneType", "FlattenExtractor") else [])]
    return f"{type(policy).__name__}({', '.join(part for part in shown if part)})"


def _widths(layers: Any) -> str:
    return "x".join(map(str, layers))


def _optimizer(policy: Any) -> str | None:
    """The optimizer's class, or of several networks with their own the actor's."""
    found = getattr(policy, "optimizer", None) or getattr(getattr(policy, "actor", None), "optimizer", None)
    return None if found is None else type(found).__name__

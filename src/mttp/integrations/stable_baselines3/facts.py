"""The facts of a model: hyperparameters, network and optimizer."""

from __future__ import annotations

import inspect
from typing import Any

import stable_baselines3

from mttp.codec.plain import scalar_text
from mttp.model.interrupts import raise_interrupt

__all__ = ["of_run"]

_NOT_HYPERPARAMETERS = {"self", "env", "policy", "tensorboard_log", "verbose", "seed", "device"}


def of_run(model: Any) -> dict[str, Any]:
    """Return a model's facts as arguments for `Session.describe`."""
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
    """Return the constructor arguments that the model keeps as attributes, and its device."""
    names = [name for kind in type(model).__mro__ for name in _arguments(kind)]
    parameters = {
        name: _plain(getattr(model, name))
        for name in dict.fromkeys(names)
        if name not in _NOT_HYPERPARAMETERS and not name.startswith("_") and hasattr(model, name)
    }
    return {"policy": type(model.policy).__name__, "device": str(model.device), **parameters}


def _arguments(kind: type) -> list[str]:
    constructor = vars(kind).get("__init__")
    return list(inspect.signature(constructor).parameters) if inspect.isfunction(constructor) else []


def _plain(value: Any) -> Any:
    """Return a hyperparameter as JSON data; a schedule is its value at the start of training."""
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
    except Exception as error:  # a function that is not a schedule
        raise_interrupt(error)
        return getattr(schedule, "__name__", None) or scalar_text(schedule)


def architecture(policy: Any) -> str:
    """Return the policy's class and layer widths, such as `ActorCriticPolicy(pi=64x64, vf=64x64)`."""
    layers = getattr(policy, "net_arch", None)
    if isinstance(layers, dict):
        widths = ", ".join(f"{name}={_widths(sizes)}" for name, sizes in layers.items())
    else:
        widths = _widths(layers or [])
    extractor = type(getattr(policy, "features_extractor", None)).__name__
    parts = [widths, *([extractor] if extractor not in ("NoneType", "FlattenExtractor") else [])]
    return f"{type(policy).__name__}({', '.join(part for part in parts if part)})"


def _widths(layers: Any) -> str:
    return "x".join(map(str, layers))


def _optimizer(policy: Any) -> str | None:
    """Return the class of the policy's optimizer, or of the actor's where networks have their own."""
    optim = getattr(policy, "optimizer", None) or getattr(getattr(policy, "actor", None), "optimizer", None)
    return None if optim is None else type(optim).__name__

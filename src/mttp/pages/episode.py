"""What every page of an episode states about it, its agents, steps and calls, by the same names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mttp.model.episodes import Agent, Call, Episode, Step

__all__ = ["EMPTY", "error_of", "identity", "stated"]

EMPTY: Final = "(empty)"
"""Stands for an empty text: that it is empty was recorded."""
_OF: Final[dict[type, tuple[str, ...]]] = {
    Episode: (
        *("run_id", "env", "env_version", "task", "split", "group", "seed", "policy", "policy_version_start"),
        *("policy_version_end", "attempt", "stop_reason", "return_basis", "advantage", "cost_usd"),
    ),
    Agent: ("name", "policy", "policy_version_start", "policy_version_end", "advantage"),
    Step: ("trained_reward", "value_estimate", "return_target", "advantage", "logprob", "reward_raw"),
    Call: ("provider", "response_model", "input_tokens", "output_tokens", "time_to_first_chunk"),
}


def stated(value: Episode | Agent | Step | Call) -> dict[str, Any]:
    """Return the facts that a value states, by name with spaces; those without a value are left out."""
    named = {name.replace("_", " "): getattr(value, name) for name in _OF[type(value)]}
    return {name: fact for name, fact in named.items() if fact not in (None, "")}


def identity(episode: Episode) -> dict[str, Any]:
    """Return what an episode states, and the subsets and updates that it belongs to."""
    lists: dict[str, Iterable[object]] = {
        "slices": episode.slices,
        "consumed by": episode.consumed_by,
        "discarded by": episode.discarded_by,
    }
    return stated(episode) | {name: ", ".join(map(str, items)) for name, items in lists.items() if items}


def error_of(value: Episode | Agent | Step | Call) -> str:
    """Return class and message of the exception that ended it; empty without one."""
    return ": ".join(filter(None, (value.error_type, value.error_message)))

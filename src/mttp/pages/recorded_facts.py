"""What every page of an episode states about it, its agents, steps and calls, by the same names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mttp.model.episodes import Agent, Annotation, Call, Episode, Step
from mttp.model.scorings import Reward
from mttp.pages.words import moment, number
from mttp.reading.jsonable import to_json

__all__ = ["EMPTY", "annotation_words", "identity", "reward_words", "recorded_facts", "troubles"]

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
_MAPS: Final = ("metrics", "metadata", "extra")


def recorded_facts(value: Episode | Agent | Step | Call, *, maps: bool = False) -> dict[str, Any]:
    """
    Return the facts that a value states, by name with spaces; those without a value are left out.

    With `maps` also its metrics, metadata and unknown attributes.
    """
    named = {name.replace("_", " "): getattr(value, name) for name in _OF[type(value)]}
    for name in _MAPS if maps else ():
        named |= {f"{name}.{key}": item for key, item in getattr(value, name).items()}
    return {name: fact for name, fact in named.items() if fact is not None and str(fact)}


def identity(episode: Episode) -> dict[str, Any]:
    """Return what an episode states, and the subsets and updates that it belongs to."""
    lists: dict[str, Iterable[object]] = {
        "slices": episode.slices,
        "consumed by": episode.consumed_by,
        "discarded by": episode.discarded_by,
    }
    return recorded_facts(episode) | {
        name: ", ".join(map(str, items)) for name, items in lists.items() if items
    }


def troubles(value: Episode | Agent | Step | Call) -> list[tuple[str, str]]:
    """Return state and text of the exception that ended it, of its faults and of what was omitted."""
    error = ": ".join(filter(None, (value.error_type, value.error_message)))
    listed = [("bad", f"error  {error}")] if error else []
    listed += [("warn", f"fault  {fault}") for fault in getattr(value, "faults", ())]
    return listed + [("warn", f"omission  {omission}") for omission in getattr(value, "omissions", ())]


def reward_words(reward: Reward) -> str:
    """Return the value of a reward, or why it has none."""
    if reward.status == "ok":
        return number(reward.value)
    if reward.value is not None:
        return f"{number(reward.value)} ({reward.status})"
    return f"{reward.status} {reward.raw or ''}".rstrip()


def annotation_words(annotation: Annotation, episode: Episode | None = None) -> str:
    """Return an annotation's key, value, author, explanation and time."""
    if annotation.reward is not None:
        value = reward_words(annotation.reward)
    elif annotation.rejected:
        is_chosen = episode is None or annotation.episode == episode.trace_id
        others = annotation.rejected if is_chosen else (annotation.episode,)
        value = ("to " if is_chosen else "of ") + ", ".join(other[:8] for other in others)
    else:
        value = annotation.value if isinstance(annotation.value, str) else to_json(annotation.value)
    by = "" if annotation.by is None else f" by {annotation.by}"
    label = annotation.reward.label if annotation.reward is not None else None
    words = ", ".join(filter(None, (value + by, label, annotation.explanation)))
    return f"{annotation.key}  {words}  {moment(annotation.start_time)}"

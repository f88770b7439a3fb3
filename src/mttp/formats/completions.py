"""Episodes of one prompt and one completion, which several trainers save as one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mttp.formats.chats import chat_steps, conversation
from mttp.formats.fields import number, trace_id
from mttp.model.episodes import Episode, Reward, Step, Tokens

__all__ = ["completion_episode", "group_id", "prompt_and_completion", "scored"]


def completion_episode(
    format: str,
    key: object,
    *,
    prompt: object,
    completion: object,
    reward: Reward,
    tokens: Tokens | None = None,
    rest: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Episode:
    """
    Return the episode of a row.

    `key` identifies the row in its run, and `rest` are the fields without a place in an episode.
    `facts` are further fields of the episode.
    """
    steps = prompt_and_completion(prompt, completion, tokens)
    return Episode(
        trace_id=trace_id(format, key),
        steps=steps,
        step_count=len(steps),
        length=len(steps),
        reward=reward,
        rewards=() if reward.status == "missing" else (reward,),
        return_=reward.value,
        return_basis=None if reward.value is None else "episode",
        metadata={format: dict(rest)} if rest else {},
        timing="batch",
        **facts,
    )


def prompt_and_completion(prompt: object, completion: object, tokens: Tokens | None) -> tuple[Step, ...]:
    """
    Return the steps of a prompt and its completion, which are texts, messages or JSON of messages.

    A completion of several messages, as with tools, has a step for each message of the assistant; tokens are
    those of a single step.
    """
    asked, answered = conversation(prompt, "user"), conversation(completion, "assistant")
    steps = chat_steps([*asked, *answered], prompt=len(asked))
    if len(steps) == 1 and tokens is not None:
        only = steps[0]
        return (Step(observation=only.observation, action=only.action, calls=only.calls, tokens=tokens),)
    return steps or (Step(observation=asked or None, tokens=tokens),)


def scored(value: object, components: Mapping[str, object] | None = None) -> Reward:
    """
    Return the reward of a row: its value, or missing for None, or an error for one that is not finite.

    A component that is not a finite number is missing.
    """
    known = {
        name: score for name, given in (components or {}).items() if (score := number(given)) is not None
    }
    absent = {name: "missing" for name in components or {} if name not in known}
    found = number(value)
    if found is None and value is not None:
        return Reward(status="error", raw=str(value), components=known, component_statuses=absent)
    if found is None:
        return Reward(components=known, component_statuses=absent)
    status = "partial" if absent else "ok"
    return Reward(value=found, status=status, components=known, component_statuses=absent)


def group_id(step: object, prompt: object) -> str:
    """Return the id of the group of the samples of one prompt at one training step."""
    return f"{'' if step is None else f'{step}/'}{trace_id('group', step, prompt)[:12]}"

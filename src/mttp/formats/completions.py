"""Episodes of one prompt and one completion, which several trainers save as one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mttp.formats.chats import as_saved, chat_steps, conversation, form_of
from mttp.formats.fields import as_list, number, trace_id
from mttp.formats.saved import forms, with_forms
from mttp.model.episodes import Episode, Reward, Step, Tokens

__all__ = ["assessed", "completion_episode", "group_id", "saved_texts", "scored", "status_of"]


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
    asked, answered = conversation(prompt, "user"), conversation(completion, "assistant")
    steps = _steps(asked, answered, tokens)
    rest_of_chat = [*asked, *answered][sum(len(_chat(step)) for step in steps) :]
    episode = Episode(
        trace_id=trace_id(format, key),
        steps=steps,
        step_count=len(steps),
        length=len(steps),
        reward=reward,
        rewards=() if reward.status == "missing" else (reward,),
        return_=reward.value,
        return_basis=None if reward.value is None else "episode",
        final_observation=rest_of_chat or None,
        metadata={format: dict(rest)} if rest else {},
        timing="batch",
        **facts,
    )
    forms: dict[str, object] = {"prompt": form_of(prompt), "completion": form_of(completion)}
    if len(asked) != len(as_list(steps[0].observation)):
        forms["prompt_messages"] = len(asked)
    return with_forms(format, episode, {name: form for name, form in forms.items() if form is not None})


def saved_texts(format: str, episode: Episode) -> tuple[Any, Any]:
    """
    Return the prompt and the completion of a row in the form that they had in the file.

    Raises ValueError for an episode without steps.
    """
    if not episode.steps:
        raise ValueError("no steps")
    known = forms(format, episode)
    chat = [message for step in episode.steps for message in _chat(step)]
    chat += as_list(episode.final_observation)
    asked = known.get("prompt_messages", len(as_list(episode.steps[0].observation)))
    return as_saved(chat[:asked], known.get("prompt")), as_saved(chat[asked:], known.get("completion"))


def _chat(step: Step) -> list[Any]:
    return [*as_list(step.observation), *([] if step.action is None else [step.action])]


def _steps(asked: list[Any], answered: list[Any], tokens: Tokens | None) -> tuple[Step, ...]:
    """
    Return the steps of the messages of a prompt and its completion.

    A completion of several messages, as with tools, has a step for each message of the assistant; tokens are
    those of a single step.
    """
    steps = chat_steps([*asked, *answered], prompt=len(asked))
    if len(steps) == 1 and tokens is not None:
        only = steps[0]
        return (Step(observation=only.observation, action=only.action, calls=only.calls, tokens=tokens),)
    return steps or (Step(observation=asked or None, tokens=tokens),)


def scored(
    value: object, components: Mapping[str, object] | None = None, *, explanation: str | None = None
) -> Reward:
    """
    Return the reward of a row: its value, or missing for None, or an error for one that is not finite.

    A component that is no number is missing, and one that is not finite is an error.
    """
    known, absent = assessed(components or {})
    facts: dict[str, Any] = {"components": known, "component_statuses": absent, "explanation": explanation}
    figure = number(value)
    if figure is None and value is not None:
        return Reward(status="error", raw=str(value), **facts)
    if figure is None:
        return Reward(status="error" if "error" in absent.values() else "missing", **facts)
    return Reward(value=figure, status="partial" if absent else "ok", **facts)


def assessed(values: Mapping[str, object]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the finite numbers, and the statuses of the other values."""
    known = {name: score for name, value in values.items() if (score := number(value)) is not None}
    return known, {name: status_of(value) for name, value in values.items() if name not in known}


def status_of(value: object) -> str:
    """Return the status of a score: a number that is not finite is an error, what is no number is missing."""
    if not isinstance(value, (int, float)):
        return "missing"
    return "error" if number(value) is None else "ok"


def group_id(step: object, prompt: object) -> str:
    """Return the id of the group of the samples of one prompt at one training step."""
    return f"{'' if step is None else f'{step}/'}{trace_id('group', step, prompt)[:12]}"

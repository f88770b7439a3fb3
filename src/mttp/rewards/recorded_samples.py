"""
Recorded episodes as samples of reward specs.

A sample has the inputs that the episode recorded, and from its steps, under the names of trainers:
`prompt` and `completion`, text or messages; `messages`, the whole chat; `tool_calls`, each with id, name,
arguments and result; `completion_ids`, the token ids. A recorded input precedes one from the steps.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mttp.codec.calls import EXECUTE_TOOL
from mttp.errors import StudyError
from mttp.model.chat import Message, messages, new_messages
from mttp.model.episodes import Episode, Step
from mttp.rewards.scoring import lacking_inputs
from mttp.rewards.spec import RewardSpec
from mttp.rewards.trainers import text_of


def scorable(episodes: Sequence[Episode], *specs: RewardSpec) -> tuple[list[Episode], Mapping[str, int]]:
    """Return the episodes that have all inputs of the specs, and the numbers of others by what they lack."""
    missing = [lacking(episode, *specs) for episode in episodes]
    usable = [episode for episode, names in zip(episodes, missing, strict=True) if not names]
    return usable, Counter(", ".join(names) for names in missing if names)


def unscorable(episodes: Sequence[Episode], *specs: RewardSpec) -> StudyError:
    """Return the error of episodes of which none has all inputs: what they lack, and what they have."""
    names = sorted({name for episode in episodes for name in lacking(episode, *specs)})
    inputs = sorted({name for episode in episodes for name in recorded(episode)})
    return StudyError(
        f"none of {len(episodes):,} episodes recorded the input{'s' if len(names) > 1 else ''} "
        f"{', '.join(names)}, which {' and '.join(f'{spec.name} {spec.version}' for spec in specs)} needs; "
        f"recorded inputs: {', '.join(inputs) or 'none'}; record others by mttp.episode(inputs={{...}})"
    )


def lacking(episode: Episode, *specs: RewardSpec) -> tuple[str, ...]:
    """Return the inputs that the specs need and that the episode has not recorded."""
    names = dict.fromkeys(
        name for spec in specs for name in lacking_inputs(spec.plan, sample(spec, episode).keys())
    )
    return tuple(names)


def sample(spec: RewardSpec, episode: Episode) -> dict[str, Any]:
    """
    Return a recorded episode as a sample of a spec; a chat is its last text for an input of type `string`.

    An input of type `episode` is the episode itself.
    """
    kinds = {
        name: kind.rstrip("?")
        for included in spec.everything()
        for name, kind in included.document.inputs.items()
    }
    values = {name: episode for name, kind in kinds.items() if kind == "episode"}
    values |= {name: value for name, value in recorded(episode).items() if not kinds or name in kinds}
    return {name: text_of(value) if kinds.get(name) == "string" else value for name, value in values.items()}


def recorded(episode: Episode) -> dict[str, Any]:
    """Return all inputs that an episode recorded, and those that its steps have."""
    inputs = episode.inputs if isinstance(episode.inputs, Mapping) else {}
    return {**_exchange(episode), **inputs}


def _exchange(episode: Episode) -> dict[str, Any]:
    """Return what the steps of one agent say; empty if they have neither a chat nor text."""
    steps = episode.steps
    if not steps or len({step.agent for step in steps}) > 1:
        return {}
    texts = _texts(steps)
    values: dict[str, Any] = (
        _chat(steps) if texts is None else {"prompt": texts[0], "completion": "".join(texts[1:])}
    )
    if not values:
        return {}
    if (ids := _completion_ids(steps)) is not None:
        values["completion_ids"] = ids
    called = [call for step in steps for call in step.calls if call.operation == EXECUTE_TOOL]
    values["tool_calls"] = [
        {"id": call.id, "name": call.name, "arguments": _parsed(call.arguments), "result": call.result}
        | ({} if call.error_type is None else {"error": f"{call.error_type}: {call.error_message or ''}"})
        for call in called
    ] or [*_stated_calls(values.get("messages", ()))]
    return values


def _texts(steps: Sequence[Step]) -> list[str] | None:
    """Return prompt and completion in pieces; None if a step has something else than text."""
    first = steps[0].observation
    pieces = [*first] if isinstance(first, list) else [first]
    for place, step in enumerate(steps):
        pieces += [step.observation] if place and step.observation is not None else []
        pieces += [step.action] if step.action is not None else []
    return pieces if all(isinstance(piece, str) for piece in pieces) else None


def _chat(steps: Sequence[Step]) -> dict[str, Any]:
    """Return prompt, completion and messages; each step has the whole chat so far, or what is new."""
    first = steps[0].observation
    chat: list[Message] = []
    prompt_length = 0
    for place, step in enumerate(steps):
        chat += new_messages(messages(step.observation) or (), chat)
        prompt_length = prompt_length if place else len(chat)
        answer = step.action
        chat += messages(answer) or (
            [{"role": "assistant", "content": answer}] if isinstance(answer, str) else ()
        )
    if not chat or not (prompt_length or isinstance(first, str)):
        return {}
    prompt: Any = first if isinstance(first, str) else chat[:prompt_length]
    return {"prompt": prompt, "completion": chat[prompt_length:], "messages": chat}


def _completion_ids(steps: Sequence[Step]) -> list[int] | None:
    """Return the token ids after the prompt; None where a step has none, or is not the next of a chat."""
    blocks = [step.tokens for step in steps]
    if any(block is None or block.ids is None for block in blocks):
        return None
    ids = [*np.asarray(blocks[0].ids).tolist()]  # type: ignore[union-attr]  # none is None
    for _, block in pairwise(blocks):
        if block.parent is None or block.prompt_ids is None:  # type: ignore[union-attr]
            return None
        ids += [*np.asarray(block.prompt_ids).tolist(), *np.asarray(block.ids).tolist()]  # type: ignore[union-attr]
    return ids


def _stated_calls(chat: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Yield the tool calls of a chat's messages, with their results."""
    results = {reply.get("tool_call_id"): reply.get("content") for reply in chat if reply["role"] == "tool"}
    for message in chat:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, (list, tuple)) else ():
            function = call.get("function", call) if isinstance(call, Mapping) else {}
            if isinstance(function, Mapping) and isinstance(call, Mapping):
                yield {
                    "id": call.get("id"),
                    "name": function.get("name"),
                    "arguments": _parsed(function.get("arguments")),
                    "result": results.get(call.get("id")),
                }


def _parsed(arguments: Any) -> Any:
    """Return arguments that are JSON text as data; others unchanged."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments

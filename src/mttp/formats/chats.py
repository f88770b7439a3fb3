"""Steps of a chat: each message of the policy is an action, the messages before it are its observation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mttp.formats.fields import as_list, as_mapping, json_value, text
from mttp.model.calls import Call
from mttp.model.episodes import Step
from mttp.semconv.values import GenAiOperationName

__all__ = ["as_saved", "chat_steps", "conversation", "form_of", "tool_calls"]


def conversation(value: object, role: str) -> list[Any]:
    """
    Return the messages in `value`, which may also be their JSON; any other text is one message of `role`.

    A text that is JSON of something else, such as an answer of one object, is text, too.
    """
    if isinstance(value, str):
        return _parsed(value) or ([{"role": role, "content": value}] if value else [])
    return _messages(value)


def as_saved(messages: Sequence[Mapping[str, Any]], form: object) -> Any:
    """Return messages in the form that they had in a file: one of `form_of`, by default text."""
    if form == "none":
        return None
    if form == "messages":
        return [*messages]
    if form == "json":
        return json.dumps([*messages])
    return "".join(str(message.get("content")) for message in messages)


def form_of(value: object) -> str | None:
    """Return whether a conversation is saved as messages, as their JSON, or not at all; None for text."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return "json" if _parsed(value) else None
    return "messages"


def _parsed(text: str) -> list[Any]:
    """Return the messages in the JSON of a list; none for any other text."""
    value = json_value(text)
    return [turn for turn in _messages(value) if "role" in turn] if isinstance(value, list) else []


def _messages(value: object) -> list[Any]:
    if isinstance(value, Mapping):
        return [value] if "role" in value else _messages(value.get("messages"))
    return [message for message in as_list(value) if isinstance(message, Mapping)]


def chat_steps(
    messages: Sequence[Mapping[str, Any]], *, prompt: int = 0, sampled: Sequence[bool] | None = None
) -> tuple[Step, ...]:
    """
    Return one step for each message of the assistant after the first `prompt` messages.

    With `sampled`, which has a flag for each message, only messages that the policy sampled have a step.
    Messages after the last step are in none.
    """
    steps: list[Step] = []
    start = 0
    for position, message in enumerate(messages):
        is_action = message.get("role") == "assistant" and position >= prompt
        if is_action and (sampled is None or sampled[position]):
            answers = _answers(messages[position + 1 :])
            steps.append(
                Step(
                    index=len(steps),
                    observation=[*messages[start:position]] or None,
                    action=message,
                    calls=tool_calls(message, answers),
                )
            )
            start = position + 1
    return tuple(steps)


def tool_calls(
    message: Mapping[str, Any],
    answers: Mapping[str, object],
    *,
    start_time: int | None = None,
    end_time: int | None = None,
) -> tuple[Call, ...]:
    """Return the tool calls of a message; `answers` are the tools' answers by the id of the call."""
    calls = []
    for entry in as_list(message.get("tool_calls")):
        call = as_mapping(entry)
        function = as_mapping(call.get("function")) or call
        name = text(call.get("id"))
        calls.append(
            Call(
                operation=GenAiOperationName.EXECUTE_TOOL,
                name=text(function.get("name")),
                id=name,
                arguments=json_value(function.get("arguments")),
                result=answers.get(name or ""),
                start_time=start_time,
                end_time=end_time,
            )
        )
    return tuple(calls)


def _answers(messages: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return the contents of the tools' messages until the next message of the assistant, by call id."""
    contents: dict[str, object] = {}
    for message in messages:
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            contents[str(message.get("tool_call_id"))] = message.get("content")
    return contents

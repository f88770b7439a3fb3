"""Chat messages in observations and actions: found, compared with those before, and put in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from mttp.reading.jsonable import to_json

__all__ = ["Message", "message_lines", "messages", "new_messages", "speaker"]

Message: TypeAlias = Mapping[str, Any]
"""A message as chat APIs have it: a role, and content, parts or tool calls."""


def messages(content: object) -> list[Message] | None:
    """The messages that `content` is, alone, in a list or under `messages`; None where it is no chat."""
    if isinstance(content, Mapping):
        if isinstance(content.get("role"), str):
            return [content]
        return messages(content["messages"]) if content.keys() == {"messages"} else None
    if not isinstance(content, (list, tuple)) or not content:
        return None
    is_chat = all(isinstance(one, Mapping) and isinstance(one.get("role"), str) for one in content)
    return list(content) if is_chat else None


def new_messages(shown: Sequence[Message], before: Sequence[Message]) -> list[Message]:
    """The messages of a step, without those at the beginning that the steps before had."""
    same = 0
    for one, other in zip(shown, before, strict=False):
        if _essence(one) != _essence(other):
            break
        same += 1
    return list(shown[same:])


def _essence(message: Message) -> tuple[str, ...]:
    """What two records of one message have in common."""
    return message["role"], *message_lines(message)


def speaker(message: Message) -> str:
    """The role, with the name of the tool or person where one is stated."""
    name = message.get("name")
    return f"{message['role']} {name}" if name else str(message["role"])


def message_lines(message: Message) -> list[str]:
    """What a message says: its reasoning, its text, then a line for each tool call."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    lines = [f"(thinks) {reasoning}"] if isinstance(reasoning, str) else []
    content = message.get("content", message.get("parts"))
    if isinstance(content, (list, tuple)):
        lines += map(_part, content)
    elif content is not None:
        lines += [text] if (text := content if isinstance(content, str) else to_json(content)) else []
    if isinstance(message.get("refusal"), str):
        lines.append(f"(refuses) {message['refusal']}")
    return [*lines, *_tool_calls(message)]


def _part(part: object) -> str:
    """A part of a message: its text, else what kind of part it is and what it holds."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else to_json(part)
    for key in ("text", "content"):
        if isinstance(part.get(key), str):
            return str(part[key])
    return to_json(part)


def _tool_calls(message: Message) -> Iterator[str]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            yield f"calls {to_json(call)}"
            continue
        arguments = function.get("arguments")
        stated = arguments if isinstance(arguments, str) else "" if arguments is None else to_json(arguments)
        yield f"calls {function.get('name', 'unknown')} {stated}".rstrip()

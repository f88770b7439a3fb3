"""Finds chat messages in observations and actions, and writes them as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["Message", "message_lines", "messages", "new_messages", "speaker"]

Message: TypeAlias = Mapping[str, Any]
"""A chat message: a role, and content, parts or tool calls."""


def messages(content: object) -> list[Message] | None:
    """Return the messages in `content`: one, a list, or under `messages`; None if it is not a chat."""
    if isinstance(content, Mapping):
        if isinstance(content.get("role"), str):
            return [content]
        return messages(content["messages"]) if content.keys() == {"messages"} else None
    if not isinstance(content, (list, tuple)) or not content:
        return None
    is_chat = all(isinstance(one, Mapping) and isinstance(one.get("role"), str) for one in content)
    return list(content) if is_chat else None


def new_messages(shown: Sequence[Message], before: Sequence[Message]) -> list[Message]:
    """Return the messages of a step without the leading ones that earlier steps had."""
    same = 0
    for one, other in zip(shown, before, strict=False):
        if _essence(one) != _essence(other):
            break
        same += 1
    return list(shown[same:])


def _essence(message: Message) -> tuple[str, ...]:
    """Return the parts by which two records of one message are equal."""
    return message["role"], *message_lines(message)


def speaker(message: Message) -> str:
    """Return the role, with the name of the tool or person if there is one."""
    name = message.get("name")
    return f"{message['role']} {name}" if name else str(message["role"])


def message_lines(message: Message) -> list[str]:
    """Return the reasoning, the text, and a line per tool call."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    lines = [f"(thinks) {reasoning}"] if isinstance(reasoning, str) else []
    content = message.get("content", message.get("parts"))
    if isinstance(content, (list, tuple)):
        lines += map(_part, content)
    elif content is not None:
        lines += [text] if (text := content if isinstance(content, str) else _to_json(content)) else []
    if isinstance(message.get("refusal"), str):
        lines.append(f"(refuses) {message['refusal']}")
    return [*lines, *_tool_calls(message)]


def _part(part: object) -> str:
    """Return the text of a part of a message, else its JSON."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else _to_json(part)
    for key in ("text", "content"):
        if isinstance(part.get(key), str):
            return str(part[key])
    return _to_json(part)


def _tool_calls(message: Message) -> Iterator[str]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            yield f"calls {_to_json(call)}"
            continue
        arguments = function.get("arguments")
        stated = arguments if isinstance(arguments, str) else "" if arguments is None else _to_json(arguments)
        yield f"calls {function.get('name', 'unknown')} {stated}".rstrip()


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)

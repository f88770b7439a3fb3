"""
Reads chat messages of any form as messages of chat APIs.

The forms are those of chat APIs, of the GenAI conventions (`parts`), and content blocks of Anthropic,
Bedrock, Google and OpenAI's Responses API; each also as JSON, alone, in a list, or below `messages`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mttp.model.chat import from_text, to_json

__all__ = ["answer", "chat_messages"]

_Fields: TypeAlias = Mapping[str, Any]

_ROLES = {"model": "assistant", "ai": "assistant", "human": "user"}
"""Roles of other libraries, as chat APIs name them."""
_TYPED = {**_ROLES, "system": "system", "tool": "tool", "developer": "developer"}
"""The role of a message that has a type instead, as those of LangChain."""
_TEXTS = ("text", "input_text", "output_text", None)
_REASONING = ("reasoning", "thinking")
_CALLS = ("tool_call", "function_call", "custom_tool_call", "tool_use", "function")
_ANSWERS = ("tool_call_response", "function_call_output", "custom_tool_call_output", "tool_result")
_WRAPPED = {
    "toolUse": "tool_use",
    "functionCall": "tool_use",
    "function_call": "tool_use",
    "toolResult": "tool_result",
    "functionResponse": "tool_result",
    "function_response": "tool_result",
    "reasoningContent": "reasoning",
}
"""The type of a part without one by its only key, as parts of Bedrock and Google have."""
_IDS = ("call_id", "id", "tool_use_id", "toolUseId")
_ARGUMENTS = ("arguments", "args", "input")
_RESULTS = ("response", "result", "output", "content")
_THOUGHTS = ("content", "thinking", "text", "reasoning", "reasoningText", "summary")
_CONTENT = {"role", "parts", "content", "tool_calls", "function_call", "finish_reason"}
"""Fields of a message that are read; all others are kept."""
_MOST_LISTS = 8
"""Maximum depth of lists in lists."""
_LOOKED_AT = 8
"""Number of items of a list by which it is a chat or not."""


def chat_messages(value: object, role: str = "user") -> list[dict[str, Any]]:
    """
    Return the messages in a value, as chat APIs have them; a text is a message of `role`.

    Reasoning is in `reasoning_content`, arguments of tools are JSON texts, and each answer of a tool is a
    message. Parts that are no texts stay in the content, in the form of chat APIs if there is one.
    """
    return _messages(value, role, 0)


def answer(items: Iterable[Any]) -> dict[str, Any]:
    """Return the items of an answer, such as reasoning, texts and tool calls, as one message."""
    parts: list[Any] = []
    for item in items:
        content = item.get("content") if isinstance(item, Mapping) else item
        if isinstance(item, Mapping) and item.get("type", "message") != "message":
            is_encrypted = item["type"] == "reasoning" and not (content or item.get("summary"))
            parts += [] if is_encrypted else [item]
        else:
            parts += content if isinstance(content, (list, tuple)) else [content]
    (message,) = _of_message({"role": "assistant", "parts": parts}, "assistant")
    return message


def _messages(value: Any, role: str, depth: int) -> list[dict[str, Any]]:
    if value is None or value == "":
        return []
    if isinstance(value, str):
        read = from_text(value)
        return _messages(read, role, depth) if _is_chat(read) else [{"role": role, "content": value}]
    if isinstance(value, (list, tuple)) and depth < _MOST_LISTS:
        if value and all(map(_is_part, value)):
            return _of_message({"parts": value}, role)
        return [message for item in value for message in _messages(item, role, depth + 1)]
    if isinstance(value, Mapping):
        if _is_part(value):
            return _of_message({"parts": [value]}, role)
        if _is_message(value):
            return _of_message(value, role)
        inner = _inner(value)
        if inner is not None and depth < _MOST_LISTS:
            return _messages(inner, role, depth + 1)
    return [{"role": role, "content": _text(value)}]


def _is_chat(value: Any) -> bool:
    """Return whether a value that was a JSON text is a chat; any other text is a message."""
    if isinstance(value, list):
        return all(isinstance(item, (Mapping, list)) and _is_chat(item) for item in value[:_LOOKED_AT])
    return isinstance(value, Mapping) and (_is_part(value) or _is_message(value) or _inner(value) is not None)


def _is_message(value: _Fields) -> bool:
    return _role(value) is not None or not value.keys().isdisjoint(_CONTENT)


def _inner(value: _Fields) -> list[Any] | None:
    """Return the messages in a request or an answer of a chat API."""
    if isinstance(value.get("messages"), list):
        return [*value["messages"]]
    if isinstance(value.get("choices"), list):
        return [choice.get("message") for choice in value["choices"] if isinstance(choice, Mapping)]
    return None


def _role(message: _Fields) -> str | None:
    role = message.get("role")
    if isinstance(role, str) and role:
        return _ROLES.get(role.lower(), role)
    kind = message.get("type")
    return _TYPED.get(kind) if isinstance(kind, str) else None


def _is_part(value: object) -> bool:
    """Return whether a value is a part of a message, and no message."""
    if not isinstance(value, Mapping) or _role(value) is not None:
        return False
    return isinstance(value.get("type"), str) or (len(value) == 1 and not value.keys().isdisjoint(_WRAPPED))


def _of_message(message: _Fields, role: str) -> list[dict[str, Any]]:
    """Return a message, and before it the answers of tools that are parts of it."""
    content, parts = message.get("content"), message.get("parts")
    is_listed = isinstance(parts, (list, tuple)) and bool(parts or content is None)
    if is_listed or isinstance(content, (list, tuple)):
        read = _Parts(parts if is_listed else content)  # type: ignore[arg-type]
    elif _is_part(content):
        read = _Parts([content])
    else:
        read = _Parts(())
        read.content = [] if content is None else [{"type": "text", "text": _text(content)}]
    calls = [*read.calls, *_calls(message.get("tool_calls")), *_calls(message.get("function_call"))]
    facts = {key: value for key, value in message.items() if key not in _CONTENT and value is not None}
    stated_role = _role(message)
    if facts.get("type") == "message" or (stated_role is not None and "role" not in message):
        facts.pop("type", None)
    if read.answers and read.is_empty and not calls:
        return [{**facts, **answer} for answer in read.answers]
    converted: dict[str, Any] = {"role": stated_role or ("assistant" if calls or read.reasoning else role)}
    converted["content"] = None if content is None and not is_listed else read.joined()
    converted |= facts
    if read.reasoning:
        converted["reasoning_content"] = "\n".join(read.reasoning)
    if read.refusals:
        converted["refusal"] = "\n".join(read.refusals)
    if calls:
        converted["tool_calls"] = calls
    return [*read.answers, converted]


@dataclass(slots=True)
class _Parts:
    """The parts of a message by what they are."""

    parts: Iterable[Any]
    content: list[dict[str, Any]] = field(default_factory=list)
    """Texts and other parts that are shown, as chat APIs have them."""
    reasoning: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    """Messages of tools."""

    def __post_init__(self) -> None:
        for part in self.parts:
            self._add(part)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but answers of tools."""
        return not (self.content or self.reasoning or self.refusals or self.calls)

    def joined(self) -> Any:
        """Return the text, or a list of parts if not all of them are plain texts."""
        if all(part.keys() == {"type", "text"} for part in self.content):
            return "\n".join(part["text"] for part in self.content)
        return self.content

    def _add(self, part: Any) -> None:
        if part is None:
            return
        if not isinstance(part, Mapping):
            self.content.append({"type": "text", "text": _text(part)})
            return
        kind = part.get("type")
        if kind is None and len(part) == 1 and (wrapped := next(iter(part))) in _WRAPPED:
            value = part[wrapped]
            kind, part = _WRAPPED[wrapped], value if isinstance(value, Mapping) else {wrapped: value}
        if kind in _REASONING and (thought := _thought(part)):
            self.reasoning.append(thought)
        elif kind in _CALLS:
            self.calls.append(_call(part))
        elif kind in _ANSWERS:
            self.answers.append(_answer(part))
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            self.refusals.append(part["refusal"])
        elif kind in _TEXTS and not part.keys().isdisjoint({"text", "content"}):
            text = part.get("text", part.get("content"))
            rest = {
                key: value for key, value in part.items() if key not in ("type", "text", "content") and value
            }
            if text is not None or rest:
                self.content.append({"type": "text", "text": "" if text is None else _text(text), **rest})
        else:
            self.content.append(_image(part) or dict(part))


def _first(fields: _Fields, keys: Sequence[str]) -> Any:
    return next((fields[key] for key in keys if fields.get(key) is not None), None)


def _calls(value: Any) -> list[Any]:
    """Return the tool calls of a message of chat APIs."""
    value = from_text(value)
    if value is None:
        return []
    return [
        _call(item) if isinstance(item, Mapping) else item
        for item in (value if isinstance(value, list) else [value])
    ]


def _call(call: _Fields) -> dict[str, Any]:
    """Return a tool call of any form as chat APIs have it."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        if "name" not in call:
            return dict(call)
        function = call
    arguments = _first(function, _ARGUMENTS)
    written = "{}" if arguments is None else _text(arguments)
    identity, name = _first(call, _IDS), function.get("name")
    return {
        **({} if identity is None else {"id": identity}),
        "type": "function",
        "function": {**({} if name is None else {"name": _text(name)}), "arguments": written},
    }


def _answer(part: _Fields) -> dict[str, Any]:
    """Return a tool's answer as a message."""
    result = _first(part, _RESULTS)
    listed = isinstance(result, (list, tuple)) and bool(result) and all(map(_is_block, result))
    content = _Parts(result).joined() if listed else "" if result is None else _text(result)
    identity, name = _first(part, _IDS), part.get("name")
    return {
        "role": "tool",
        **({} if identity is None else {"tool_call_id": identity}),
        **({} if name is None else {"name": name}),
        "content": content,
    }


def _is_block(value: object) -> bool:
    """Return whether a value is a part that is shown."""
    if not isinstance(value, Mapping):
        return False
    return value.keys() == {"text"} or value.get("type") in ("text", "image", "image_url", "uri", "blob")


def _thought(part: _Fields) -> str:
    """Return the text of reasoning; empty if it is encrypted or has none."""
    for key in _THOUGHTS:
        value = part.get(key)
        items = value if isinstance(value, (list, tuple)) else [value]
        texts = [item.get("text") if isinstance(item, Mapping) else item for item in items]
        if thought := "\n".join(text for text in texts if isinstance(text, str)):
            return thought
    return ""


def _image(part: _Fields) -> dict[str, Any] | None:
    """Return a part that is an image as chat APIs have it; None for any other part."""
    kind, url = part.get("type"), None
    if kind in ("uri", "blob") and part.get("modality") == "image":
        url = part.get("uri") if kind == "uri" else _data_url(part.get("mime_type"), part.get("content"))
    elif kind == "input_image":
        url = part.get("image_url")
    elif kind == "image" and isinstance(source := part.get("source"), Mapping):
        url = source.get("url") or _data_url(source.get("media_type"), source.get("data"))
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else None


def _data_url(mime_type: Any, content: Any) -> str | None:
    if isinstance(content, bytes):
        content = base64.b64encode(content).decode()
    return f"data:{mime_type or 'image/*'};base64,{content}" if isinstance(content, str) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)

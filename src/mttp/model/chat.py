"""Finds chat messages in observations and actions, and their text, reasoning and tool calls."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from mttp.model.episodes import Step

__all__ = [
    "Message",
    "from_text",
    "message_lines",
    "message_text",
    "messages",
    "new_messages",
    "picture",
    "frame_message",
    "pictures",
    "reasoning",
    "requests",
    "seen",
    "speaker",
    "text_of",
    "to_json",
    "tool_calls",
]

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
    is_chat = all(isinstance(item, Mapping) and isinstance(item.get("role"), str) for item in content)
    return list(content) if is_chat else None


def new_messages(shown: Sequence[Message], before: Sequence[Message]) -> list[Message]:
    """Return the messages of a step without the leading ones that earlier steps had."""
    same = 0
    for message, other in zip(shown, before, strict=False):
        if _essence(message) != _essence(other):
            break
        same += 1
    return list(shown[same:])


class Seen(NamedTuple):
    """The messages that a step's policy saw."""

    new: list[Message]
    """Those that earlier steps had not."""
    earlier: int
    """The number of the others."""
    is_whole: bool = True
    """Whether these are all of the earlier ones, as far as is known."""


def seen(step: Step, before: Sequence[Message]) -> Seen | None:
    """Return what a step saw after the messages `before` it; None if its observation is not a chat."""
    history = next((call.history for call in step.calls if call.history), ())
    shown = messages(step.observation)
    if history and _is_of_calls(step):
        count = sum(end - start for start, end in zip(history[::2], history[1::2], strict=False))
        new = shown or []
        return Seen(new, max(count - len(new), 0), len(history) == 2 and history[0] == 0)
    if shown is None:
        return None
    new = new_messages(shown, before)
    return Seen(new, len(shown) - len(new))


def requests(step: Step, recorded: list[Message]) -> Iterator[list[Message]]:
    """
    Yield the whole prompt of each model call that has a history, unless the program set the observation.

    `recorded` has the messages of the agent's earlier calls, and gets those of this step.
    """
    for call in step.calls:
        if call.history:
            recorded += messages(call.arguments) or ()
            if _is_of_calls(step):
                ranges = zip(call.history[::2], call.history[1::2], strict=False)
                yield [message for start, end in ranges for message in recorded[start:end]]
            recorded += messages(call.result) or ()


def _is_of_calls(step: Step) -> bool:
    """Return whether the observation is what was new in a call, and not what the program set."""
    return step.observation is None or any(call.arguments is step.observation for call in step.calls)


def _essence(message: Message) -> tuple[str, ...]:
    """Return the parts by which two records of one message are equal."""
    return message["role"], *message_lines(message), *pictures(message)


def speaker(message: Message) -> str:
    """Return the role, with the name of the tool or person if there is one."""
    name = message.get("name")
    return f"{message['role']} {name}" if name else str(message["role"])


def message_lines(message: Message) -> list[str]:
    """Return the reasoning, the text, and a line per tool call."""
    thought, text = reasoning(message), message_text(message)
    calls = [f"calls {name} {arguments}".rstrip() for name, arguments in tool_calls(message)]
    return [*([f"(thinks) {thought}"] if thought else []), *([text] if text else []), *calls]


def reasoning(message: Message) -> str:
    """Return the reasoning of a message; empty if there is none."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    return thought if isinstance(thought, str) else ""


def message_text(message: Message) -> str:
    """Return the text of a message, a line per part, with a refusal."""
    content = message.get("content", message.get("parts"))
    lines = [*map(_part, content)] if isinstance(content, (list, tuple)) else []
    if content is not None and not isinstance(content, (list, tuple)):
        lines = [content if isinstance(content, str) else to_json(content)]
    if isinstance(message.get("refusal"), str):
        lines.append(f"(refuses) {message['refusal']}")
    return "\n".join(filter(None, lines))


def text_of(value: object) -> str | None:
    """Return the text of an action or observation: a text or chat messages; None of anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return text_of(value.get("content")) if "content" in value else text_of(value.get("text"))
    if isinstance(value, (list, tuple)) and value:
        parts = [text_of(part) for part in value]
        return None if any(part is None for part in parts) else "\n".join(map(str, parts))
    return None


def tool_calls(message: Message) -> list[tuple[str, str]]:
    """Return the name and the arguments of each tool call of a message."""
    calls = message.get("tool_calls")
    return [*map(_tool_call, calls)] if isinstance(calls, (list, tuple)) else []


def _tool_call(call: object) -> tuple[str, str]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return to_json(call), ""
    arguments = from_text(function.get("arguments"))
    written = arguments if isinstance(arguments, str) else "" if arguments is None else to_json(arguments)
    return str(function.get("name", "unknown")), written


def _part(part: object) -> str:
    """Return the text of a part of a message, else its JSON."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else to_json(part)
    if (url := picture(part)) is not None:
        kind, _, data = url.removeprefix("data:").partition(",")
        size = f", {len(data) * 3 // 4:,} bytes" if data else ""
        return f"[{kind.removesuffix(';base64')}{size}]" if url.startswith("data:") else f"[picture {url}]"
    for key in ("text", "content"):
        if isinstance(part.get(key), str):
            return str(part[key])
    return to_json(part)


def pictures(message: Message) -> list[str]:
    """Return the URLs of the pictures in a message."""
    content = message.get("content", message.get("parts"))
    parts = content if isinstance(content, (list, tuple)) else ()
    return [url for part in parts if isinstance(part, Mapping) and (url := picture(part)) is not None]


def frame_message(url: str) -> Message:
    """Return a step's frame as a message, which is shown like one."""
    return {"role": "frame", "content": [{"type": "image_url", "image_url": url}]}


def picture(part: Mapping[str, Any]) -> str | None:
    """Return the URL of a part that is a picture, in the form of any chat API; None for any other part."""
    kind, source = part.get("type"), part.get("source", part)
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
    elif not isinstance(source, Mapping) or "image" not in (kind, part.get("modality")):
        return None
    else:
        data = source.get("data", source.get("content"))
        media_type = source.get("media_type", source.get("mime_type")) or "image/*"
        url = source.get("url", source.get("uri", data))
        if isinstance(data, str) and not data.startswith("data:"):
            url = f"data:{media_type};base64,{data}"
    return url if isinstance(url, str) else None


def from_text(value: Any) -> Any:
    """Return the value of a JSON text of an object or a list; anything else unchanged."""
    if not issubclass(type(value), str) or value.lstrip()[:1] not in ("{", "["):  # `__class__` may raise
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def to_json(value: object) -> str:
    """Return a value of a message as JSON; bytes are base64."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.tolist() if hasattr(value, "tolist") else str(value)

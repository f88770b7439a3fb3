"""OpenAI's Responses API in the form of chats: its input as messages, its output as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from mttp.codec.plain import scalar_text
from mttp.integrations.foreign_models import as_data, fields
from mttp.integrations.stream_assembly import AssembledResponse
from mttp.model.chat_forms import answer, chat_messages

__all__ = ["EventAssembler", "as_chat", "is_continued", "messages_of"]

_UNSENT = frozenset({"parsed", "parsed_arguments", "status", "logprobs", "token_ids"})
"""Fields of items that are no part of a message."""
_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "text",
    "response.reasoning_summary_text.delta": "text",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}
"""The field that the fragment of an event belongs to."""


def is_continued(arguments: Mapping[str, Any]) -> bool:
    """Return whether the server adds the input to a conversation that it keeps."""
    return any(isinstance(arguments.get(name), (str, Mapping)) for name in _KEPT)


_KEPT = ("previous_response_id", "conversation")


def messages_of(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the instructions and the input of a request as chat messages."""
    request_input = arguments.get("input")
    items = as_data(request_input, _UNSENT) if isinstance(request_input, (list, tuple)) else request_input
    instructions = arguments.get("instructions")
    messages = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    if isinstance(items, list):
        for is_answer, group in groupby(items, _is_of_model):
            some = [*group]
            messages += [answer(some)] if is_answer else chat_messages(some)
    elif items is not None:
        messages += [{"role": "user", "content": items}] if isinstance(items, str) else []
    return messages


def as_chat(response: Any) -> AssembledResponse:
    """Return a response of the Responses API with the fields of a chat's response."""
    reply = fields(response)
    items = [*map(fields, reply.get("output") or ())]
    parts = [fields(part) for item in items for part in item.get("content") or ()]
    content = [token for part in parts for token in part.get("logprobs") or ()]
    details = fields(reply.get("incomplete_details")).get("reason")
    whole = AssembledResponse(
        model=reply.get("model"),
        id=reply.get("id"),
        usage=reply.get("usage"),
        prompt_token_ids=reply.get("prompt_token_ids"),
    )
    if items:
        ids = [source["token_ids"] for source in (reply, *items, *parts) if source.get("token_ids")]
        choice: Any = SimpleNamespace(
            message=answer(as_data(items, _UNSENT)),
            finish_reason=details or reply.get("status"),
            logprobs=SimpleNamespace(content=content or None),
            token_ids=ids[0] if ids else None,
        )
        whole.choices = [choice]
    return whole


def _is_of_model(item: Any) -> bool:
    """Return whether an item of the input is a part of an earlier answer."""
    if not isinstance(item, Mapping):
        return False
    kind = str(item.get("type", "message"))
    if kind == "message":
        return bool(item.get("role") == "assistant")
    return kind == "reasoning" or kind.endswith("_call")


class EventAssembler:
    """Collects the events of one streamed response; it has the interface of `ResponseAssembler`."""

    def __init__(self) -> None:
        self._response: Mapping[str, Any] = {}
        self._items: dict[Any, dict[str, Any]] = {}
        self.problems: list[str] = []
        """Why parts of events could not be taken."""

    def add(self, event: Any) -> None:
        """Add an event."""
        payload = fields(event)
        kind, index = payload.get("type"), payload.get("output_index", 0)
        if payload.get("response") is not None:
            self._response = fields(payload["response"])
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._items[index] = {**fields(payload.get("item"))}
        elif kind in _DELTAS:
            self._extend(self._items.setdefault(index, {}), payload, _DELTAS[kind])
        elif kind == "error":
            self.problems.append(f"the server sent an error: {scalar_text(payload.get('message')):.200}")

    def _extend(self, item: dict[str, Any], event: Mapping[str, Any], name: str) -> None:
        """Append a fragment to an item that is not complete yet."""
        if name in ("arguments", "input"):
            item[name] = (item.get(name) or "") + event["delta"]
            return
        below = "summary" if "summary" in event["type"] else "content"
        parts = item[below] = [{**fields(part)} for part in item.get(below) or ()]
        place = event.get("summary_index" if below == "summary" else "content_index", 0)
        parts += [{"type": "output_text"}] * (place + 1 - len(parts))
        part = parts[place] = {**parts[place]}
        part["type"] = "refusal" if name == "refusal" else part["type"]
        part[name] = (part.get(name) or "") + event["delta"]
        part["logprobs"] = [*(part.get("logprobs") or ()), *(event.get("logprobs") or ())]

    @property
    def response(self) -> AssembledResponse:
        """The response so far, in the form of a chat's."""
        if self._response.get("output"):
            return as_chat(self._response)
        items = [self._items[index] for index in sorted(self._items)]
        return as_chat({**self._response, "output": items})

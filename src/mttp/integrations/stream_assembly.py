"""
Assembling a streamed OpenAI response from its chunks, in whatever form a server sends them.

Servers differ most in tool calls: some send no `index`, or the same one for all; some repeat ids and names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from mttp.codec.plain import scalar_text
from mttp.integrations.foreign_models import as_data, fields
from mttp.model.interrupts import raise_interrupt

__all__ = ["AssembledResponse", "AssembledChoice", "ResponseAssembler", "Logprobs"]

_WHOLE_FIELDS = ("role", "id", "type", "index", "signature")
"""Fields of a message that are sent whole; a server may repeat them."""
_TEXT_FIELDS = ("text", "thinking", "reasoning", "summary")
"""Fields of a part of a message that a server sends in fragments."""


@dataclass(slots=True, kw_only=True)
class Logprobs:
    """The log probabilities of one choice."""

    content: list[Any] | None = None
    """For a chat: objects with a `logprob`, one per token."""
    token_logprobs: list[float] | None = None
    """For a text: one per token."""
    tokens: list[str] | None = None
    """For a text: the text of each token."""

    def add(self, piece: Mapping[str, Any]) -> None:
        """Append the log probabilities of a chunk."""
        if (content := piece.get("content")) is not None:
            self.content = self.content or []
            self.content.extend(content)
        if (numbers := piece.get("token_logprobs")) is not None:
            self.token_logprobs = self.token_logprobs or []
            self.token_logprobs.extend(numbers)
        if (texts := piece.get("tokens")) is not None:
            self.tokens = self.tokens or []
            self.tokens.extend(texts)


@dataclass(slots=True, kw_only=True)
class AssembledChoice:
    """One choice of the response."""

    finish_reason: str | None = None
    """The finish reason; None where the stream was not read to its end."""
    deltas: list[Mapping[str, Any]] = field(default_factory=list)
    """The deltas of a chat message."""
    texts: list[str] = field(default_factory=list)
    """The pieces of a text completion."""
    logprobs: Logprobs = field(default_factory=Logprobs)
    """The log probabilities, where the server sends them."""
    token_ids: list[int] | None = None
    """The token ids, where the server sends them."""
    prompt_token_ids: Sequence[int] | None = None
    """The token ids of the prompt, where the server sends them per choice."""

    @property
    def message(self) -> dict[str, Any] | None:
        """The chat message; None for a text completion."""
        return _merged(self.deltas) if self.deltas else None

    @property
    def text(self) -> str:
        """The text of a text completion."""
        return "".join(self.texts)

    def add(self, piece: Mapping[str, Any]) -> None:
        """Append this choice's part of a chunk."""
        self.finish_reason = piece.get("finish_reason") or self.finish_reason
        if (delta := piece.get("delta")) is not None:
            self.deltas.append({**as_data(delta)})
        if (text := piece.get("text")) is not None:
            self.texts.append("" + text)
        if (ids := piece.get("token_ids")) is not None:
            self.token_ids = self.token_ids or []
            self.token_ids.extend(ids)
        if self.prompt_token_ids is None:
            self.prompt_token_ids = piece.get("prompt_token_ids")
        if (logprobs := piece.get("logprobs")) is not None:
            self.logprobs.add(fields(logprobs))


@dataclass(slots=True, kw_only=True)
class AssembledResponse:
    """A response with the attribute names of the library's complete responses."""

    model: str | None = None
    """The model that responded."""
    id: str | None = None
    """The server's id of the response."""
    usage: Any = None
    """The token counts, which a server sends at the end if asked to."""
    prompt_token_ids: Sequence[int] | None = None
    """The token ids of the prompt, where the server sends them per response."""
    choices: list[AssembledChoice] = field(default_factory=list)
    """The choices, by index."""


class ResponseAssembler:
    """Collects the chunks of one response."""

    def __init__(self) -> None:
        self._response = AssembledResponse()
        self._choices: dict[int, AssembledChoice] = {}
        self.problems: list[str] = []
        """Why parts of chunks could not be taken."""

    def add(self, chunk: Any) -> None:
        """Add a chunk; a part that can't be taken is a problem, and the others are taken."""
        response, piece = self._response, fields(chunk)
        for name in ("model", "id", "prompt_token_ids"):
            if getattr(response, name) is None:
                setattr(response, name, piece.get(name))
        response.usage = piece.get("usage") or response.usage
        choices = piece.get("choices") or ()
        for position, choice in enumerate(choices if isinstance(choices, (list, tuple)) else [choices]):
            try:
                self._add_choice(position, fields(choice))
            except Exception as error:
                raise_interrupt(error)
                self.problems.append(f"a choice of a chunk: {scalar_text(choice):.200}: {error}")

    def _add_choice(self, position: int, piece: Mapping[str, Any]) -> None:
        if not piece:
            raise TypeError("it is no choice")
        index = piece.get("index")
        index = index if isinstance(index, int) else position
        self._choices.setdefault(index, AssembledChoice()).add(piece)

    @property
    def response(self) -> AssembledResponse:
        """The response so far."""
        self._response.choices = [self._choices[index] for index in sorted(self._choices)]
        return self._response


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the deltas of a message, field by field."""
    merged: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            if value is not None:
                merged.setdefault(name, []).append(value)
    return {name: _joined(name, values) for name, values in merged.items()}


def _joined(name: str, values: list[Any]) -> Any:
    """Join the values of one field: texts are concatenated, mappings and lists of parts are merged."""
    if name in _WHOLE_FIELDS:
        return next((value for value in values if value), values[0])
    if all(isinstance(value, str) for value in values):
        return _name(values) if name == "name" else "".join(values)
    if name == "tool_calls":
        return _tool_calls(value if isinstance(value, list) else [value] for value in values)
    if name == "arguments":
        return _object(values)
    if all(isinstance(value, Mapping) for value in values):
        return _merged(values)
    if any(isinstance(value, (list, Mapping)) for value in values):
        return _parts(values)
    return values[-1]


def _name(values: Sequence[str]) -> str:
    """Return a name that was sent whole, perhaps repeatedly, or in fragments."""
    fragments = [value for value in values if value]
    return fragments[0] if len(set(fragments)) == 1 else "".join(fragments)


def _object(values: Sequence[Any]) -> Any:
    """Return arguments that a server sends as an object instead of its text."""
    objects = [value for value in values if isinstance(value, Mapping)]
    return {name: value for each in objects for name, value in each.items()} if objects else values[-1]


# Parts of a content.


def _parts(values: Iterable[Any]) -> list[Any]:
    """Return the parts of a content; fragments of one part, and texts between the parts, become one."""
    merged: list[Any] = []
    for part in chain.from_iterable(map(_as_parts, values)):
        last = merged[-1] if merged else None
        if isinstance(part, Mapping) and isinstance(last, Mapping) and _is_continued(last, part):
            merged[-1] = {**last, **{name: _continued(name, last.get(name), part[name]) for name in part}}
        else:
            merged.append(part)
    return merged


def _as_parts(value: Any) -> Iterable[Any]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}] if value else []
    return value if isinstance(value, list) else [value]


def _is_continued(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Return whether a part is a further fragment of the last one."""
    if "index" in part or "index" in last:
        return part.get("index") == last.get("index")
    is_same = last.get("type") == part.get("type") and part.get("id") in (None, last.get("id"))
    return is_same and any(name in last and name in part for name in _TEXT_FIELDS)


def _continued(name: str, before: Any, value: Any) -> Any:
    if before is None or name not in _TEXT_FIELDS:
        return before or value
    is_text = isinstance(before, str) and isinstance(value, str)
    return before + value if is_text else _parts([before, value])


# Tool calls.


class _ToolCall:
    """One tool call, of which fragments arrive."""

    def __init__(self) -> None:
        self.index: Any = None
        self.id: Any = None
        self.chunk = -1
        """The number of the chunk of the last fragment."""
        self._fragments: list[Mapping[str, Any]] = []

    def add(self, fragment: Mapping[str, Any], chunk: int) -> None:
        """Append a fragment, unless it is the complete call once more."""
        self.chunk = chunk
        self.index = fragment.get("index") if self.index is None else self.index
        self.id = self.id or fragment.get("id")
        arguments = _function(fragment).get("arguments")
        if not (_is_object(arguments) and arguments == self.arguments):
            self._fragments.append(fragment)

    @property
    def name(self) -> Any:
        """The name so far."""
        return _function(self.merged()).get("name")

    @property
    def arguments(self) -> Any:
        """The arguments so far."""
        return _function(self.merged()).get("arguments")

    def merged(self) -> dict[str, Any]:
        """Return the call without its index, as in a response that is not streamed."""
        call = _merged(self._fragments)
        call.pop("index", None)
        return call


def _tool_calls(chunks: Iterable[list[Any]]) -> list[dict[str, Any]]:
    """
    Return the tool calls of the fragments of each chunk, by index, else in the order of their beginnings.

    An id names a call; without one, a fragment belongs to the last call of its index, or to the last of all.
    """
    calls: list[_ToolCall] = []
    last: list[_ToolCall] = []
    for chunk, fragments in enumerate(chunks):
        for fragment in (item for item in fragments if isinstance(item, Mapping)):
            call = _call_of(fragment, last, chunk)
            if call is None:
                call = _ToolCall()
                calls.append(call)
            else:
                last.remove(call)
            call.add(fragment, chunk)
            last.append(call)
    if all(isinstance(call.index, int) for call in calls):
        calls.sort(key=lambda call: call.index)
    return [call.merged() for call in calls]


def _call_of(fragment: Mapping[str, Any], calls: Sequence[_ToolCall], chunk: int) -> _ToolCall | None:
    """Return the call that a fragment continues, of those in order of their last fragment; else None."""
    identity, index = fragment.get("id"), fragment.get("index")
    of_index = [call for call in calls if index is None or call.index == index]
    if identity:
        same = [call for call in calls if call.id == identity and (call in of_index or call.index is None)]
        if same:
            return same[-1]
        of_index = [call for call in of_index if not call.id and call.index == index]
    elif not of_index and calls and calls[-1].index is None and not _function(fragment).get("name"):
        return calls[-1]
    return of_index[-1] if of_index and not _is_another(fragment, of_index[-1], chunk) else None


def _is_another(fragment: Mapping[str, Any], call: _ToolCall, chunk: int) -> bool:
    """Return whether a fragment without an id begins another call than the last one."""
    name, arguments = (_function(fragment).get(key) for key in ("name", "arguments"))
    if not name:
        return False
    if call.chunk == chunk and fragment.get("index") is None and call.name:
        return True
    is_more = arguments and not (isinstance(arguments, str) and arguments.isspace())
    return bool(is_more or name != call.name) and _is_object(call.arguments)


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields(call.get("function"))


def _is_object(arguments: Any) -> bool:
    """Return whether arguments are complete: an object, or its text."""
    if not isinstance(arguments, str):
        return isinstance(arguments, Mapping)
    if not arguments.endswith(("}", " ", "\n")):
        return False
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False

"""Assembling a streamed OpenAI response from its chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

__all__ = ["AssembledResponse", "AssembledChoice", "ResponseAssembler", "Logprobs"]

_WHOLE_FIELDS = ("role", "id", "type", "name", "index")
"""Fields of a message that are sent whole; a server may repeat them."""


@dataclass(slots=True, kw_only=True)
class Logprobs:
    """The log probabilities of one choice."""

    content: list[Any] | None = None
    """For a chat: objects with a `logprob`, one per token."""
    token_logprobs: list[float] | None = None
    """For a text: one per token."""

    def add(self, piece: Any) -> None:
        """Append the log probabilities of a chunk."""
        if (content := _attribute(piece, "content")) is not None:
            self.content = self.content or []
            self.content.extend(content)
        if (numbers := _attribute(piece, "token_logprobs")) is not None:
            self.token_logprobs = self.token_logprobs or []
            self.token_logprobs.extend(numbers)


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

    def add(self, piece: Any) -> None:
        """Append this choice's part of a chunk."""
        self.finish_reason = _attribute(piece, "finish_reason") or self.finish_reason
        if (delta := _attribute(piece, "delta")) is not None:
            self.deltas.append(delta.model_dump(exclude_none=True))
        if (text := _attribute(piece, "text")) is not None:
            self.texts.append(text)
        if (ids := _attribute(piece, "token_ids")) is not None:
            self.token_ids = self.token_ids or []
            self.token_ids.extend(ids)
        if self.prompt_token_ids is None:
            self.prompt_token_ids = _attribute(piece, "prompt_token_ids")
        if (logprobs := _attribute(piece, "logprobs")) is not None:
            self.logprobs.add(logprobs)


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

    def add(self, chunk: Any) -> None:
        """Add a chunk."""
        response = self._response
        for name in ("model", "id", "prompt_token_ids"):
            if getattr(response, name) is None:
                setattr(response, name, _attribute(chunk, name))
        response.usage = _attribute(chunk, "usage") or response.usage
        for choice in _attribute(chunk, "choices") or ():
            self._choices.setdefault(choice.index, AssembledChoice()).add(choice)

    @property
    def response(self) -> AssembledResponse:
        """The response so far."""
        self._response.choices = [self._choices[index] for index in sorted(self._choices)]
        return self._response


def _attribute(piece: Any, name: str) -> Any:
    """Return an attribute or None; pydantic's `getattr` takes microseconds for a missing one."""
    found = vars(piece).get(name)
    return (piece.__pydantic_extra__ or {}).get(name) if found is None else found


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the deltas of a message, field by field."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, []).append(value)
    return {name: _joined(name, values) for name, values in found.items()}


def _joined(name: str, values: list[Any]) -> Any:
    """Join the values of one field: text is concatenated, mappings and indexed lists are merged."""
    if name in _WHOLE_FIELDS:
        return next((value for value in values if value), values[0])
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, Mapping) for value in values):
        return _merged(values)
    if all(isinstance(value, list) for value in values):
        return _by_index(list(chain.from_iterable(values)))
    return values[-1]


def _by_index(items: list[Any]) -> list[Any]:
    """Merge items with the same `index`, such as parts of tool calls; return other items unchanged."""
    if not all(isinstance(item, Mapping) and "index" in item for item in items):
        return items
    found: dict[int, list[Mapping[str, Any]]] = {}
    for item in items:
        found.setdefault(item["index"], []).append({key: item[key] for key in item if key != "index"})
    return [_merged(found[index]) for index in sorted(found)]

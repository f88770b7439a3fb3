"""An answer of OpenAI's kind that comes in pieces, put together to what it would have been as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

__all__ = ["AssembledResponse", "Choice", "Gathered", "Logprobs"]

_SAID_ONCE = ("role", "id", "type", "name", "index")
"""What does not come in pieces, though a server may repeat it."""


@dataclass(slots=True, kw_only=True)
class Logprobs:
    """Log probabilities, as far as they came."""

    content: list[Any] | None = None
    """Of a chat: objects that have a `logprob`, one per token."""
    token_logprobs: list[float] | None = None
    """Of a text: one per token."""

    def add(self, piece: Any) -> None:
        """Go on with a piece's."""
        if (content := _of(piece, "content")) is not None:
            self.content = self.content or []
            self.content.extend(content)
        if (numbers := _of(piece, "token_logprobs")) is not None:
            self.token_logprobs = self.token_logprobs or []
            self.token_logprobs.extend(numbers)


@dataclass(slots=True, kw_only=True)
class Choice:
    """One of the answers."""

    finish_reason: str | None = None
    """Why it stopped; None where it was not read to its end."""
    deltas: list[Mapping[str, Any]] = field(default_factory=list)
    """Pieces of a chat's message."""
    texts: list[str] = field(default_factory=list)
    """Pieces of a text."""
    logprobs: Logprobs = field(default_factory=Logprobs)
    """What each token's log probability is, where the server says it."""
    token_ids: list[int] | None = None
    """Ids of its tokens, where the server says them."""
    prompt_token_ids: Sequence[int] | None = None
    """Ids of the prompt's tokens, where the server says them here."""

    @property
    def message(self) -> dict[str, Any] | None:
        """A chat's message; None of a text."""
        return _whole(self.deltas) if self.deltas else None

    @property
    def text(self) -> str:
        """What a text says."""
        return "".join(self.texts)

    def add(self, piece: Any) -> None:
        """Go on with a piece's choice."""
        self.finish_reason = _of(piece, "finish_reason") or self.finish_reason
        if (delta := _of(piece, "delta")) is not None:
            self.deltas.append(delta.model_dump(exclude_none=True))
        if (text := _of(piece, "text")) is not None:
            self.texts.append(text)
        if (ids := _of(piece, "token_ids")) is not None:
            self.token_ids = self.token_ids or []
            self.token_ids.extend(ids)
        if self.prompt_token_ids is None:
            self.prompt_token_ids = _of(piece, "prompt_token_ids")
        if (logprobs := _of(piece, "logprobs")) is not None:
            self.logprobs.add(logprobs)


@dataclass(slots=True, kw_only=True)
class AssembledResponse:
    """What came, under the names that a whole answer has."""

    model: str | None = None
    """Who answered."""
    id: str | None = None
    """The server's id of the answer."""
    usage: Any = None
    """How many tokens it took, where the server says so, which it does at the end."""
    prompt_token_ids: Sequence[int] | None = None
    """Ids of the prompt's tokens, where the server says them here."""
    choices: list[Choice] = field(default_factory=list)
    """The answers, in the server's order."""


class Gathered:
    """The pieces of one answer."""

    def __init__(self) -> None:
        self._answer = AssembledResponse()
        self._choices: dict[int, Choice] = {}

    def add(self, piece: Any) -> None:
        """Take another piece."""
        answer = self._answer
        for name in ("model", "id", "prompt_token_ids"):
            if getattr(answer, name) is None:
                setattr(answer, name, _of(piece, name))
        answer.usage = _of(piece, "usage") or answer.usage
        for choice in _of(piece, "choices") or ():
            self._choices.setdefault(choice.index, Choice()).add(choice)

    @property
    def answer(self) -> AssembledResponse:
        """What they come to."""
        self._answer.choices = [self._choices[index] for index in sorted(self._choices)]
        return self._answer


def _of(piece: Any, name: str) -> Any:
    """An attribute, or None: a model of pydantic's takes microseconds to say that it has no such."""
    found = vars(piece).get(name)
    return (piece.__pydantic_extra__ or {}).get(name) if found is None else found


def _whole(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What the pieces of a message come to."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, []).append(value)
    return {name: _joined(name, values) for name, values in found.items()}


def _joined(name: str, values: list[Any]) -> Any:
    if name in _SAID_ONCE:
        return next((value for value in values if value), values[0])
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, Mapping) for value in values):
        return _whole(values)
    if all(isinstance(value, list) for value in values):
        return _listed(list(chain.from_iterable(values)))
    return values[-1]


def _listed(items: list[Any]) -> list[Any]:
    """Items that say which they are a piece of, such as calls of tools, put together; others as they came."""
    if not all(isinstance(item, Mapping) and "index" in item for item in items):
        return items
    found: dict[int, list[Mapping[str, Any]]] = {}
    for item in items:
        found.setdefault(item["index"], []).append({key: item[key] for key in item if key != "index"})
    return [_whole(found[index]) for index in sorted(found)]

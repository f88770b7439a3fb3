"""A completion as the steps of its episode: one, or one per turn where tools or an environment answer."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mttp.integrations.trl.batch import Use
from mttp.model.episodes import Call, Step, Tokens
from mttp.otlp.spans import error_message, qualified_name

__all__ = ["Completion", "steps"]

Array = np.ndarray[Any, Any]
Message: TypeAlias = Mapping[str, Any]


class _Place(NamedTuple):
    """Where a turn is among the tokens of its completion."""

    begin: int
    """Where the tokens begin that the policy is shown."""
    sampled: int
    """Where those that it samples begin."""
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One completion with its tokens; arrays have an element per completion token."""

    prompt: Any
    """Text, or messages."""
    text: Any
    """What came of it: text, or the messages of the policy and of tools in turn."""
    prompt_ids: Array | None
    """None where they are not known."""
    ids: Array
    sampled: Array | None
    """1 where the policy sampled the token, 0 where a tool put it there; None where it sampled all."""
    arrays: Mapping[str, Array]
    """The other arrays, by the names that `mttp.Tokens` has."""
    version: str
    """The policy's version."""
    truncated: bool
    uses: Sequence[Use]
    """Calls of tools, in order."""
    decode: Callable[[Array], str]
    """The text of tokens."""
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """What the policy was shown, and what it then sampled."""

    shown: Any
    said: Any
    place: _Place
    calls: Sequence[Message] = ()
    """The calls of tools that it asked for."""
    answers: Sequence[Message] = ()
    """The tools' answers."""


def steps(completion: Completion, *, trained_reward: float | None = None) -> tuple[Step, ...]:
    """The steps; `trained_reward` is what the trainer learns from instead of what was paid."""
    turns = list(_turns(completion))
    uses: dict[str, deque[Use]] = defaultdict(deque)
    for use in completion.uses:
        uses[use.name].append(use)
    last = len(turns) - 1
    return tuple(
        Step(
            index=index,
            observation=turn.shown,
            action=turn.said,
            tokens=_tokens(completion, turns, index),
            calls=tuple(_calls(turn, uses)),
            terminated=not completion.truncated if index == last else False,
            truncated=completion.truncated if index == last else False,
            trained_reward=trained_reward if index == last else None,
            start_time=completion.start,
            end_time=completion.end,
        )
        for index, turn in enumerate(turns)
    )


def _turns(completion: Completion) -> Iterator[_Turn]:
    """The turns; one alone where what was said can't be told apart."""
    places = _places(completion.sampled, len(completion.ids))
    said = _spoken(completion.text)
    if len(places) > 1 and len(said) <= 1 and not any(answers for _, answers in said):
        yield from _decoded(completion, places)
        return
    if len(places) == 1 or len(said) != sum(place.sampled < place.end for place in places):
        calls = _asked(said[0][0]) if said else ()
        whole = _Place(places[0].begin, places[0].sampled, places[-1].end)
        yield _Turn(completion.prompt, _alone(completion.text), whole, calls)
        return
    shown: Any = completion.prompt
    for place, (message, answers) in zip(places, said, strict=False):
        yield _Turn(shown, message, place, _asked(message), answers)
        shown = answers
    if len(places) > len(said):
        yield _Turn(shown, None, places[-1])


def _places(sampled: Array | None, count: int) -> list[_Place]:
    """A place per turn; in the last one nothing may have been sampled any more."""
    if sampled is None:
        return [_Place(0, 0, count)]
    edges = np.flatnonzero(np.diff(sampled.astype(np.int8), prepend=0, append=0))
    begins, ends = edges[::2].tolist(), edges[1::2].tolist()
    found = list(map(_Place, [0, *ends], begins, ends))
    last = ends[-1] if ends else 0
    if last < len(sampled) or not found:
        found.append(_Place(last, len(sampled), len(sampled)))
    return found


def _alone(text: Any) -> Any:
    """A message alone, where there is one only."""
    return text[0] if isinstance(text, (list, tuple)) and len(text) == 1 else text


def _decoded(completion: Completion, places: Sequence[_Place]) -> Iterator[_Turn]:
    """Turns of which there is no more than the tokens, as a rollout function's own."""
    for place in places:
        begin, sampled, end = place
        shown: Any = completion.decode(completion.ids[begin:sampled]) if begin < sampled else None
        if begin == 0:
            shown = completion.prompt if shown is None else [completion.prompt, shown]
        yield _Turn(shown, completion.decode(completion.ids[sampled:end]), place)


def _spoken(text: Any) -> list[tuple[Message, list[Message]]]:
    """Each message of the policy, with the tools' answers to it; nothing of what is only text."""
    found: list[tuple[Message, list[Message]]] = []
    for message in () if isinstance(text, str) else text:
        if message.get("role") == "tool" and found:
            found[-1][1].append(message)
        else:
            found.append((message, []))
    return found


def _asked(message: Message) -> Sequence[Message]:
    return message.get("tool_calls") or ()


def _calls(turn: _Turn, uses: Mapping[str, deque[Use]]) -> Iterator[Call]:
    """The calls that a message asked for, each with what was seen of it, else with what its answer says."""
    answers: dict[str, deque[Any]] = defaultdict(deque)
    for told in turn.answers:
        answers[str(told.get("name"))].append(told.get("content"))
    for asked in turn.calls:
        function = asked.get("function") or asked
        name = str(function.get("name", "unknown"))
        answer = answers[name].popleft() if answers[name] else None
        facts: dict[str, Any] = {"id": asked.get("id"), "arguments": function.get("arguments")}
        is_made = isinstance(facts["arguments"], Mapping)  # else Python refuses, and the tool sees nothing
        facts |= _seen(uses[name].popleft()) if is_made and uses[name] else {"result": answer}
        yield Call(operation="execute_tool", name=name, **facts)


def _seen(use: Use) -> dict[str, Any]:
    facts: dict[str, Any] = {"start_time": use.start, "end_time": use.end}
    if use.error is None:
        return facts | {"result": use.result}
    return facts | {
        "error_type": qualified_name(use.error),
        "error_message": error_message(use.error),
    }


def _tokens(completion: Completion, turns: Sequence[_Turn], index: int) -> Tokens:
    """A turn's own tokens; the conversation so far is that of the turn before."""
    (begin, sampled, end), ids = turns[index].place, completion.ids
    prompt: Array | None = ids[begin:sampled]
    parent = None
    if completion.prompt_ids is None:
        prompt = None
    elif index == 0:
        prompt = np.concatenate([completion.prompt_ids, ids[begin:sampled]])
    else:
        parent = (index - 1, len(completion.prompt_ids) + begin)
    arrays: dict[str, Any] = {name: array[sampled:end] for name, array in completion.arrays.items()}
    return Tokens(
        ids=ids[sampled:end],
        prompt_ids=prompt,
        parent=parent,
        policy_version=completion.version,
        **arrays,
    )

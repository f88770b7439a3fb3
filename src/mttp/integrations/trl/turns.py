"""Splitting a completion into steps: one per turn of the policy, where tools or an environment respond."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mttp.integrations.trl.batch import ToolUse
from mttp.model.episodes import Call, Step, Tokens
from mttp.otlp.spans import error_message, qualified_name

__all__ = ["Completion", "steps"]

Array = np.ndarray[Any, Any]
Message: TypeAlias = Mapping[str, Any]


class _TokenRange(NamedTuple):
    """The token positions of one turn in its completion."""

    begin: int
    """The first token of the tools' results before the turn."""
    sampled: int
    """The first token that the policy sampled."""
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One completion; arrays have one element per completion token."""

    prompt: Any
    """Text or messages."""
    text: Any
    """Text, or the messages of the policy and of tools."""
    prompt_ids: Array | None
    """The token ids of the prompt; None if unknown."""
    ids: Array
    """The token ids of the completion."""
    sampled: Array | None
    """1 for tokens that the policy sampled, 0 for tokens of tool results; None if it sampled all."""
    arrays: Mapping[str, Array]
    """Other arrays, by the field names of `mttp.Tokens`."""
    version: str
    """The policy's version."""
    truncated: bool
    uses: Sequence[ToolUse]
    """The tool calls, in order."""
    decode: Callable[[Array], str]
    """Returns the text of token ids."""
    start: int
    """The start of generation in nanoseconds since the Unix epoch."""
    end: int
    """The end of generation in nanoseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn of the policy."""

    observation: Any
    action: Any
    tokens: _TokenRange
    calls: Sequence[Message] = ()
    """The tool calls in the policy's message."""
    tool_messages: Sequence[Message] = ()
    """The tools' results."""


def steps(completion: Completion, *, trained_reward: float | None = None) -> tuple[Step, ...]:
    """Return a completion's steps; `trained_reward` is the trainer's adjusted reward, for the last step."""
    turns = list(_turns(completion))
    uses: dict[str, deque[ToolUse]] = defaultdict(deque)
    for use in completion.uses:
        uses[use.name].append(use)
    last = len(turns) - 1
    return tuple(
        Step(
            index=index,
            observation=turn.observation,
            action=turn.action,
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
    """Yield the turns; a single one where messages and token ranges do not match."""
    ranges = _token_ranges(completion.sampled, len(completion.ids))
    messages = _policy_messages(completion.text)
    if len(ranges) > 1 and len(messages) <= 1 and not any(results for _, results in messages):
        yield from _decoded(completion, ranges)
        return
    if len(ranges) == 1 or len(messages) != sum(tokens.sampled < tokens.end for tokens in ranges):
        calls = _tool_calls(messages[0][0]) if messages else ()
        whole = _TokenRange(ranges[0].begin, ranges[0].sampled, ranges[-1].end)
        yield _Turn(completion.prompt, _single(completion.text), whole, calls)
        return
    observation: Any = completion.prompt
    for tokens, (message, results) in zip(ranges, messages, strict=False):
        yield _Turn(observation, message, tokens, _tool_calls(message), results)
        observation = results
    if len(ranges) > len(messages):
        yield _Turn(observation, None, ranges[-1])


def _token_ranges(sampled: Array | None, count: int) -> list[_TokenRange]:
    """Return the token range of each turn; the last turn may have no sampled tokens."""
    if sampled is None:
        return [_TokenRange(0, 0, count)]
    edges = np.flatnonzero(np.diff(sampled.astype(np.int8), prepend=0, append=0))
    begins, ends = edges[::2].tolist(), edges[1::2].tolist()
    ranges = list(map(_TokenRange, [0, *ends], begins, ends))
    last = ends[-1] if ends else 0
    if last < len(sampled) or not ranges:
        ranges.append(_TokenRange(last, len(sampled), len(sampled)))
    return ranges


def _single(text: Any) -> Any:
    """Return the message of a list with one message; other values unchanged."""
    return text[0] if isinstance(text, (list, tuple)) and len(text) == 1 else text


def _decoded(completion: Completion, ranges: Sequence[_TokenRange]) -> Iterator[_Turn]:
    """Yield turns decoded from the tokens, for a rollout function that returns no messages."""
    for tokens in ranges:
        begin, sampled, end = tokens
        observation: Any = completion.decode(completion.ids[begin:sampled]) if begin < sampled else None
        if begin == 0:
            observation = completion.prompt if observation is None else [completion.prompt, observation]
        yield _Turn(observation, completion.decode(completion.ids[sampled:end]), tokens)


def _policy_messages(text: Any) -> list[tuple[Message, list[Message]]]:
    """Return each message of the policy with the tool messages after it; empty for text."""
    exchanges: list[tuple[Message, list[Message]]] = []
    for message in () if isinstance(text, str) else text:
        if message.get("role") == "tool" and exchanges:
            exchanges[-1][1].append(message)
        else:
            exchanges.append((message, []))
    return exchanges


def _tool_calls(message: Message) -> Sequence[Message]:
    return message.get("tool_calls") or ()


def _calls(turn: _Turn, uses: Mapping[str, deque[ToolUse]]) -> Iterator[Call]:
    """Yield the tool calls of a turn, from the observed call if there is one, else from the tool message."""
    results: dict[str, deque[Any]] = defaultdict(deque)
    for message in turn.tool_messages:
        results[str(message.get("name"))].append(message.get("content"))
    for call in turn.calls:
        function = call.get("function") or call
        name = str(function.get("name", "unknown"))
        result = results[name].popleft() if results[name] else None
        facts: dict[str, Any] = {"id": call.get("id"), "arguments": function.get("arguments")}
        is_valid = isinstance(facts["arguments"], Mapping)  # TRL does not reach the tool with other arguments
        facts |= _observed(uses[name].popleft()) if is_valid and uses[name] else {"result": result}
        yield Call(operation="execute_tool", name=name, **facts)


def _observed(use: ToolUse) -> dict[str, Any]:
    facts: dict[str, Any] = {"start_time": use.start, "end_time": use.end}
    if use.error is None:
        return facts | {"result": use.result}
    return facts | {
        "error_type": qualified_name(use.error),
        "error_message": error_message(use.error),
    }


def _tokens(completion: Completion, turns: Sequence[_Turn], index: int) -> Tokens:
    """Return a turn's own tokens; `parent` refers to the tokens of the turn before."""
    (begin, sampled, end), ids = turns[index].tokens, completion.ids
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

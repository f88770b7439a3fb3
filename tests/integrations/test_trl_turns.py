"""A completion as steps: the boundaries of turns, their tokens and their tool calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from mttp.integrations.trl.batch import ToolUse
from mttp.integrations.trl.turns import Completion, steps

PROMPT = [{"role": "user", "content": "6*7?"}]


def asks(*names: str) -> dict[str, Any]:
    """Return a message with tool calls."""
    calls = [
        {"type": "function", "function": {"name": name, "arguments": {"n": place}}}
        for place, name in enumerate(names)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def answers(name: str, content: str) -> dict[str, str]:
    """Return a tool message."""
    return {"role": "tool", "name": name, "content": content}


SAYS = {"role": "assistant", "content": "42"}


def completion(text: Any, sampled: list[int] | None, count: int = 6, **more: Any) -> Completion:
    """Return a completion of tokens 0, 1, 2, …"""
    facts: dict[str, Any] = {
        "prompt": PROMPT,
        "text": text,
        "prompt_ids": np.array([91, 92]),
        "ids": np.arange(count),
        "sampled": None if sampled is None else np.array(sampled),
        "arrays": {"masks": np.ones(count, np.int64)},
        "version": "3",
        "truncated": False,
        "uses": (),
        "decode": lambda ids: "".join(map(str, ids.tolist())),
        "start": 10,
        "end": 20,
    }
    return Completion(**facts | more)


def tokens(found: tuple[Any, ...]) -> list[tuple[list[int], list[int], Any]]:
    """Return each step's prompt tokens, sampled tokens and parent."""
    return [(step.tokens.prompt_ids.tolist(), step.tokens.ids.tolist(), step.tokens.parent) for step in found]


def test_a_completion_without_tools_is_a_step() -> None:
    """
    Its observation is the prompt, and its action the single message.
    """
    (step,) = steps(completion([SAYS], None), trained_reward=0.5)

    assert (PROMPT, SAYS, 0.5, True) == (step.observation, step.action, step.trained_reward, step.terminated)
    assert [([91, 92], [0, 1, 2, 3, 4, 5], None)] == tokens((step,))


def test_each_turn_has_its_own_tokens() -> None:
    """
    A tool's result is prompt tokens of the next turn, whose parent is the turn before.
    """
    found = steps(completion([asks("add"), answers("add", "3"), SAYS], [1, 1, 0, 0, 1, 1]))

    assert [([91, 92], [0, 1], None), ([2, 3], [4, 5], (0, 4))] == tokens(found)
    assert [PROMPT, [answers("add", "3")]] == [step.observation for step in found]
    assert [(False, False), (True, False)] == [(step.terminated, step.truncated) for step in found]


def test_calls_are_matched_with_their_answers() -> None:
    """
    By name, and by order for one name.
    """
    said = [asks("add", "look", "add"), answers("add", "1"), answers("add", "2"), answers("look", "x"), SAYS]

    first, _ = steps(completion(said, [1, 0, 0, 0, 1, 1]))

    assert [("add", {"n": 0}, "1"), ("look", {"n": 1}, "x"), ("add", {"n": 2}, "2")] == [
        (call.name, call.arguments, call.result) for call in first.calls
    ]


def test_an_observed_call_takes_precedence() -> None:
    """
    It has the result itself, times, and an error with its class.
    """
    uses = [ToolUse("add", {}, 11, 12, result=3), ToolUse("add", {}, 13, 14, error=KeyError("n"))]
    said = [asks("add", "add"), answers("add", "3"), answers("add", "{'error': ...}"), SAYS]

    first, _ = steps(completion(said, [1, 0, 0, 0, 1, 1], uses=uses))

    one, other = first.calls
    assert (3, 11, 12, None) == (one.result, one.start_time, one.end_time, one.error_type)
    assert (None, "KeyError", "'n'", 14) == (
        other.result,
        other.error_type,
        other.error_message,
        other.end_time,
    )


def test_a_call_that_could_not_be_made_is_not_the_next_one() -> None:
    """
    With a list as arguments the tool is not called, and the next observed call belongs to the next tool call.
    """
    wrong, right = asks("add"), asks("add")
    wrong["tool_calls"][0]["function"]["arguments"] = [1, 2]
    said = [wrong, answers("add", "{'error': ...}"), right, answers("add", "3"), SAYS]

    found = steps(completion(said, [1, 0, 1, 0, 1, 1], uses=[ToolUse("add", {"n": 0}, 11, 12, result=3)]))

    assert ["{'error': ...}", 3] == [step.calls[0].result for step in found[:2]]


def test_answers_that_did_not_fit_leave_the_call() -> None:
    """
    TRL removes a tool's result for which there is no room; the call stays.
    """
    (step,) = steps(
        completion([asks("add")], None, uses=[ToolUse("add", {}, 11, 12, result=3)], truncated=True)
    )

    assert ([3], True, False) == ([call.result for call in step.calls], step.truncated, step.terminated)


def test_a_turn_without_room_to_answer_is_a_step() -> None:
    """
    It has an observation and no action.
    """
    said = [asks("add"), answers("add", "3")]

    first, last = steps(completion(said, [1, 1, 1, 0, 0, 0], truncated=True))

    assert ([answers("add", "3")], None, True) == (last.observation, last.action, last.truncated)
    assert [([91, 92], [0, 1, 2], None), ([3, 4, 5], [], (0, 5))] == tokens((first, last))


def test_turns_without_messages_are_read_from_the_tokens() -> None:
    """
    A rollout function may return only tokens and a mask.
    """
    found = steps(completion("all of it", [1, 1, 0, 1, 0, 1]))

    assert [(PROMPT, "01"), ("2", "3"), ("4", "5")] == [(step.observation, step.action) for step in found]
    assert [(91, 92), (2,), (4,)] == [tuple(given) for given, _, _ in tokens(found)]


def test_an_environment_s_first_text_is_part_of_the_prompt() -> None:
    """
    Tokens before the policy's first ones are part of the observation.
    """
    first, *_ = steps(completion("all of it", [0, 0, 1, 1, 0, 1]))

    assert ([PROMPT, "01"], "23") == (first.observation, first.action)
    assert [([91, 92, 0, 1], [2, 3], None)] == tokens((first,))


def test_messages_that_fit_no_turns_are_one_step() -> None:
    """
    If messages and mask do not match, all messages are the action, and all tokens its own.
    """
    said = [asks("add"), answers("add", "3"), SAYS, SAYS]

    (step,) = steps(completion(said, [1, 1, 0, 0, 1, 1]))

    assert said == step.action
    assert [([91, 92], [0, 1, 2, 3, 4, 5], None)] == tokens((step,))


def test_an_empty_completion_is_a_step() -> None:
    """
    The policy may sample nothing.
    """
    (step,) = steps(completion("", None, count=0))

    assert ("", [([91, 92], [], None)]) == (step.action, tokens((step,)))

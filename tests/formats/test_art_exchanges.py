"""Trajectories of ART that hold captured exchanges in place of messages and choices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mttp.formats import art

ASKED = {"role": "user", "content": "2+2?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "4"}
TIMES = {"start_time": "2026-11-01T00:00:00Z", "end_time": "2026-11-01T00:00:01Z"}
LATER = {"start_time": "2026-11-01T00:00:02Z", "end_time": "2026-11-01T00:00:03Z"}


def chat(message: Any, reason: str) -> dict[str, Any]:
    """Return a response of a chat, with log probabilities and token ids."""
    logprobs = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]}
    choice = {"index": 0, "finish_reason": reason, "message": message, "logprobs": logprobs}
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    return {"id": "1", "model": "m-1", "choices": [{**choice, "token_ids": [5, 6]}], "usage": usage}


CHATS = {
    "chat_completions": [
        {
            **LATER,
            "request": {"model": "m", "messages": [ASKED, CALLS, RESULT]},
            "response": chat({"role": "assistant", "content": "4"}, "stop"),
        },
        {
            **TIMES,
            "request": {"model": "m", "messages": [ASKED]},
            "response": chat(CALLS, "tool_calls"),
        },
    ]
}
FUNCTION = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'}
RESPONSES = {
    "responses": [
        {
            **TIMES,
            "request": {"model": "m", "instructions": "Add.", "input": "2+2?"},
            "response": {"id": "1", "output": [{"type": "reasoning", "id": "r", "summary": []}, FUNCTION]},
        }
    ]
}
MESSAGES = {
    "messages": [
        {
            **TIMES,
            "request": {"model": "m", "system": "Add.", "messages": [ASKED]},
            "response": {
                "id": "1",
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 2}}],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 9, "output_tokens": 2},
            },
        }
    ]
}


@pytest.mark.parametrize("is_row", [True, False])
def test_each_exchange_is_a_step(is_row: bool) -> None:
    """
    In order of their starts, with new messages, answer, tool calls and results, tokens, usage and times.
    """
    record: dict[str, Any] = {"reward": 1.0, "metrics": {}, "exchanges": CHATS}
    if is_row:
        record = {**record, "messages": None, "trajectory_json": json.dumps(record)}
        del record["exchanges"]

    episode = art.episode(record)

    first, second = episode.steps
    assert ([ASKED], "add", [RESULT], "4") == (
        first.observation,
        first.action["tool_calls"][0]["function"]["name"],
        second.observation,
        second.action["content"],
    )
    model, tool = first.calls
    assert ("m", "m-1", ("tool_calls",), 9, 2) == (
        model.name,
        model.response_model,
        model.finish_reasons,
        model.input_tokens,
        model.output_tokens,
    )
    assert ("execute_tool", "add", {"a": 2}, "4") == (
        tool.operation,
        tool.name,
        tool.arguments,
        tool.result,
    )
    assert ([5, 6], [-0.5, -0.25]) == (first.tokens.ids.tolist(), first.tokens.logprobs.tolist())
    assert 10**9 == first.end_time - first.start_time
    assert ("2+2?", 1.0) == (episode.task, episode.return_)


@pytest.mark.parametrize("exchanges", [RESPONSES, MESSAGES])
def test_other_interfaces_are_chats(exchanges: Any) -> None:
    """
    The system's instructions are a message, and a call has the id that its answer will name.
    """
    (step,) = art.episode({"reward": 0.0, "metrics": {}, "exchanges": exchanges}).steps

    assert ["system", "user"] == [message["role"] for message in step.observation]
    assert ["c1"] == [call["id"] for call in step.action["tool_calls"]]
    assert [{"a": 2}] == [call.arguments for call in step.calls[1:]]

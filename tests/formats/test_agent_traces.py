"""Traces of agents without episodes: conventions, OpenInference and rl.* attributes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mttp
from mttp import formats

TRACE = "0af7651916cd43dd8448eb211c80319c"
TOOL = {
    "gen_ai__operation__name": "execute_tool",
    "gen_ai__tool__name": "add",
    "gen_ai__tool__call__result": "4",
}
START = 1_700_000_000_000_000_000


def attribute(value: Any) -> dict[str, Any]:
    """A value in OTLP JSON."""
    kind = {bool: "boolValue", int: "intValue", float: "doubleValue"}.get(type(value), "stringValue")
    return {kind: str(value) if kind == "intValue" else value}


def span(
    number: int, name: str, parent: int | None = None, *, error: str = "", **attributes: Any
) -> dict[str, Any]:
    """A span in OTLP JSON, a second after the one before it; `__` in a name stands for a dot."""
    return {
        "traceId": TRACE,
        "spanId": f"{number + 1:016x}",
        **({} if parent is None else {"parentSpanId": f"{parent + 1:016x}"}),
        "name": name,
        "startTimeUnixNano": str(START + number * 10**9),
        "endTimeUnixNano": str(START + (number + 1) * 10**9),
        "attributes": [
            {"key": key.replace("__", "."), "value": attribute(value)} for key, value in attributes.items()
        ],
        "status": {"code": 2, "message": error} if error else {},
    }


def messages(*said: tuple[str, str]) -> str:
    """Messages as the conventions have them."""
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in said])


def chat(number: int, parent: int | None, asked: str, answered: str) -> dict[str, Any]:
    """A model call of the conventions."""
    return span(
        number,
        "chat gpt-x",
        parent,
        gen_ai__operation__name="chat",
        gen_ai__request__model="gpt-x",
        gen_ai__usage__input_tokens=9,
        gen_ai__usage__output_tokens=3,
        gen_ai__input__messages=asked,
        gen_ai__output__messages=answered,
    )


def written(tmp_path: Path, *spans: dict[str, Any], service: str = "adder") -> Path:
    """A file with these spans."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    document = {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]
    }
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(document) + "\n")
    return path


def episode(path: Path) -> mttp.Episode:
    """The only episode of a file."""
    (found,) = formats.read(path)
    assert isinstance(found, mttp.Episode), found

    return found


def test_an_agent_s_trace_is_an_episode_of_its_model_calls(tmp_path: Path) -> None:
    """
    Observations are what is new since the call before; a tool's call belongs to the step before it.
    """
    first = messages(("system", "Add."), ("user", "2+2?"))
    second = messages(("system", "Add."), ("user", "2+2?"), ("assistant", "calling"), ("tool", "4"))
    path = written(
        tmp_path,
        span(0, "invoke_agent", gen_ai__operation__name="invoke_agent"),
        chat(1, 0, first, messages(("assistant", "calling"))),
        span(
            2,
            "add",
            0,
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="add",
            gen_ai__tool__call__result="4",
        ),
        chat(3, 0, second, messages(("assistant", "It is 4."))),
    )
    found = episode(path)

    assert "agent_traces" == formats.recognize(path)
    assert (TRACE, "adder", "2+2?", "gpt-x", "completed") == (
        found.trace_id,
        found.env,
        found.task,
        found.policy,
        found.status,
    )
    assert ["Add.", "2+2?"] == [message["content"] for message in found.steps[0].observation]
    assert [{"role": "tool", "content": "4"}] == found.steps[1].observation
    assert {"role": "assistant", "content": "It is 4."} == found.steps[1].action
    assert [["chat", "execute_tool"], ["chat"]] == [
        [call.operation for call in step.calls] for step in found.steps
    ]
    assert (START, START + 4 * 10**9) == (found.start_time, found.end_time)


def test_openinference(tmp_path: Path) -> None:
    """
    A chain around a call is no step, and a call inside a call is the same call.
    """
    call = {
        "openinference__span__kind": "LLM",
        "llm__model_name": "claude-x",
        "llm__input_messages__0__message__role": "user",
        "llm__input_messages__0__message__content": "2+2?",
        "llm__output_messages__0__message__role": "assistant",
        "llm__output_messages__0__message__content": "4",
    }
    path = written(
        tmp_path,
        span(0, "chain", openinference__span__kind="CHAIN"),
        span(1, "call", 0, **call),
        chat(2, 1, messages(("user", "2+2?")), messages(("assistant", "4"))),
    )
    (step,) = episode(path).steps

    assert ([{"role": "user", "content": "2+2?"}], {"role": "assistant", "content": "4"}) == (
        step.observation,
        step.action,
    )


def test_a_root_that_failed_is_an_error(tmp_path: Path) -> None:
    """
    With its message.
    """
    path = written(
        tmp_path,
        span(0, "agent", error="no tool", error__type="KeyError"),
        chat(1, 0, messages(("user", "?")), "[]"),
    )
    found = episode(path)

    assert ("error", "KeyError", "no tool") == (found.status, found.error_type, found.error_message)


def test_rewards_of_the_proposed_rl_attributes(tmp_path: Path) -> None:
    """
    With the task's id and the reason.
    """
    path = written(
        tmp_path,
        chat(1, None, messages(("user", "?")), messages(("assistant", "4"))),
        span(
            2,
            "rl.reward",
            None,
            rl__reward__score=0.5,
            rl__reward__run__reason="half",
            rl__sample__task__id="t7",
        ),
    )
    found = episode(path)

    assert (0.5, "half", "t7") == (found.return_, found.reward.explanation, found.task)


def test_a_recording_of_mttp_is_not_such_a_trace(tmp_path: Path) -> None:
    """
    It needs no import.
    """
    path = tmp_path / "own.jsonl"
    with mttp.configure(f"file://{path}"), mttp.episode(env="toy"):
        pass

    assert formats.recognize(path) is None


def test_traces_without_calls_and_rewards_are_left_out(tmp_path: Path) -> None:
    """
    Other spans of a service are no episodes.
    """
    assert [] == list(formats.read(written(tmp_path, span(0, "GET /health", http__route="/health"))))

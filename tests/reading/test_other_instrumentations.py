"""
Spans of other instrumentations inside a step are read as calls.

The attributes are those that the packages wrote in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import trace

import mttp
from mttp.model import Call

OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.provider": "anthropic",
    "llm.request.model_name": "claude-x",
    "llm.model_name": "claude-x-1",
    "llm.invocation_parameters": '{"max_tokens": 10, "temperature": 1}',
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Add.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.content": "2+2?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.contents.0.message_content.type": "text",
    "llm.output_messages.0.message.contents.0.message_content.text": "It is 4.",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "t1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "add",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"a": 2}',
    "llm.finish_reason": "tool_use",
    "llm.token_count.prompt": 9,
    "llm.token_count.completion": 3,
}
OPENINFERENCE_TOOL = {
    "openinference.span.kind": "TOOL",
    "tool.name": "add",
    "input.value": '{"a": 2}',
    "output.value": "4",
}
CONVENTIONS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-x",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.response.id": "c1",
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.usage.input_tokens": 9,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "2+2?"}]}]',
    "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "It is 4."}]}]',
}
OLDER = {
    "gen_ai.system": "OpenAI",
    "llm.request.type": "chat",
    "gen_ai.request.model": "gpt-x",
    "gen_ai.usage.prompt_tokens": 9,
    "gen_ai.usage.completion_tokens": 3,
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": "2+2?",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "It is 4.",
    "gen_ai.completion.0.finish_reason": "stop",
}
OLDER_TOOL = {
    "traceloop.span.kind": "tool",
    "traceloop.entity.name": "add",
    "traceloop.entity.input": '{"a": 2}',
    "traceloop.entity.output": "4",
}


def said(role: str, text: str) -> list[dict[str, Any]]:
    """A message with a text, as the conventions have it."""
    return [{"role": role, "parts": [{"type": "text", "content": text}]}]


def episode(*spans: Mapping[str, Any], nested: Mapping[str, Any] | None = None) -> mttp.Episode:
    """An episode with these spans of another library in its step, the last ones inside `nested`."""
    tracer = trace.get_tracer("another")
    with mttp.configure("memory://") as session:
        with mttp.episode(env="toy") as opened, opened.step():
            if nested is None:
                for attributes in spans:
                    with tracer.start_as_current_span("call", attributes=attributes):
                        pass
            else:
                with tracer.start_as_current_span("around", attributes=nested):
                    for attributes in spans:
                        with tracer.start_as_current_span("call", attributes=attributes):
                            pass
        summary = mttp.summarize(session)
        recording = mttp.read(session)
    (found,) = recording

    assert [] == recording.problems
    whole = recording.summary()
    assert (summary.call_input_tokens, summary.call_output_tokens) == (
        whole.call_input_tokens,
        whole.call_output_tokens,
    )
    assert summary.call_input_tokens == sum(call.input_tokens or 0 for call in found.steps[0].calls)
    return found


def test_a_model_call_of_openinference() -> None:
    """
    With model, parameters, usage, finish reason and both sides of the conversation.
    """
    (call,) = episode(OPENINFERENCE).steps[0].calls
    answer = said("assistant", "It is 4.")
    answer[0]["parts"].append({"type": "tool_call", "id": "t1", "name": "add", "arguments": {"a": 2}})

    assert call == Call(
        operation="chat",
        name="claude-x",
        provider="anthropic",
        response_model="claude-x-1",
        parameters={"max_tokens": 10, "temperature": 1.0},
        finish_reasons=("tool_use",),
        input_tokens=9,
        output_tokens=3,
        arguments=[*said("system", "Add."), *said("user", "2+2?")],
        result=answer,
    )


def test_a_model_call_of_the_conventions_has_its_content() -> None:
    """
    Messages are recorded as JSON texts or as values.
    """
    values = {**CONVENTIONS, "gen_ai.response.id": "c2", "gen_ai.input.messages": "no JSON"}
    first, second = episode(CONVENTIONS, values).steps[0].calls

    assert (said("user", "2+2?"), said("assistant", "It is 4.")) == (first.arguments, first.result)
    assert "no JSON" == second.arguments


def test_older_names_of_attributes() -> None:
    """
    Those of OpenLLMetry before the conventions had messages.
    """
    (call,) = episode(OLDER).steps[0].calls

    assert ("chat", "gpt-x", "OpenAI", 9, 3, ("stop",)) == (
        call.operation,
        call.name,
        call.provider,
        call.input_tokens,
        call.output_tokens,
        call.finish_reasons,
    )
    assert (said("user", "2+2?"), said("assistant", "It is 4.")) == (call.arguments, call.result)


@pytest.mark.parametrize("attributes", [OPENINFERENCE_TOOL, OLDER_TOOL])
def test_tool_calls(attributes: Mapping[str, Any]) -> None:
    """
    With arguments and result.
    """
    (call,) = episode(attributes).steps[0].calls

    assert ("execute_tool", "add", {"a": 2}, "4") == (call.operation, call.name, call.arguments, call.result)


@pytest.mark.parametrize(
    "around",
    [
        {"openinference.span.kind": "CHAIN"},
        {"openinference.span.kind": "AGENT"},
        {"traceloop.span.kind": "workflow"},
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 100},
        {"gen_ai.operation.name": "execute_task"},
        {"gen_ai.operation.name": "unknown"},
    ],
)
def test_spans_around_calls_are_no_calls(around: Mapping[str, Any]) -> None:
    """
    An agent or a workflow is not one; the calls below it are read, and its tokens are not counted again.
    """
    found = episode(OPENINFERENCE, CONVENTIONS, nested=around)

    assert ["claude-x", "gpt-x"] == [call.name for call in found.steps[0].calls]


def test_a_response_that_two_libraries_recorded_is_one_call() -> None:
    """
    Clients record spans themselves, and so do instrumentations around them; other responses are calls of
    their own.
    """
    other = {**CONVENTIONS, "gen_ai.response.id": "c2"}
    found = episode(CONVENTIONS, CONVENTIONS, other, {**CONVENTIONS, "gen_ai.response.id": ""})

    assert ["c1", "c2", ""] == [call.id for call in found.steps[0].calls]


def test_tokens_are_those_of_the_calls() -> None:
    """
    In summaries, as for calls of mttp's own.
    """
    tracer = trace.get_tracer("another")
    with mttp.configure("memory://") as session:
        with mttp.episode(env="toy") as opened, opened.step():
            for attributes in (OPENINFERENCE, CONVENTIONS, OLDER):
                tracer.start_span("call", attributes=attributes).end()
        summary = mttp.summarize(session)

    assert (27, 9) == (summary.call_input_tokens, summary.call_output_tokens)


@pytest.mark.parametrize("value", ["", "x", "{", "[]", 3, True, 1e308, ["a"], "[" * 100_000])
@pytest.mark.parametrize("name", sorted({**OPENINFERENCE, **OPENINFERENCE_TOOL}))
def test_any_value_is_read(name: str, value: Any) -> None:
    """
    The call may lack it; nothing else is lost.
    """
    base = OPENINFERENCE if name in OPENINFERENCE else OPENINFERENCE_TOOL
    tracer = trace.get_tracer("another")
    with mttp.configure("memory://") as session:
        with mttp.episode(env="toy") as opened, opened.step():
            tracer.start_span("call", attributes={**base, name: value}).end()
        (found,) = mttp.read(session)

    assert 1 == found.step_count

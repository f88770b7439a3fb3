"""
Spans of other instrumentations inside a step are read as calls.

The attributes are those that the packages wrote in November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

import mttp
from mttp.formats import agent_traces
from mttp.model import Call
from mttp.model.chat_forms import chat_messages

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
ANTHROPIC = {
    "gen_ai.provider.name": "anthropic",
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "claude-x",
    "gen_ai.request.max_tokens": 10,
    "http.route": "/v1/messages",
    "gen_ai.usage.input_tokens": 9,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"2+2?"}]}]',
    "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"It is 4."}]}]',
    "gen_ai.response.id": "msg_1",
    "anthropic.message.stop_reason": "end_turn",
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


def test_a_span_of_anthropic_s_own_client() -> None:
    """
    It is a call, and what was asked and answered is the step's where the program sets nothing else.
    """
    (step,) = episode(ANTHROPIC).steps
    (call,) = step.calls

    assert ("claude-x", "anthropic", "msg_1", 9, 3, ("end_turn",)) == (
        call.name,
        call.provider,
        call.id,
        call.input_tokens,
        call.output_tokens,
        call.finish_reasons,
    )
    assert (said("user", "2+2?"), said("assistant", "It is 4.")) == (step.observation, step.action)


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


CALLED = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-x"}
ASKED = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "t1", "content": "4"},
]
ANSWER = [{"role": "assistant", "content": "It is 4.", "reasoning_content": "easy"}]
TEXT = {"type": "text", "content": "2+2?"}
PARTS = [
    {"role": "user", "parts": [TEXT]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "t1", "name": "add", "arguments": {"a": 2}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "t1", "response": 4}]},
]
ANSWERED = [
    {
        "role": "assistant",
        "parts": [{"type": "reasoning", "content": "easy"}, {"type": "text", "content": "It is 4."}],
    }
]
SYSTEM = {"gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Add."}])}
IN_ATTRIBUTES = {
    "gen_ai.input.messages": json.dumps(PARTS),
    "gen_ai.output.messages": json.dumps(ANSWERED),
    **SYSTEM,
}
IN_OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-x",
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Add.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": "2+2?",
    "llm.input_messages.2.message.role": "assistant",
    "llm.input_messages.2.message.tool_calls.0.tool_call.id": "t1",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "add",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": '{"a": 2}',
    "llm.input_messages.3.message.role": "tool",
    "llm.input_messages.3.message.tool_call_id": "t1",
    "llm.input_messages.3.message.contents.0.message_content.type": "text",
    "llm.input_messages.3.message.contents.0.message_content.text": "4",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.contents.0.message_content.type": "reasoning",
    "llm.output_messages.0.message.contents.0.message_content.text": "easy",
    "llm.output_messages.0.message.contents.1.message_content.type": "text",
    "llm.output_messages.0.message.contents.1.message_content.text": "It is 4.",
}
IN_NUMBERS = {
    **CHAT,
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "Add.",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": '[{"type": "text", "text": "2+2?"}]',
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.tool_calls.0.id": "t1",
    "gen_ai.prompt.2.tool_calls.0.name": "add",
    "gen_ai.prompt.2.tool_calls.0.arguments": '{"a": 2}',
    "gen_ai.prompt.3.role": "tool",
    "gen_ai.prompt.3.tool_call_id": "t1",
    "gen_ai.prompt.3.content": "4",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "It is 4.",
    "gen_ai.completion.0.reasoning_content": "easy",
}
TOOL_CALLS = json.dumps([CALLED])
CHOICE = {"role": "assistant", "content": "It is 4.", "reasoning_content": "easy"}
Events = list[tuple[str, dict[str, Any]]]
BY_EVENT: Events = [
    ("gen_ai.system.message", {"content": "Add."}),
    ("gen_ai.user.message", {"content": "2+2?"}),
    ("gen_ai.assistant.message", {"content": "", "tool_calls": TOOL_CALLS}),
    ("gen_ai.tool.message", {"id": "t1", "content": "4"}),
    ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": json.dumps(CHOICE)}),
]
BY_BODY: Events = [
    ("gen_ai.system.message", {"gen_ai.event.content": json.dumps({"role": "system", "content": "Add."})}),
    ("gen_ai.user.message", {"gen_ai.event.content": json.dumps({"content": "2+2?"})}),
    (
        "gen_ai.assistant.message",
        {"gen_ai.event.content": json.dumps({"content": "", "tool_calls": [CALLED]})},
    ),
    ("gen_ai.tool.message", {"gen_ai.event.content": json.dumps({"id": "t1", "content": "4"})}),
    ("gen_ai.choice", {"gen_ai.event.content": json.dumps({"index": 0, "message": CHOICE})}),
]
BY_BLOCKS: Events = [
    ("gen_ai.system.message", {"content": "Add."}),
    ("gen_ai.user.message", {"content": '[{"text": "2+2?"}]'}),
    (
        "gen_ai.assistant.message",
        {"content": '[{"toolUse": {"toolUseId": "t1", "name": "add", "input": {"a": 2}}}]'},
    ),
    ("gen_ai.tool.message", {"id": "t1", "content": '[{"text": "4"}]'}),
    (
        "gen_ai.choice",
        {
            "message": '[{"reasoningContent": {"reasoningText": {"text": "easy"}}}, {"text": "It is 4."}]',
            "finish_reason": "end_turn",
        },
    ),
]
BY_CONTENT: Events = [
    ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(ASKED)}),
    ("gen_ai.content.completion", {"gen_ai.completion": json.dumps(ANSWER)}),
]
BY_DETAILS: Events = [("gen_ai.client.inference.operation.details", IN_ATTRIBUTES)]
WHOLE = {
    "openinference.span.kind": "LLM",
    "input.value": json.dumps({"model": "gpt-x", "messages": ASKED}),
    "output.value": json.dumps({"choices": [{"message": ANSWER[0]}]}),
}
PLACES: dict[str, tuple[Mapping[str, Any], Events]] = {
    "attributes": ({**CHAT, **IN_ATTRIBUTES}, []),
    "chat API": (
        {**CHAT, "gen_ai.input.messages": json.dumps(ASKED), "gen_ai.output.messages": json.dumps(ANSWER)},
        [],
    ),
    "instructions that are there": (
        {
            **CHAT,
            **SYSTEM,
            "gen_ai.input.messages": json.dumps(ASKED),
            "gen_ai.output.messages": json.dumps(ANSWER),
        },
        [],
    ),
    "OpenInference": (IN_OPENINFERENCE, []),
    "numbers": (IN_NUMBERS, []),
    "JSON": ({**CHAT, "gen_ai.prompt": json.dumps(ASKED), "gen_ai.completion": json.dumps(ANSWER)}, []),
    "events": (CHAT, BY_EVENT),
    "bodies of events": (CHAT, BY_BODY),
    "blocks in events": (CHAT, BY_BLOCKS),
    "content events": (CHAT, BY_CONTENT),
    "details": (CHAT, BY_DETAILS),
    "request and answer": (WHOLE, []),
}


@pytest.mark.parametrize("place", PLACES)
def test_messages_are_read_wherever_they_are(place: str, tmp_path: Path) -> None:
    """
    As the call of a step, and as the step of an imported trace.
    """
    attributes, events = PLACES[place]
    tracer = trace.get_tracer("another")
    path = tmp_path / "run.jsonl"
    with mttp.configure(f"file://{path}"), mttp.episode(env="toy") as opened, opened.step():
        span = tracer.start_span("call", attributes=attributes)
        for name, fields in events:
            span.add_event(name, fields)
        span.end()
    recording = mttp.read(path)
    (call,) = recording.episodes[0].steps[0].calls
    (foreign,) = (one for one in mttp.scan(path, arrays=True) if one.name == "call")
    imported = agent_traces.episode([foreign]).steps[0]

    assert [] == recording.problems
    assert (ASKED, ANSWER) == (chat_messages(call.arguments), chat_messages(call.result, "assistant"))
    assert (ASKED, ANSWER[0]) == (imported.observation, imported.action)


def test_images_and_unknown_parts_of_openinference_stay() -> None:
    """
    As parts of the message.
    """
    parts = "llm.input_messages.0.message.contents"
    values = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        f"{parts}.0.message_content.type": "image",
        f"{parts}.0.message_content.image.image.url": "https://example.org/b.png",
        f"{parts}.1.message_content.type": "audio",
        f"{parts}.1.message_content.audio.audio.url": "https://example.org/b.wav",
    }
    (call,) = episode(values).steps[0].calls
    image, audio = chat_messages(call.arguments)[0]["content"]

    assert {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}} == image
    assert ("audio", "https://example.org/b.wav") == (audio["type"], audio["audio.audio.url"])


def test_earlier_names_beside_the_operation() -> None:
    """
    Instrumentations changed names one by one.
    """
    values = {
        **CHAT,
        "gen_ai.system": "openai",
        "gen_ai.usage.prompt_tokens": 9,
        "gen_ai.usage.completion_tokens": 3,
    }
    (call,) = episode(values).steps[0].calls

    assert ("openai", 9, 3) == (call.provider, call.input_tokens, call.output_tokens)


def test_reasons_of_the_messages_are_those_of_the_call() -> None:
    """
    Where the span has none itself.
    """
    answers = [{**ANSWERED[0], "finish_reason": reason} for reason in ("stop", "length")]
    (call,) = episode({**CHAT, "gen_ai.output.messages": json.dumps(answers)}).steps[0].calls

    assert ("stop", "length") == call.finish_reasons

"""
Calls in spans of others: OpenInference, OpenLLMetry's and earlier names, and messages in events.

They get the current attributes of the GenAI conventions when they are read; their own attributes stay.
https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mttp.model.chat import from_text
from mttp.model.chat_forms import chat_messages
from mttp.model.spans import SpanEvent, SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv.values import GenAiOperationName as Operation

__all__ = ["with_conventions"]

_KIND = "openinference.span.kind"
_KINDS = {"LLM": Operation.CHAT, "TOOL": Operation.EXECUTE_TOOL, "EMBEDDING": "embeddings"}
_OLD_KINDS = {"chat": Operation.CHAT, "completion": Operation.TEXT_COMPLETION}
"""Operations by `llm.request.type`."""
_MODEL = {
    a.GEN_AI_REQUEST_MODEL: ("llm.request.model_name", "llm.model_name"),
    a.GEN_AI_RESPONSE_MODEL: ("llm.response.model_name", "llm.model_name"),
    a.GEN_AI_PROVIDER_NAME: ("llm.provider", "llm.system", "gen_ai.system"),
    a.GEN_AI_USAGE_INPUT_TOKENS: ("llm.token_count.prompt", "gen_ai.usage.prompt_tokens"),
    a.GEN_AI_USAGE_OUTPUT_TOKENS: ("llm.token_count.completion", "gen_ai.usage.completion_tokens"),
    a.GEN_AI_RESPONSE_FINISH_REASONS: (
        *("llm.finish_reason", "gen_ai.completion.0.finish_reason"),
        "anthropic.message.stop_reason",
    ),
}
"""Attributes of the conventions, and the names from which the first that is present is taken."""
_TOOL = {
    a.GEN_AI_TOOL_NAME: ("tool.name", "tool_call.function.name", "traceloop.entity.name"),
    a.GEN_AI_TOOL_CALL_ID: ("tool_call.id", "tool.id"),
    a.GEN_AI_TOOL_CALL_ARGUMENTS: ("tool_call.function.arguments", "input.value", "traceloop.entity.input"),
    a.GEN_AI_TOOL_CALL_RESULT: ("output.value", "traceloop.entity.output"),
}
_PARAMETERS = {
    a.GEN_AI_REQUEST_TEMPERATURE: ("temperature",),
    a.GEN_AI_REQUEST_TOP_P: ("top_p",),
    a.GEN_AI_REQUEST_TOP_K: ("top_k",),
    a.GEN_AI_REQUEST_MAX_TOKENS: ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    a.GEN_AI_REQUEST_SEED: ("seed",),
}
_MESSAGES = {
    a.GEN_AI_INPUT_MESSAGES: ("llm.input_messages", "gen_ai.prompt"),
    a.GEN_AI_OUTPUT_MESSAGES: ("llm.output_messages", "gen_ai.completion"),
}
"""Names below which messages have numbers; some writers have all of them there as JSON."""
_VALUES = {a.GEN_AI_INPUT_MESSAGES: "input.value", a.GEN_AI_OUTPUT_MESSAGES: "output.value"}
"""The whole request and answer."""
_CONVERSING = {Operation.CHAT, Operation.TEXT_COMPLETION, Operation.GENERATE_CONTENT}
_READ = {*_CONVERSING, Operation.EXECUTE_TOOL, "embeddings"}
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
"""The roles of messages that are events."""
_CHOICE = "gen_ai.choice"
_EVENT_BODY = "gen_ai.event.content"
_REASONING = ("reasoning_content", "reasoning", "thinking")
_MOST_MESSAGES = 10_000


def with_conventions(record: SpanRecord) -> SpanRecord:
    """
    Return a call of others with the attributes of the conventions that it implies.

    Any other span is returned as it is.
    """
    attributes = record.attributes
    if a.RUN_ID in attributes:
        return record
    operation = attributes.get(a.GEN_AI_OPERATION_NAME)
    operation = _operation(attributes) if operation is None else operation
    if not isinstance(operation, str) or operation not in _READ:
        return record
    implied = _implied(attributes, operation)
    if operation in _CONVERSING:
        implied |= _messages(attributes, record.events)
    return replace(record, attributes={**attributes, **implied}) if implied else record


def _implied(attributes: Mapping[str, Any], operation: str) -> dict[str, Any]:
    """Return the attributes of the conventions for those with other names."""
    renamed: dict[str, Any] = {}
    if a.GEN_AI_OPERATION_NAME not in attributes:
        renamed[a.GEN_AI_OPERATION_NAME] = operation
    keys = _TOOL if operation == Operation.EXECUTE_TOOL else _MODEL
    for key, names in keys.items():
        if key not in attributes:
            value = next((attributes[name] for name in names if attributes.get(name) not in (None, "")), None)
            renamed |= {} if value is None else {key: value}
    if a.GEN_AI_TOOL_CALL_ARGUMENTS in renamed:
        renamed[a.GEN_AI_TOOL_CALL_ARGUMENTS] = from_text(renamed[a.GEN_AI_TOOL_CALL_ARGUMENTS])
    if operation != Operation.EXECUTE_TOOL:
        renamed |= {key: value for key, value in _parameters(attributes).items() if key not in attributes}
    return renamed


def _operation(attributes: Mapping[str, Any]) -> str | None:
    kind = attributes.get(_KIND)
    if kind is not None:
        return _KINDS.get(str(kind).upper())
    if attributes.get("traceloop.span.kind") == "tool":
        return Operation.EXECUTE_TOOL
    return _OLD_KINDS.get(str(attributes.get("llm.request.type")))


def _parameters(attributes: Mapping[str, Any]) -> dict[str, Any]:
    invocation = from_text(attributes.get("llm.invocation_parameters"))
    parameters: dict[str, Any] = {}
    for key, names in _PARAMETERS.items() if isinstance(invocation, Mapping) else ():
        value = next((invocation[name] for name in names if invocation.get(name) is not None), None)
        if value is not None:
            parameters[key] = value
    return parameters


def _messages(attributes: Mapping[str, Any], events: Sequence[SpanEvent]) -> dict[str, Any]:
    """Return the messages of a model's call that are not where the conventions have them."""
    in_events = _said(events)
    values: dict[str, Any] = {}
    for key, prefixes in _MESSAGES.items():
        if key in attributes:
            continue
        role = "user" if key == a.GEN_AI_INPUT_MESSAGES else "assistant"
        value = next(
            (messages for prefix in prefixes if (messages := _below(attributes, prefix, role))), None
        )
        value = value or in_events.get(key) or attributes.get(_VALUES[key])
        if value:
            values[key] = value
    instructions = attributes.get(a.GEN_AI_SYSTEM_INSTRUCTIONS, in_events.get(a.GEN_AI_SYSTEM_INSTRUCTIONS))
    if instructions:
        asked = values.get(a.GEN_AI_INPUT_MESSAGES, attributes.get(a.GEN_AI_INPUT_MESSAGES))
        values |= _instructed(instructions, asked)
    if a.GEN_AI_RESPONSE_FINISH_REASONS not in attributes:
        answers = from_text(values.get(a.GEN_AI_OUTPUT_MESSAGES, attributes.get(a.GEN_AI_OUTPUT_MESSAGES)))
        reasons = (
            [answer.get("finish_reason") for answer in answers if isinstance(answer, Mapping)]
            if isinstance(answers, list)
            else []
        )
        reasons = [reason for reason in reasons if isinstance(reason, str) and reason]
        values |= {a.GEN_AI_RESPONSE_FINISH_REASONS: reasons} if reasons else {}
    return values


def _instructed(instructions: Any, asked: Any) -> dict[str, Any]:
    """Return the messages after the system's instructions, unless they begin with them."""
    system = chat_messages(instructions, "system")
    messages = chat_messages(asked)
    if any(turn in messages for turn in system):
        return {}
    first = [
        {"role": turn["role"], "parts": [{"type": "text", "content": turn["content"]}]} for turn in system
    ]
    asked = from_text(asked)
    return {a.GEN_AI_INPUT_MESSAGES: [*first, *(asked if isinstance(asked, list) else messages)]}


def _below(attributes: Mapping[str, Any], prefix: str, role: str) -> Any:
    """Return the messages whose fields are attributes with numbers in their names, or their JSON."""
    messages = [_message(message, role) for message in _numbered(attributes, f"{prefix}.")]
    return messages or attributes.get(prefix)


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the attributes below `prefix` by their number, each without prefix and number."""
    items: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(prefix):
            number, _, rest = key.removeprefix(prefix).partition(".")
            if number.isdecimal() and len(items) < _MOST_MESSAGES:
                items.setdefault(int(number), {})[rest.removeprefix("message.")] = value
    return [items[number] for number in sorted(items)]


def _message(fields: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return a message as the conventions have it: a role and parts."""
    thoughts = [{"type": "reasoning", "content": fields[key]} for key in _REASONING if fields.get(key)]
    content = from_text(fields.get("content"))
    if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
        parts = [*content]
    else:
        parts = [] if content is None else [{"type": "text", "content": fields["content"]}]
    parts = [*map(_part, _numbered(fields, "contents."))] or parts
    if fields.get("tool_call_id") is not None:
        response = parts[0]["content"] if len(parts) == 1 and "content" in parts[0] else parts
        parts = [{"type": "tool_call_response", "id": fields["tool_call_id"], "response": response}]
    calls = _numbered(fields, "tool_calls.")
    if legacy := _below_name(fields, "function_call"):
        calls.append(legacy)
    parts = [*thoughts, *parts, *map(_call, calls)]
    if fields.get("refusal"):
        parts.append({"type": "refusal", "refusal": fields["refusal"]})
    name = {"name": fields["name"]} if fields.get("name") else {}
    return {"role": str(fields.get("role") or role), "parts": parts, **name}


def _below_name(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fields `name.x` or `name_x` as `x`."""
    names = {key: key[len(name) + 1 :].removesuffix("_json") for key in fields if key[: len(name)] == name}
    return {short: fields[key] for key, short in names.items()}


def _call(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call as a part."""
    name = fields.get("tool_call.function.name", fields.get("name"))
    arguments = from_text(fields.get("tool_call.function.arguments", fields.get("arguments")))
    identity = fields.get("tool_call.id", fields.get("id"))
    return {"type": "tool_call", "id": identity, "name": name, "arguments": arguments}


def _part(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of the content; one of an unknown type has its fields as they are."""
    known = {key.removeprefix("message_content."): value for key, value in fields.items()}
    kind = known.get("type")
    if kind in ("reasoning", "thinking") and known.get("text") is not None:
        return {"type": "reasoning", "content": known["text"]}
    if known.get("image.image.url") is not None:
        return {"type": "uri", "modality": "image", "uri": known["image.image.url"]}
    if known.get("text") is not None and kind in ("text", None):
        return {"type": "text", "content": known["text"]}
    return {"type": "unknown", **known}


def _said(events: Sequence[SpanEvent]) -> dict[str, Any]:
    """Return the messages in a span's events, by the attribute that they are."""
    asked: list[Any] = []
    answered: list[Any] = []
    attributes: dict[str, Any] = {}
    for event in events:
        fields = event.attributes
        body = from_text(fields.get(_EVENT_BODY))
        if isinstance(body, Mapping):
            fields = {**fields, **body}
        if event.name in _ROLES:
            asked.append(_event_message(fields, _ROLES[event.name]))
        elif event.name == _CHOICE:
            answered.append(_choice(fields))
        else:
            attributes |= {
                key: fields[name]
                for key, names in _EVENT_ATTRIBUTES.items()
                for name in names
                if fields.get(name)
            }
    sides = {a.GEN_AI_INPUT_MESSAGES: asked, a.GEN_AI_OUTPUT_MESSAGES: answered}
    return attributes | {key: messages for key, messages in sides.items() if messages}


_EVENT_ATTRIBUTES = {
    a.GEN_AI_INPUT_MESSAGES: ("gen_ai.prompt", a.GEN_AI_INPUT_MESSAGES),
    a.GEN_AI_OUTPUT_MESSAGES: ("gen_ai.completion", a.GEN_AI_OUTPUT_MESSAGES),
    a.GEN_AI_SYSTEM_INSTRUCTIONS: (a.GEN_AI_SYSTEM_INSTRUCTIONS,),
}
"""Attributes of events that hold all messages of a call."""


def _event_message(fields: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the message of an event in the form of chat APIs."""
    content = fields.get("content")
    blocks = from_text(content)
    is_blocks = isinstance(blocks, list) and all(isinstance(block, Mapping) for block in blocks)
    message = {"role": str(fields.get("role") or role), "content": blocks if is_blocks else content}
    if fields.get("tool_calls"):
        message["tool_calls"] = from_text(fields["tool_calls"])
    if role == "tool" and fields.get("id") is not None:
        message["tool_call_id"] = fields["id"]
    extra = {key: fields[key] for key in ("name", "finish_reason", "refusal", *_REASONING) if fields.get(key)}
    return message | extra


def _choice(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of an event."""
    answer = from_text(fields.get("message"))
    nested = {
        key.removeprefix("message."): value for key, value in fields.items() if key.startswith("message.")
    }
    inner = answer if isinstance(answer, Mapping) else {"content": answer, **nested}
    outer = {key: fields[key] for key in ("content", "tool_calls", "finish_reason") if key in fields}
    return _event_message(
        {**outer, **{key: value for key, value in inner.items() if value is not None}}, "assistant"
    )

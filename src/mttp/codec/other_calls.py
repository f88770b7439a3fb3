"""
Spans of models and tools that do not use the GenAI conventions: OpenInference, and OpenLLMetry's older names.

They get the conventions' attributes when they are read; their own attributes stay.
https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mttp.semconv import attributes as a
from mttp.semconv.values import GenAiOperationName as Operation

__all__ = ["is_other_call", "with_conventions"]

_KIND = "openinference.span.kind"
_KINDS = {"LLM": Operation.CHAT, "TOOL": Operation.EXECUTE_TOOL, "EMBEDDING": "embeddings"}
_OLD_KINDS = {"chat": Operation.CHAT, "completion": Operation.TEXT_COMPLETION}
"""Operations by `llm.request.type`."""
_OLD = ("llm.request.type", "traceloop.span.kind")
_MODEL = {
    a.GEN_AI_REQUEST_MODEL: ("llm.request.model_name", "llm.model_name"),
    a.GEN_AI_RESPONSE_MODEL: ("llm.response.model_name", "llm.model_name"),
    a.GEN_AI_PROVIDER_NAME: ("llm.provider", "llm.system", "gen_ai.system"),
    a.GEN_AI_USAGE_INPUT_TOKENS: ("llm.token_count.prompt", "gen_ai.usage.prompt_tokens"),
    a.GEN_AI_USAGE_OUTPUT_TOKENS: ("llm.token_count.completion", "gen_ai.usage.completion_tokens"),
    a.GEN_AI_RESPONSE_FINISH_REASONS: ("llm.finish_reason", "gen_ai.completion.0.finish_reason"),
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
_DOUBLES = (a.GEN_AI_REQUEST_TEMPERATURE, a.GEN_AI_REQUEST_TOP_P, a.GEN_AI_REQUEST_TOP_K)
_MESSAGES = {
    a.GEN_AI_INPUT_MESSAGES: ("llm.input_messages", "gen_ai.prompt"),
    a.GEN_AI_OUTPUT_MESSAGES: ("llm.output_messages", "gen_ai.completion"),
}
_MOST_MESSAGES = 10_000


def is_other_call(attributes: Mapping[str, Any]) -> bool:
    """Return whether a span is a call by its own attributes, and not by those of the conventions."""
    if a.GEN_AI_OPERATION_NAME in attributes or a.RUN_ID in attributes:
        return False
    return _operation(attributes) is not None


def with_conventions(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with those of the GenAI conventions that they imply."""
    operation = _operation(attributes)
    found: dict[str, Any] = {a.GEN_AI_OPERATION_NAME: operation}
    keys = _TOOL if operation == Operation.EXECUTE_TOOL else _MODEL
    for key, names in keys.items():
        value = next((attributes[name] for name in names if attributes.get(name) not in (None, "")), None)
        if value is not None:
            found[key] = value
    if operation == Operation.EXECUTE_TOOL:
        found |= {key: _parsed(found[key]) for key in found.keys() & {a.GEN_AI_TOOL_CALL_ARGUMENTS}}
    else:
        reason = found.get(a.GEN_AI_RESPONSE_FINISH_REASONS)
        found |= {a.GEN_AI_RESPONSE_FINISH_REASONS: [reason]} if isinstance(reason, str) else {}
        found |= _parameters(attributes) | _messages(attributes)
    return {**found, **attributes}


def _operation(attributes: Mapping[str, Any]) -> str | None:
    kind = attributes.get(_KIND)
    if kind is not None:
        return _KINDS.get(str(kind).upper())
    if attributes.get("traceloop.span.kind") == "tool":
        return Operation.EXECUTE_TOOL
    return _OLD_KINDS.get(str(attributes.get("llm.request.type")))


def _parameters(attributes: Mapping[str, Any]) -> dict[str, Any]:
    stated = _parsed(attributes.get("llm.invocation_parameters"))
    found: dict[str, Any] = {}
    for key, names in _PARAMETERS.items() if isinstance(stated, Mapping) else ():
        value = next((stated[name] for name in names if stated.get(name) is not None), None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[key] = float(value) if key in _DOUBLES else value
    return found


def _messages(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the messages, whose parts are attributes with numbers in their names."""
    found: dict[str, Any] = {}
    for key, prefixes in _MESSAGES.items():
        for prefix in prefixes:
            messages = [_message(one) for one in _numbered(attributes, f"{prefix}.")]
            if messages:
                found[key] = messages
                break
    return found


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the attributes below `prefix` by their number, each without prefix and number."""
    items: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(prefix):
            number, _, rest = key.removeprefix(prefix).partition(".")
            if number.isdecimal() and len(items) < _MOST_MESSAGES:
                items.setdefault(int(number), {})[rest.removeprefix("message.")] = value
    return [items[number] for number in sorted(items)]


def _message(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as the conventions have it: a role and parts."""
    parts: list[dict[str, Any]] = []
    contents = [
        one.get("message_content.text")
        for one in _numbered(fields, "contents.")
        if one.get("message_content.text") is not None
    ]
    content = fields.get("content")
    for text in contents or ([] if content is None else [content]):
        parts.append({"type": "text", "content": text})
    for call in _numbered(fields, "tool_calls."):
        name = call.get("tool_call.function.name", call.get("name"))
        arguments = _parsed(call.get("tool_call.function.arguments", call.get("arguments")))
        identity = call.get("tool_call.id", call.get("id"))
        parts.append({"type": "tool_call", "id": identity, "name": name, "arguments": arguments})
    if fields.get("tool_call_id") is not None:
        answer = {"type": "tool_call_response", "id": fields["tool_call_id"], "response": content}
        parts = [answer]
    return {"role": str(fields.get("role", "user")), "parts": parts}


def _parsed(value: Any) -> Any:
    """Return the value of a JSON text; anything else unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value

"""Calls of models and tools as attributes of the GenAI conventions, and calls from spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mttp.codec import fields, kinds
from mttp.codec.plain import Faults, Plain, text
from mttp.model.declarations import keys, table
from mttp.model.episodes import Call
from mttp.model.nesting import from_json
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

__all__ = ["CONTENT", "EXECUTE_TOOL", "below", "decode", "encode", "encode_fields", "is_call", "span_name"]

EXECUTE_TOOL = "execute_tool"

_MODEL = keys(Call)
_TOOL = {field.name: field.of_tool for field in table(Call) if field.of_tool}
CONTENT = frozenset({_MODEL["arguments"], _MODEL["result"], _TOOL["arguments"], _TOOL["result"]})
"""The attributes of arguments and results."""
_PARAMETERS = {
    "temperature": a.GEN_AI_REQUEST_TEMPERATURE,
    "top_p": a.GEN_AI_REQUEST_TOP_P,
    "top_k": a.GEN_AI_REQUEST_TOP_K,
    "max_tokens": a.GEN_AI_REQUEST_MAX_TOKENS,
    "seed": a.GEN_AI_REQUEST_SEED,
}


def span_name(operation: str, attributes: Mapping[str, Plain]) -> str:
    """Return the span's name, e.g. `chat qwen` or `execute_tool search`."""
    name = attributes.get((_TOOL if operation == EXECUTE_TOOL else _MODEL)["name"])
    return f"{operation} {name}" if name else operation


def encode(operation: str, source: Any, faults: Faults) -> dict[str, Plain]:
    """
    Return the attributes of a call from its value, or from a dict of some of its fields.

    A sampling parameter that is not in the conventions is a fault.
    """
    attributes: dict[str, Plain] = {a.GEN_AI_OPERATION_NAME: operation}
    is_dict = type(source) is dict
    if operation == EXECUTE_TOOL:
        attributes[a.GEN_AI_TOOL_NAME] = ""  # the conventions require a name
    elif kinds.named(operation) != kinds.CALL:  # the span's name implies another type
        attributes[a.SPAN_TYPE] = kinds.CALL
    attributes |= encode_fields(operation, source, faults)
    stated_parameters = source.get("parameters") if is_dict else source.parameters
    if not stated_parameters:
        return attributes
    parameters = {name: value for name, value in stated_parameters.items() if not fields.is_absent(value)}
    faults.extend(f"parameter_unknown: {text(name, [])}" for name in parameters if name not in _PARAMETERS)
    return attributes | fields.encode(_PARAMETERS, parameters, faults)


def encode_fields(operation: str, source: object, faults: Faults) -> dict[str, Plain]:
    """Return attributes from the fields of a call, or from a dict of some of them."""
    return fields.encode(_TOOL if operation == EXECUTE_TOOL else _MODEL, source, faults)


def is_call(record: SpanRecord) -> bool:
    """Return whether the span is a call of a model or a tool."""
    return kinds.is_call_operation(record.attributes) and kinds.kind(record) in ("", kinds.CALL)


def below(span_id: str, children: Mapping[str, Sequence[SpanRecord]]) -> Iterator[SpanRecord]:
    """
    Yield the calls below a span, directly or below spans of other libraries, outermost first.

    A response that two other libraries recorded, a client and its instrumentation, is one call.
    """
    waiting = [*reversed(children.get(span_id, ()))]
    responses: set[object] = set()
    while waiting:
        record = waiting.pop()
        if is_call(record):
            response = None if a.RUN_ID in record.attributes else record.attributes.get(a.GEN_AI_RESPONSE_ID)
            if not isinstance(response, str) or response not in responses:
                yield record
            responses.add(response if isinstance(response, str) else None)
        elif a.RUN_ID not in record.attributes:
            waiting += reversed(children.get(record.span_id, ()))


def decode(record: SpanRecord) -> Call:
    """Return the call of a span."""
    attributes: Mapping[str, Any] = record.attributes
    operation = str(attributes[a.GEN_AI_OPERATION_NAME])
    values = fields.of_span(Call, record)
    if operation == EXECUTE_TOOL:
        values = {name: value for name, value in values.items() if name not in keys(Call)}
        values |= {name: attributes[key] for name, key in _TOOL.items() if key in attributes}
    else:
        for name in ("arguments", "result") if a.RUN_ID not in attributes else ():
            if isinstance(values.get(name), str):  # other instrumentations write JSON
                values[name] = from_json(values[name])
        if isinstance(reasons := attributes.get(a.GEN_AI_RESPONSE_FINISH_REASONS), str):
            values["finish_reasons"] = (reasons,) if reasons else ()
    return Call(
        operation=operation,
        parameters={name: attributes[key] for name, key in _PARAMETERS.items() if key in attributes},
        **values,
    )

"""
Converts between spans and `trace.span` messages.

Attributes are written with their own names; fields of a span that messages lack are written in an extra
attribute. A span that is encoded and decoded is equal to the original, with numpy arrays as lists.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from mttp.codec import profiles
from mttp.codec.plain import Plain
from mttp.errors import PayloadError
from mttp.mist import eval_messages
from mttp.mist.messages import Message, Payload, TraceSpan
from mttp.model.nesting import shallow
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv.registry import wanted

_STATUSES = ("unset", "ok", "error")
_STATUS_CODES = {"ok": 1, "error": 2}
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}").fullmatch
_SPAN_ID = re.compile(r"(?:[0-9a-f]{16})?((?!0{16})[0-9a-f]{16})").fullmatch
_WELL_KNOWN = {
    a.GEN_AI_REQUEST_MODEL: "model",
    a.GEN_AI_PROVIDER_NAME: "provider",
    a.GEN_AI_USAGE_INPUT_TOKENS: "tokens_in",
    a.GEN_AI_USAGE_OUTPUT_TOKENS: "tokens_out",
}
"""Names that the stack's tools read, by attribute of a model call."""


class _Scope(msgspec.Struct, omit_defaults=True):
    """A `Scope` whose values are tagged with their types."""

    name: str = ""
    version: str = ""
    schema_url: str = ""
    resource: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    resource_schema_url: str = ""


class _Rest(msgspec.Struct, omit_defaults=True):
    """The fields of a span that messages lack."""

    kind: int = 1
    status_message: str = ""
    trace_state: str = ""
    flags: int = 0
    dropped_attributes: int = 0
    dropped_events: int = 0
    dropped_links: int = 0
    events: list[tuple[str, int, dict[str, Any], int]] = []
    """Fields of `SpanEvent` and of links, in order."""
    links: list[tuple[str, str, dict[str, Any], int, int]] = []
    scope: _Scope | None = None
    doubles: list[str] = []
    """Attributes whose numbers are all floats, some of them whole."""
    values: dict[str, Any] = {}
    """Attributes whose values JSON can't represent, tagged with their types."""
    added: list[str] = []
    """Attrs added for other tools, which are not attributes."""


_SAME = (
    "kind",
    "status_message",
    "trace_state",
    "flags",
    "dropped_attributes",
    "dropped_events",
    "dropped_links",
)
"""Fields that `SpanRecord` and `_Rest` have in common."""


def messages(span: SpanRecord) -> Iterator[tuple[Payload, str | None]]:
    """
    Yield the messages of a span, as payload and message id; None is a new id.

    Ids are stable, so that receivers can drop duplicates.
    A span that was read from a message of another type becomes only that message.
    """
    if a.MESSAGE_ID not in span.attributes:
        yield encode(span), f"{span.trace_id[16:]}{span.span_id}"
    yield from eval_messages.messages(span)


def envelop(span: SpanRecord, *, source: str = "", timestamp_ns: int | None = None) -> list[Message]:
    """
    Return the messages of a span with checksums; `source` defaults to the service of its resource.

    Raises EncodeError if JSON can't represent a value, and EnvelopeError if a message would be too large.
    """
    source = source or str(span.scope.resource.get(a.SERVICE_NAME) or "mttp")
    return [
        Message.new(source, payload, id=id, timestamp_ns=timestamp_ns, checksum=True)
        for payload, id in messages(span)
    ]


def records(message: Message) -> list[SpanRecord] | None:
    """
    Return the spans of a message; None if messages of its type have no spans.

    Raises PayloadError if the payload does not match the type.
    """
    if message.type != TraceSpan.TYPE:
        evaluated = eval_messages.decode(message)
        return None if evaluated is None else [_shallow(evaluated)]
    payload = message.decode()
    assert isinstance(payload, TraceSpan)
    return [_shallow(decode(payload, source=message.source))]


def _shallow(span: SpanRecord) -> SpanRecord:
    """Return the span with values cut one level beyond the nesting limit, so that readers report them."""
    return replace(
        span,
        attributes=shallow(span.attributes, 1),
        events=tuple(replace(event, attributes=shallow(event.attributes, 1)) for event in span.events),
        links=tuple(replace(link, attributes=shallow(link.attributes, 1)) for link in span.links),
        scope=_shallow_scope(span.scope),
    )


def _shallow_scope(scope: Scope) -> Scope:
    resource, attributes = shallow(scope.resource, 1), shallow(scope.attributes, 1)
    is_kept = resource is scope.resource and attributes is scope.attributes
    return scope if is_kept else replace(scope, resource=resource, attributes=attributes)


def encode(span: SpanRecord) -> TraceSpan:
    """Encode a span as a payload, without loss."""
    attributes = profiles.arrays(span.attributes)
    sender = attributes.pop(a.MESSAGE_REST, {})
    attrs = {key: _written(value) for key, value in attributes.items()}
    added = {name: value for name, value in _well_known(span).items() if name not in attrs}
    rest = msgspec.to_builtins(_rest(span, attributes, list(added)))
    if rest:
        added[a.MESSAGE_REST] = rest
    return TraceSpan(
        trace_id=sender.get("trace_id", span.trace_id),
        span_id=sender.get("span_id", span.span_id),
        parent_id=sender.get("parent_id", span.parent_id),
        operation=span.name,
        start_ns=span.start_time,
        end_ns=span.end_time,
        status=sender.get("status", _STATUSES[span.status_code]),
        attrs=attrs | added,
    )


def decode(payload: TraceSpan, *, source: str = "") -> SpanRecord:
    """
    Decode a payload to a span; `source`, the sender, is the service of a span without a scope.

    Ids that OpenTelemetry can't represent are replaced by the last 16 digits of a span id of 32, else by a
    digest. The attribute `mttp.message.rest` keeps the original ids.
    Raises PayloadError for times before 1970, and for an invalid `mttp.message.rest`.
    """
    if min(payload.start_ns, payload.end_ns) < 0:
        raise PayloadError(
            f"trace.span: {payload.start_ns} to {payload.end_ns} ns starts or ends before 1970"
        )
    try:
        rest = msgspec.convert(payload.attrs.get(a.MESSAGE_REST, {}), _Rest)
        return _decoded(payload, rest, source)
    except RecursionError as error:
        raise PayloadError(f"trace.span: attrs.{a.MESSAGE_REST} is nested too deeply") from error
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError) as error:
        raise PayloadError(f"trace.span: attrs.{a.MESSAGE_REST}: {error}") from error


def _decoded(payload: TraceSpan, rest: _Rest, source: str) -> SpanRecord:
    attributes = {
        key: _read(key, value)
        for key, value in payload.attrs.items()
        if key != a.MESSAGE_REST and key not in rest.added
    }
    attributes |= {key: _floats(attributes[key]) for key in rest.doubles if key in attributes}
    attributes |= _values(rest.values)
    status = _STATUS_CODES.get(payload.status, 0)
    normalized = {
        "trace_id": _trace_id(payload.trace_id),
        "span_id": _span_id(payload.span_id),
        "parent_id": _span_id(payload.parent_id) if payload.parent_id else "",
        "status": _STATUSES[status],
    }
    if sender := {name: sent for name in normalized if (sent := getattr(payload, name)) != normalized[name]}:
        attributes[a.MESSAGE_REST] = sender
    return SpanRecord(
        trace_id=normalized["trace_id"],
        span_id=normalized["span_id"],
        parent_id=normalized["parent_id"],
        name=payload.operation,
        start_time=payload.start_ns,
        end_time=payload.end_ns,
        attributes=attributes,
        status_code=status,
        events=tuple(
            SpanEvent(name, time, _values(values), lost) for name, time, values, lost in rest.events
        ),
        links=tuple(
            Link(trace_id, span_id, _values(values), flags, lost)
            for trace_id, span_id, values, flags, lost in rest.links
        ),
        scope=_scope(rest.scope) if rest.scope else _sent_by(source),
        **{name: getattr(rest, name) for name in _SAME},
    )


def _rest(span: SpanRecord, attributes: Mapping[str, Plain], added: list[str]) -> _Rest:
    doubles, values = _spelled(attributes)
    return _Rest(
        **{name: getattr(span, name) for name in _SAME},
        events=[
            (event.name, event.time, _mapped(event.attributes), event.dropped_attributes)
            for event in span.events
        ],
        links=[
            (link.trace_id, link.span_id, _mapped(link.attributes), link.flags, link.dropped_attributes)
            for link in span.links
        ],
        scope=_tagged_scope(span.scope),
        doubles=doubles,
        values=values,
        added=added,
    )


def _tagged_scope(scope: Scope) -> _Scope | None:
    if scope == Scope():
        return None
    return _Scope(
        name=scope.name,
        version=scope.version,
        schema_url=scope.schema_url,
        resource=_mapped(scope.resource),
        attributes=_mapped(scope.attributes),
        resource_schema_url=scope.resource_schema_url,
    )


def _spelled(attributes: Mapping[str, Plain]) -> tuple[list[str], dict[str, Any]]:
    """Return the attributes that JSON would change: float attributes by name, and tagged values."""
    doubles, values = [], {}
    for key, value in attributes.items():
        if _survives(key, value) or _same(_read(key, _through_json(value)), value):
            continue
        if _same(_floats(_through_json(value)), value):
            doubles.append(key)
        else:
            values[key] = _tagged(value)
    return doubles, values


def _survives(key: str, value: Plain) -> bool:
    """Whether a fast check shows that JSON keeps the value."""
    kinds = set(map(type, value)) if isinstance(value, list) else {type(value)}
    if isinstance(value, list) and kinds == {float} and wanted(key) == "double[]":
        return math.isfinite(sum(value)) and not (0.0 in value and any(map(_is_negative_zero, value)))
    return kinds <= {str, bool} or (kinds == {int} and not _is_double(key))


def _is_negative_zero(value: float) -> bool:
    return value == 0.0 and math.copysign(1.0, value) < 0.0


def _well_known(span: SpanRecord) -> dict[str, Any]:
    """Return the attrs that the stack's tools read."""
    fields: dict[str, Any] = {}
    if a.GEN_AI_OPERATION_NAME in span.attributes:
        fields = {name: span.attributes[key] for key, name in _WELL_KNOWN.items() if key in span.attributes}
        reasons = span.attributes.get(a.GEN_AI_RESPONSE_FINISH_REASONS)
        if reasons:
            fields["finish_reason"] = reasons[0]
    if span.status_code == _STATUS_CODES["error"] and span.status_message:
        fields["error"] = span.status_message
    return fields


def _written(value: Plain) -> Any:
    """Convert a value to JSON's types; NaN, infinities and bytes become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): _written(item) for key, item in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    kinds = set(map(type, value))
    is_plain = kinds <= {int, str, bool} or (kinds == {float} and math.isfinite(sum(value)))
    return value if is_plain else [_written(item) for item in value]


def _through_json(value: Plain) -> Any:
    """Return the value as it is read from JSON, where a whole float is an integer."""
    if isinstance(value, float):
        whole = math.isfinite(value) and value.is_integer() and abs(value) < 1e21
        return int(value) if whole else _written(value)
    if isinstance(value, Mapping):
        return {str(key): _through_json(item) for key, item in value.items()}
    return [_through_json(item) for item in value] if isinstance(value, (list, tuple)) else _written(value)


def _same(left: Plain, right: Plain) -> bool:
    """Whether two values have equal types and values; 0.0 and -0.0 differ."""
    if isinstance(left, list) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_same, left, right))
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, float):
        return left == right and math.copysign(1.0, left) == math.copysign(1.0, right)
    return bool(left == right)


def _is_double(key: str) -> bool:
    return wanted(key) in ("double", "double[]")


def _read(key: str, value: Any) -> Plain:
    return _floats(value) if _is_double(key) else value


def _floats(value: Any) -> Any:
    """Convert integers to floats, also in lists."""
    if isinstance(value, list):
        return [_floats(item) for item in value]
    return float(value) if type(value) is int else value


def _tagged(value: Plain) -> Any:
    """Tag a value with its type, as in OTLP JSON."""
    if isinstance(value, Mapping):
        return {"kvlistValue": _mapped(value)}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": [_tagged(item) for item in value]}
    if isinstance(value, float):
        return {"doubleValue": repr(float(value))}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    return value


def _mapped(values: Mapping[str, Plain]) -> dict[str, Any]:
    return {str(key): _tagged(value) for key, value in values.items()}


def _typed(tagged: Any) -> Plain:
    """Return the value that `_tagged` encoded."""
    if not isinstance(tagged, dict):
        return tagged
    ((kind, value),) = tagged.items()
    if kind == "kvlistValue":
        return _values(value)
    if kind == "arrayValue":
        return [_typed(item) for item in value]
    return float(value) if kind == "doubleValue" else base64.b64decode(value)


def _values(tagged: Mapping[str, Any]) -> dict[str, Plain]:
    return {key: _typed(value) for key, value in tagged.items()}


def _scope(tagged: _Scope) -> Scope:
    return Scope(
        name=tagged.name,
        version=tagged.version,
        schema_url=tagged.schema_url,
        resource=_values(tagged.resource),
        attributes=_values(tagged.attributes),
        resource_schema_url=tagged.resource_schema_url,
    )


@lru_cache(maxsize=256)
def _sent_by(source: str) -> Scope:
    return Scope(resource={a.SERVICE_NAME: source}) if source else Scope()


@lru_cache(maxsize=256)
def _trace_id(text: str) -> str:
    lower = text.lower()
    return lower if _TRACE_ID(lower) else hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=256)
def _span_id(text: str) -> str:
    match = _SPAN_ID(text.lower())
    return match[1] if match else hashlib.sha256(text.encode()).hexdigest()[:16]

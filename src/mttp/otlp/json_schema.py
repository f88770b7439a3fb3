"""
The messages of OTLP JSON as msgspec structures, with the names of the protocol.

Every field may be absent or null, and fields that are not listed are skipped.
"""

from __future__ import annotations

from typing import ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from mttp.otlp.json_arrays import PLACE

__all__ = [
    "JsonArray",
    "JsonEvent",
    "JsonKeyValue",
    "JsonLink",
    "Scalar",
    "ScalarKeyValue",
    "ScalarOrText",
    "ScalarSpan",
    "JsonResourceHead",
    "JsonScope",
    "JsonScopeHead",
    "JsonSpan",
    "JsonTraces",
    "JsonValue",
]

Int64: TypeAlias = int | float | str | None
"""A 64-bit integer: text by the specification, a number by many writers."""

Enum: TypeAlias = int | str | None
"""An enum: a number by the specification, a name by some writers."""


class _Message(msgspec.Struct, rename="camel", gc=False):
    """Base class of messages; they have no cycles, so the garbage collector ignores them."""


class Scalar(_Message):
    """A scalar value."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: Int64 = None
    double_value: float | str | None = None


class ScalarOrText(Scalar):
    """A value whose scalars are read; an array and bytes are kept as text, other values are skipped."""

    array_value: msgspec.Raw = msgspec.Raw()
    bytes_value: msgspec.Raw = msgspec.Raw()


class ScalarKeyValue(_Message):
    """An attribute whose scalar value is read; an array and bytes are kept as text."""

    key: str = ""
    value: ScalarOrText | None = None


class JsonValue(Scalar):
    """A value."""

    bytes_value: str | None = None
    array_value: JsonArray | None = None
    kvlist_value: JsonKeyValueList | None = None
    place: int | None = msgspec.field(default=None, name=PLACE)
    """The number of the cut-out array whose items it replaces."""


class JsonArray(_Message):
    """A list of values."""

    values: list[JsonValue | None] | None = None


class JsonKeyValue(_Message):
    """An attribute."""

    key: str = ""
    value: JsonValue | None = None


class JsonKeyValueList(_Message):
    """A map."""

    values: list[JsonKeyValue] | None = None


class JsonStatus(_Message):
    """A span's status."""

    code: Enum = None
    message: str | None = None


class JsonEvent(_Message):
    """An event of a span."""

    name: str | None = None
    time_unix_nano: Int64 = None
    attributes: list[JsonKeyValue] | None = None
    dropped_attributes_count: Int64 = None


class JsonLink(_Message):
    """A reference to another span."""

    trace_id: str | None = None
    span_id: str | None = None
    attributes: list[JsonKeyValue] | None = None
    flags: Int64 = None
    dropped_attributes_count: Int64 = None


class _BareSpan(_Message):
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    kind: Enum = None
    start_time_unix_nano: Int64 = None
    end_time_unix_nano: Int64 = None
    status: JsonStatus | None = None
    trace_state: str | None = None
    flags: Int64 = None
    dropped_attributes_count: Int64 = None
    dropped_events_count: Int64 = None
    dropped_links_count: Int64 = None


class JsonSpan(_BareSpan):
    """A span."""

    attributes: list[JsonKeyValue] | None = None
    events: list[JsonEvent] | None = None
    links: list[JsonLink] | None = None


class ScalarSpan(_BareSpan):
    """A span that is read for its scalars only."""

    attributes: list[ScalarKeyValue] | None = None
    events: ClassVar[None] = None
    links: ClassVar[None] = None


AnySpan = TypeVar("AnySpan", JsonSpan, ScalarSpan)


class JsonResource(_Message):
    """A resource."""

    attributes: list[JsonKeyValue] | None = None


class JsonScope(_Message):
    """An instrumentation scope."""

    name: str | None = None
    version: str | None = None
    attributes: list[JsonKeyValue] | None = None


class JsonScopeHead(_Message):
    """The scope of spans."""

    scope: JsonScope | None = None
    schema_url: str | None = None


class JsonScopeSpans(JsonScopeHead, Generic[AnySpan]):
    """Spans of one scope."""

    spans: list[AnySpan] | None = None


class JsonResourceHead(_Message):
    """The resource of spans."""

    resource: JsonResource | None = None
    schema_url: str | None = None


class JsonResourceSpans(JsonResourceHead, Generic[AnySpan]):
    """Spans of one resource."""

    scope_spans: list[JsonScopeSpans[AnySpan]] | None = None


class JsonTraces(_Message, Generic[AnySpan]):
    """A line."""

    resource_spans: list[JsonResourceSpans[AnySpan]] | msgspec.UnsetType | None = msgspec.UNSET

"""
The payloads of the ten types.

The default of every field is the zero value, which a missing field or null is read as.
Unknown fields are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]


def _require(schema: dict[str, Any], part: Any) -> None:
    """Mark the fields that are always written as required in the JSON Schema."""
    fields = part.model_fields.items()
    schema["required"] = [
        field.serialization_alias or name for name, field in fields if name not in part._omitted
    ]


class WireObject(BaseModel):
    """A JSON object of the protocol."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="allow",
        populate_by_name=True,
        use_attribute_docstrings=True,
        json_schema_extra=_require,
    )
    _omitted: ClassVar[frozenset[str]] = frozenset()
    """Fields that are omitted if they are empty."""

    def to_wire(self) -> dict[str, Any]:
        """Return the fields by their names in JSON, in the order in which they are written."""
        fields = {
            field.serialization_alias or name: _to_wire(value)
            for name, field in type(self).model_fields.items()
            if (value := getattr(self, name)) or name not in self._omitted
        }
        return fields | (self.__pydantic_extra__ or {})


def _to_wire(value: Any) -> Any:
    if isinstance(value, WireObject):
        return value.to_wire()
    return [_to_wire(item) for item in value] if isinstance(value, tuple) else value


class Payload(WireObject):
    """The payload of a message."""

    TYPE: ClassVar[str] = ""
    """The type of its messages."""


class DataEntities(Payload):
    """A batch of records that were written to a file."""

    TYPE = "data.entities"
    _omitted = frozenset({"schema_", "checksum"})

    count: Int64 = 0
    """Number of records."""
    format: str = ""
    """Format of the file: json, jsonl or csv."""
    path: str = ""
    """Path of the file."""
    schema_: str = Field(default="", validation_alias="schema", serialization_alias="schema")
    """Name of the schema of the records."""
    checksum: str = ""
    """A digest of the file, such as `sha256:…`."""


class SchemaField(WireObject):
    """A field of a schema."""

    name: str = ""
    type: str = ""
    """string, int, float, bool, object or array."""
    required: bool = False


class DataSchema(Payload):
    """The schema of records."""

    TYPE = "data.schema"

    name: str = ""
    fields: Annotated[tuple[SchemaField, ...], Field(strict=False)] | None = None


class ChatMessage(WireObject):
    """One turn of a conversation."""

    role: str = ""
    """system, user, assistant or tool."""
    content: str = ""


class InferRequest(Payload):
    """A request to a model."""

    TYPE = "infer.request"
    _omitted = frozenset({"provider", "params", "meta"})

    model: str = ""
    """Name of the model; `auto` lets the receiver choose."""
    provider: str = ""
    """Provider of the model."""
    messages: Annotated[tuple[ChatMessage, ...], Field(strict=False)] | None = None
    """The conversation so far."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of sampling: temperature, max_tokens, …"""
    meta: dict[str, str] = Field(default_factory=dict)
    """Metadata of the request, such as the trace context."""


class InferResponse(Payload):
    """The answer of a model."""

    TYPE = "infer.response"

    model: str = ""
    provider: str = ""
    content: str = ""
    tokens_in: Int64 = 0
    tokens_out: Int64 = 0
    cost_usd: Number = 0.0
    latency_ms: Int64 = 0
    finish_reason: str = ""


class EvalRun(Payload):
    """A request for an evaluation."""

    TYPE = "eval.run"
    _omitted = frozenset({"tasks", "infer_url", "tags"})

    suite: str = ""
    """Name of the suite of tasks."""
    tasks: Texts = ()
    """Ids of its tasks; empty for all tasks."""
    baseline: bool = False
    """Whether the evaluation is a baseline for others."""
    infer_url: str = ""
    """URL of the policy."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Attributes of the run: its id, the version of the reward spec, the seed, …"""


class EvalResult(Payload):
    """The result of one task of an evaluation."""

    TYPE = "eval.result"
    _omitted = frozenset({"error"})

    suite: str = ""
    task: str = ""
    passed: bool = False
    score: Number = 0.0
    baseline_score: Number = 0.0
    """Score of the baseline."""
    delta: Number = 0.0
    """score minus baseline_score."""
    duration_ms: Int64 = 0
    error: str = ""
    """The reason if there is no score."""


class TraceSpan(Payload):
    """A span: an episode, a step, a model call, …"""

    TYPE = "trace.span"
    _omitted = frozenset({"parent_id", "attrs"})

    trace_id: str = ""
    span_id: str = ""
    parent_id: str = ""
    """Empty for a root."""
    operation: str = ""
    """Name of the span."""
    start_ns: Int64 = 0
    """Start time, in nanoseconds since the Unix epoch."""
    end_ns: Int64 = 0
    """End time, in nanoseconds since the Unix epoch."""
    status: str = ""
    """ok or error."""
    attrs: dict[str, Any] = Field(default_factory=dict)
    """Attributes by name."""


class TraceAlert(Payload):
    """An alert that a metric crossed its threshold."""

    TYPE = "trace.alert"

    level: str = ""
    """warning or critical."""
    metric: str = ""
    value: Number = 0.0
    threshold: Number = 0.0
    message: str = ""


class HealthPing(Payload):
    """A request for a sign of life."""

    TYPE = "health.ping"

    from_: str = Field(default="", validation_alias="from", serialization_alias="from")
    """Name of the program that asks."""


class HealthPong(Payload):
    """The answer to a ping."""

    TYPE = "health.pong"

    from_: str = Field(default="", validation_alias="from", serialization_alias="from")
    """Name of the program that answers."""
    version: str = ""
    """Version of the program that answers."""
    uptime_s: Int64 = 0
    """Seconds since the program started."""


PAYLOADS: Mapping[str, type[Payload]] = {
    payload.TYPE: payload
    for payload in (
        DataEntities,
        DataSchema,
        InferRequest,
        InferResponse,
        EvalRun,
        EvalResult,
        TraceSpan,
        TraceAlert,
        HealthPing,
        HealthPong,
    )
}
"""The payloads by type."""

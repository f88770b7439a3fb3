"""
The ten payloads, as their types name them.

Every field has the zero value that it is read as where it is missing or null.
Fields that the protocol doesn't know are kept beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "PAYLOADS",
    "ChatMessage",
    "DataEntities",
    "DataSchema",
    "EvalResult",
    "EvalRun",
    "HealthPing",
    "HealthPong",
    "InferRequest",
    "InferResponse",
    "Int64",
    "Payload",
    "SchemaField",
    "TraceAlert",
    "TraceSpan",
]


Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]


def _require(schema: dict[str, Any], part: Any) -> None:
    """Every field that is always written is required where what is written is described."""
    fields = part.model_fields.items()
    schema["required"] = [
        field.serialization_alias or name for name, field in fields if name not in part._omitted
    ]


class WireObject(BaseModel):
    """An object of the wire."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="allow",
        populate_by_name=True,
        use_attribute_docstrings=True,
        json_schema_extra=_require,
    )
    _omitted: ClassVar[frozenset[str]] = frozenset()
    """Fields that are not written where they are empty."""

    def to_wire(self) -> dict[str, Any]:
        """The fields in the order of the wire, by the names they have there."""
        found = {
            field.serialization_alias or name: _to_wire(value)
            for name, field in type(self).model_fields.items()
            if (value := getattr(self, name)) or name not in self._omitted
        }
        return found | (self.__pydantic_extra__ or {})


def _to_wire(value: Any) -> Any:
    if isinstance(value, WireObject):
        return value.to_wire()
    return [_to_wire(item) for item in value] if isinstance(value, tuple) else value


class Payload(WireObject):
    """What a message carries."""

    TYPE: ClassVar[str] = ""
    """The type of the messages that carry it."""


class DataEntities(Payload):
    """A batch of records that were written to a file."""

    TYPE = "data.entities"
    _omitted = frozenset({"schema_", "checksum"})

    count: Int64 = 0
    """How many."""
    format: str = ""
    """How they are written: json, jsonl or csv."""
    path: str = ""
    """The file."""
    schema_: str = Field(default="", validation_alias="schema", serialization_alias="schema")
    """The name of the schema that they follow."""
    checksum: str = ""
    """A digest of the file, such as `sha256:…`."""


class SchemaField(WireObject):
    """A field of a schema."""

    name: str = ""
    type: str = ""
    """string, int, float, bool, object or array."""
    required: bool = False


class DataSchema(Payload):
    """What records look like."""

    TYPE = "data.schema"

    name: str = ""
    fields: Annotated[tuple[SchemaField, ...], Field(strict=False)] | None = None


class ChatMessage(WireObject):
    """One turn of a conversation."""

    role: str = ""
    """system, user, assistant or tool."""
    content: str = ""


class InferRequest(Payload):
    """A model is asked."""

    TYPE = "infer.request"
    _omitted = frozenset({"provider", "params", "meta"})

    model: str = ""
    """Its name; `auto` leaves the choice to whoever answers."""
    provider: str = ""
    """Who shall serve it."""
    messages: Annotated[tuple[ChatMessage, ...], Field(strict=False)] | None = None
    """The conversation so far."""
    params: dict[str, Any] = Field(default_factory=dict)
    """How to sample: temperature, max_tokens, …"""
    meta: dict[str, str] = Field(default_factory=dict)
    """Whatever else belongs to the request, the trace context for one."""


class InferResponse(Payload):
    """What the model answered."""

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
    """An evaluation is asked for."""

    TYPE = "eval.run"
    _omitted = frozenset({"tasks", "infer_url", "tags"})

    suite: str = ""
    """Which suite of tasks."""
    tasks: Texts = ()
    """Which of its tasks; empty for all."""
    baseline: bool = False
    """Whether this is the run that others are compared with."""
    infer_url: str = ""
    """Where the policy answers."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Facts of the run: its id, the version of the reward spec, the seed, …"""


class EvalResult(Payload):
    """What became of one task of an evaluation."""

    TYPE = "eval.result"
    _omitted = frozenset({"error"})

    suite: str = ""
    task: str = ""
    passed: bool = False
    score: Number = 0.0
    baseline_score: Number = 0.0
    """What the baseline scored."""
    delta: Number = 0.0
    """score less baseline_score."""
    duration_ms: Int64 = 0
    error: str = ""
    """Why there is no score, where there is none."""


class TraceSpan(Payload):
    """Something that took time: an episode, a step, a call of a model."""

    TYPE = "trace.span"
    _omitted = frozenset({"parent_id", "attrs"})

    trace_id: str = ""
    span_id: str = ""
    parent_id: str = ""
    """Empty for a root."""
    operation: str = ""
    """What was done."""
    start_ns: Int64 = 0
    """Nanoseconds since the Unix epoch, likewise end_ns."""
    end_ns: Int64 = 0
    status: str = ""
    """ok or error."""
    attrs: dict[str, Any] = Field(default_factory=dict)
    """Facts by name."""


class TraceAlert(Payload):
    """A metric crossed its threshold."""

    TYPE = "trace.alert"

    level: str = ""
    """warning or critical."""
    metric: str = ""
    value: Number = 0.0
    threshold: Number = 0.0
    message: str = ""


class HealthPing(Payload):
    """Somebody asks whether one is there."""

    TYPE = "health.ping"

    from_: str = Field(default="", validation_alias="from", serialization_alias="from")
    """Who asks."""


class HealthPong(Payload):
    """One is there."""

    TYPE = "health.pong"

    from_: str = Field(default="", validation_alias="from", serialization_alias="from")
    """Who answers."""
    version: str = ""
    """The version of the program that answers."""
    uptime_s: Int64 = 0
    """For how many seconds it has been running."""


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
"""By the type of the messages that carry them."""

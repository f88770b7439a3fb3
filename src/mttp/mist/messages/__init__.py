"""
MTTP messages: the envelope and its ten payloads, byte for byte as the tools of the MIST stack write them.

`Message.new` creates a message and `to_bytes` encodes it.
`Message.from_bytes` parses a message and `decode` returns its payload.
"""

from __future__ import annotations

from mttp.mist.messages.envelope import MAX_SIZE, Message
from mttp.mist.messages.lines import LONGEST_LINE, MessageLine, as_line, read_lines, received
from mttp.mist.messages.payloads import (
    PAYLOADS,
    ChatMessage,
    DataEntities,
    DataSchema,
    EvalResult,
    EvalRun,
    HealthPing,
    HealthPong,
    InferRequest,
    InferResponse,
    Payload,
    SchemaField,
    TraceAlert,
    TraceSpan,
)
from mttp.mist.messages.versions import VERSION, check_version, negotiate_version

__all__ = [
    "Message",
    "received",
    "read_lines",
    "as_line",
    "MessageLine",
    # payloads
    "Payload",
    "PAYLOADS",
    "DataEntities",
    "DataSchema",
    "SchemaField",
    "InferRequest",
    "ChatMessage",
    "InferResponse",
    "EvalRun",
    "EvalResult",
    "TraceSpan",
    "TraceAlert",
    "HealthPing",
    "HealthPong",
    # limits and versions
    "MAX_SIZE",
    "LONGEST_LINE",
    "VERSION",
    "check_version",
    "negotiate_version",
]

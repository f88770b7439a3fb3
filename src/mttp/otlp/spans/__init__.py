"""
Spans as they are recorded, real OpenTelemetry spans all of them, and as transports are given them.

    live        a span of ours, from start to end
    guest       another library's span among ours
    ended       what both are to a transport
    weight      roughly what they take in a file
    records     parts of OpenTelemetry's spans as records have them
    printing    a span as the SDK prints it
    exceptions  exceptions as spans tell of them
"""

from __future__ import annotations

from mttp.otlp.spans.ended import EndedSpan
from mttp.otlp.spans.exceptions import error_message, qualified_name, traced
from mttp.otlp.spans.foreign_span import ForeignSpan
from mttp.otlp.spans.recording_span import (
    AUTO,
    MAX_USER_ATTRIBUTES,
    PACKED,
    SAMPLED,
    SPANS,
    STEP_MODES,
    RecordingSpan,
    SpanObserver,
    SpanOrigin,
    SpanSink,
    Trace,
)
from mttp.otlp.spans.size_estimate import SPAN_BYTES, VALUE_BYTES, weight

__all__ = [
    "AUTO",
    "PACKED",
    "SPANS",
    "STEP_MODES",
    "MAX_USER_ATTRIBUTES",
    "SAMPLED",
    "SPAN_BYTES",
    "VALUE_BYTES",
    "EndedSpan",
    "ForeignSpan",
    "RecordingSpan",
    "SpanObserver",
    "SpanOrigin",
    "SpanSink",
    "Trace",
    "error_message",
    "qualified_name",
    "traced",
    "weight",
]

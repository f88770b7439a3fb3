"""
Spans of ours and of other libraries, as OpenTelemetry spans.

    recording_span  a span of ours while it is recorded
    trace           the trace to which it is recorded
    conversion      values of OpenTelemetry's API as attributes, events, links and text
    guarding        counts exceptions of calls from a training loop instead of raising them
    span_records    any OpenTelemetry span as a frame or a record, and frames as spans for exporters
    exceptions      exceptions as text
"""

from __future__ import annotations

from mttp.otlp.spans.exceptions import error_message, qualified_name, traced
from mttp.otlp.spans.recording_span import MAX_USER_ATTRIBUTES, AmbientSpan, Outlasted, RecordingSpan
from mttp.otlp.spans.trace import (
    AUTO,
    PACKED,
    SAMPLED,
    SPANS,
    STEP_MODES,
    Ended,
    SpanObserver,
    SpanOrigin,
    SpanSink,
    Trace,
)

__all__ = [
    "AUTO",
    "PACKED",
    "SPANS",
    "STEP_MODES",
    "MAX_USER_ATTRIBUTES",
    "SAMPLED",
    "AmbientSpan",
    "Ended",
    "Outlasted",
    "RecordingSpan",
    "SpanObserver",
    "SpanOrigin",
    "SpanSink",
    "Trace",
    "error_message",
    "qualified_name",
    "traced",
]

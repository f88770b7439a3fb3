"""
Spans of ours and of other libraries, as OpenTelemetry spans.

    recording_span  a span of ours while it is recorded
    span_data       its data, as exporters and encoders read it
    trace           the trace to which it is recorded
    outlasted       spans that contexts may hold after their end
    foreign_span    a span of another library
    ended           the base class of both, which transports take
    conversion      values from callers of OpenTelemetry's API to attributes
    guarding        counts exceptions of calls from a training loop instead of raising them
    records         events and links as records
    span_records    any OpenTelemetry span as a record
    size_estimate   the approximate size of a span in a file
    printing        a span as the SDK prints it
    exceptions      exceptions as text
"""

from __future__ import annotations

from mttp.otlp.spans.ended import Arrival, EndedSpan
from mttp.otlp.spans.exceptions import error_message, qualified_name, traced
from mttp.otlp.spans.foreign_span import ForeignSpan
from mttp.otlp.spans.outlasted import AmbientSpan, Outlasted
from mttp.otlp.spans.recording_span import MAX_USER_ATTRIBUTES, RecordingSpan
from mttp.otlp.spans.size_estimate import SPAN_BYTES, VALUE_BYTES, weight
from mttp.otlp.spans.trace import (
    AUTO,
    PACKED,
    SAMPLED,
    SPANS,
    STEP_MODES,
    SpanObserver,
    SpanOrigin,
    SpanSink,
    Trace,
    scope_of,
)

__all__ = [
    "AUTO",
    "PACKED",
    "SPANS",
    "STEP_MODES",
    "MAX_USER_ATTRIBUTES",
    "SAMPLED",
    "SPAN_BYTES",
    "VALUE_BYTES",
    "AmbientSpan",
    "Arrival",
    "EndedSpan",
    "ForeignSpan",
    "Outlasted",
    "RecordingSpan",
    "SpanObserver",
    "SpanOrigin",
    "SpanSink",
    "Trace",
    "error_message",
    "qualified_name",
    "scope_of",
    "traced",
    "weight",
]

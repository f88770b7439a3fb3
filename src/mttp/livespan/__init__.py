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

from mttp.livespan.ended import Ended
from mttp.livespan.exceptions import error_message, qualified_name, traced
from mttp.livespan.guest import GuestSpan
from mttp.livespan.live import MAX_USER_ATTRIBUTES, SAMPLED, LiveSpan, Observers, Origin, Sink, Trace
from mttp.livespan.weight import SPAN_BYTES, VALUE_BYTES, weight

__all__ = [
    "MAX_USER_ATTRIBUTES",
    "SAMPLED",
    "SPAN_BYTES",
    "VALUE_BYTES",
    "Ended",
    "GuestSpan",
    "LiveSpan",
    "Observers",
    "Origin",
    "Sink",
    "Trace",
    "error_message",
    "qualified_name",
    "traced",
    "weight",
]

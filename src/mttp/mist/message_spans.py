"""The spans in a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.errors import DecodeError, EnvelopeError
from mttp.mist import span_messages
from mttp.mist.messages import received
from mttp.model.spans import SpanRecord, without_arrays

if TYPE_CHECKING:
    from mttp.reading.problems import Kind


def message_spans(line: bytes, *, arrays: bool) -> tuple[list[SpanRecord], list[tuple[Kind, str]]]:
    """
    Return the spans and faults of a line that is a message.

    Raises EnvelopeError if the line is not a message.
    """
    try:
        message = received(line)
        spans = span_messages.records(message)
    except EnvelopeError:
        raise
    except DecodeError as error:
        return [], [("broken_message", str(error))]
    if spans is None:
        return [], [("other_message", message.type)]
    return spans if arrays else list(map(without_arrays, spans)), []

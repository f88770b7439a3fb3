"""The spans that a line's message carries."""

from __future__ import annotations

from mttp.codec import native
from mttp.errors import DecodeError, EnvelopeError
from mttp.messages import received
from mttp.reading.problems import Kind
from mttp.spans import SpanRecord, without_arrays

__all__ = ["carried"]


def carried(line: bytes, *, arrays: bool) -> tuple[list[SpanRecord], list[tuple[Kind, str]]]:
    """
    The spans of a line that is a message, and what is wrong with it.

    Raises EnvelopeError where it is none.
    """
    try:
        message = received(line)
        spans = native.records(message)
    except EnvelopeError:
        raise
    except DecodeError as error:
        return [], [("broken_message", str(error))]
    if spans is None:
        return [], [("other_message", message.type)]
    return spans if arrays else list(map(without_arrays, spans)), []

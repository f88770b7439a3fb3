"""Opens the tables of whatever holds episodes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from mttp.otlp.streams import Progress
from mttp.reading.recording import Recording
from mttp.reading.sources import Source
from mttp.tables.database import Database
from mttp.tables.values import RecordingSpans

__all__ = ["open_tables"]


def open_tables(
    source: Source | Recording | Database, progress: Progress | None = None
) -> AbstractContextManager[Database]:
    """
    Return the tables of a source, or of a recording: of what it was read from, else of its values.

    They are closed with the context, unless the caller owns them already.
    """
    if isinstance(source, Database):
        return nullcontext(source)
    if not isinstance(source, Recording):
        return Database(source, progress=progress)
    return nullcontext(source.tables) if source.has_tables else Database(RecordingSpans(source))

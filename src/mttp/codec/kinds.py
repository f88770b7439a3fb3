"""Which spans are a run's, a group's, an update's or an annotation's: these belong to no episode."""

from __future__ import annotations

from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = ["is_annotation", "is_group", "is_run", "is_update"]


def is_run(record: SpanRecord) -> bool:
    """Whether the span is a run's root or its start marker."""
    return a.RUN_ID in record.attributes and (
        record.name == names.RUN or record.name.startswith((f"{names.RUN} ", names.RUN_START))
    )


def is_group(record: SpanRecord) -> bool:
    """Whether the span is a group's."""
    return record.name == names.GROUP and a.GROUP_ID in record.attributes and a.RUN_ID in record.attributes


def is_update(record: SpanRecord) -> bool:
    """Whether the span is an update's."""
    return (
        record.name == names.UPDATE and a.UPDATE_INDEX in record.attributes and a.RUN_ID in record.attributes
    )


def is_annotation(record: SpanRecord) -> bool:
    """Whether the span is an annotation's."""
    return record.name == names.ANNOTATE and a.ANNOTATION_TARGET_TRACE_ID in record.attributes

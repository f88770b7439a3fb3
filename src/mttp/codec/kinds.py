"""Which spans are a run's, a group's, an update's, an annotation's or an evaluation's: of no episode."""

from __future__ import annotations

from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = ["is_annotation", "is_evaluation", "is_group", "is_run", "is_update"]

_OF_EVALUATIONS = (names.EVAL_RUN_START, names.EVAL_RESULT)


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


def is_evaluation(record: SpanRecord) -> bool:
    """Whether the span is an evaluation's, its start marker, or a result; of others, such a message."""
    named = record.name in _OF_EVALUATIONS or record.name.partition(" ")[0] == names.EVAL_RUN
    return named and a.EVAL_SUITE_NAME in record.attributes

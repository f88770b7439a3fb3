"""Issues that a span states itself: recorded faults and failed gradings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mttp.codec import kinds, summary_fields
from mttp.model.gradings import Grading, gradings
from mttp.model.spans import SpanRecord
from mttp.reading.checking.findings import Issue
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["issues"]

_REPEATED = (names.REWARD, names.GRADE)
"""Spans whose faults are repeated on the span of their target."""


def issues(record: SpanRecord) -> Iterator[Issue]:
    """The faults and failed gradings of a span."""
    word = kinds.kind(record)
    if word not in _REPEATED:
        yield from _faults(record)
    if word == names.REWARD:
        scores = list(gradings(summary_fields.reward(record)))
        yield from _failed(record, scores[:1] if a.SPEC_NAME in record.attributes else scores)
    elif word == names.GRADE:
        grade = summary_fields.grade(record)
        yield from _failed(record, [Grading("", grade.name, "", grade.status, grade.error_type)])
    elif word == names.ANNOTATE and record.attributes.get(a.ANNOTATION_KIND) == "score":
        yield from _failed(record, gradings(summary_fields.reward(record)))


def _faults(record: SpanRecord) -> Iterator[Issue]:
    faults = record.attributes.get(a.FAULTS)
    texts = faults if isinstance(faults, (list, tuple)) else ()
    for fault in texts:
        yield _fault(summary_fields.fault_kind(fault), fault)
    for kind in summary_fields.faults(
        {key: value for key, value in record.attributes.items() if key != a.FAULTS}
    ):
        yield _fault(kind, None)


def _fault(kind: str, value: object) -> Issue:
    message = f"A fault of kind '{kind}' was recorded."
    return Issue("recorded_fault", "improvement", message, a.FAULTS, value)


def _failed(record: SpanRecord, graded: Iterable[Grading]) -> Iterator[Issue]:
    values = record.attributes
    for grading in graded:
        named = f"'{grading.grader or 'reward'}'"
        if grading.component:
            named = f"component '{grading.component}' of {named}"
        if grading.status == "partial":
            message = f"The total of {named} includes a component that failed."
            value = values.get(a.REWARD_VALUE)
            yield Issue("total_includes_failed_component", "improvement", message, a.REWARD_STATUS, value)
        elif grading.status == "error":
            message = f"The grading by {named} failed: {grading.error_type or 'error'}."
            value = None if grading.component else values.get(a.REWARD_ERROR, values.get(a.REWARD_RAW))
            yield Issue("grading_failed", "improvement", message, a.REWARD_STATUS, value)

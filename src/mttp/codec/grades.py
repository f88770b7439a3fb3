"""Grades of reward components: attributes of spans below the scoring's span, and grades from spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mttp.codec import calls, components, fields, kinds
from mttp.codec.plain import Faults, Plain, text
from mttp.model.episodes import Grade
from mttp.model.keys import name_key
from mttp.model.scorings import INVALID_VALUE
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["below", "checked", "decode", "encode", "grader", "is_grade", "span_name"]


def span_name(grade: Grade) -> str:
    """Return the span's name, e.g. `grade format`."""
    return f"{names.GRADE} {text(grade.name, [])}"


def grader(grade: Grade) -> str:
    """Return the component's name for its calls, which marks them as a grader's calls."""
    return text(grade.name, [])


def checked(grade: Grade, faults: Faults) -> Grade:
    """Return a grade whose fields have their types; a value that is no number is an error."""
    typed = fields.checked_value(grade, faults)
    if grade.value is None or typed.value is not None:
        return typed
    return replace(typed, status="error", error_type=INVALID_VALUE)


def encode(grade: Grade, faults: Faults) -> dict[str, Plain]:
    """Return the grade's attributes; one without kind, error and calls is beyond `rewards.MAX_INLINE`."""
    attributes: dict[str, Plain] = {a.GRADER_NAME: text(grade.name, faults)}
    if grade.kind or grade.error_type or grade.calls:
        attributes[a.COMPONENT_NAME] = text(grade.name, faults)
    attributes |= fields.encode_value(grade, faults)
    if grade.weight is not None:
        attributes[f"{a.REWARD_WEIGHT}.{name_key(grade.name)}"] = grade.weight
    return attributes


def is_grade(record: SpanRecord) -> bool:
    """Return whether the span is a grade."""
    return kinds.kind(record) == names.GRADE


def below(span_id: str, children: Mapping[str, Sequence[SpanRecord]]) -> tuple[Grade, ...]:
    """Return the grades among a span's children in order of start and name, without plain scores."""
    grades = [
        decode(record, children)
        for record in children.get(span_id, ())
        if is_grade(record) and a.COMPONENT_NAME in record.attributes
    ]
    return tuple(sorted(grades, key=lambda grade: (grade.start_time or 0, grade.end_time or 0, grade.name)))


def decode(record: SpanRecord, children: Mapping[str, Sequence[SpanRecord]]) -> Grade:
    """Return the grade of a span, with parts and calls from the span's children."""
    attributes: Mapping[str, Any] = record.attributes
    weight = f"{a.REWARD_WEIGHT}.{name_key(components.name(attributes))}"
    return Grade(
        name=components.name(attributes),
        weight=attributes.get(weight),
        parts=below(record.span_id, children),
        calls=tuple(map(calls.decode, calls.below(record.span_id, children))),
        **{"kind": ""} | fields.of_span(Grade, record),
    )

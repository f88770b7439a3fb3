"""
The type of a span: from its type attribute, else from its name, else from its other attributes.

A span renamed through OpenTelemetry's API has the type attribute. A span that was renamed later, by a
Collector for example, is recognized by attributes that only its type has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.values import SpanType

__all__ = [
    "CALL",
    "OTHER",
    "by_type",
    "is_annotation",
    "is_call_operation",
    "is_evaluation",
    "is_group",
    "is_run",
    "is_update",
    "kind",
    "named",
    "of",
]

CALL: Final = SpanType.CALL
"""A call of a model or a tool."""
OTHER: Final = "other"
"""Any other span within an episode."""

_CALL_OPERATIONS = frozenset(
    {"chat", "text_completion", "generate_content", "embeddings", "retrieval", "execute_tool"}
)
_WITHIN: Mapping[str, str] = {
    names.EPISODE: a.EPISODE_ID,
    names.EPISODE_START: a.EPISODE_ID,
    names.SEGMENT: a.EPISODE_ID,
    names.SEGMENT_START: a.EPISODE_ID,
    names.STEP: a.STEP_INDEX,
    names.STEPS: a.STEPS_COUNT,
    names.AGENT: a.AGENT_ID,
    names.REWARD: a.REWARD_STATUS,
    names.GRADE: a.EPISODE_ID,
    CALL: a.GEN_AI_OPERATION_NAME,
}
"""The types of spans within an episode, with an attribute that each must have."""
_APART: Mapping[str, str] = {
    names.RUN: a.RUN_ID,
    names.RUN_START: a.RUN_ID,
    names.GROUP: a.GROUP_ID,
    names.UPDATE: a.UPDATE_INDEX,
    names.UPDATE_LINKS: a.RUN_ID,
    names.ANNOTATE: a.ANNOTATION_TARGET_TRACE_ID,
    names.GRADE: a.RUN_ID,
    names.EVAL_RUN: a.EVAL_SUITE_NAME,
    names.EVAL_RUN_START: a.EVAL_SUITE_NAME,
    names.EVAL_RESULT: a.EVAL_SUITE_NAME,
    names.GAP: a.RUN_ID,
}
"""The types of spans outside of episodes, with an attribute that each must have."""
_OF_EVALUATIONS = frozenset({names.EVAL_RUN, names.EVAL_RUN_START, names.EVAL_RESULT})
_WITHOUT_RUN: Mapping[str, str] = {name: _APART[name] for name in (*_OF_EVALUATIONS, names.ANNOTATE)}
"""The types of spans that need no run id, as other programs send them as messages."""
_OURS = frozenset({*_WITHIN, *_APART})
_WORDS = _OURS | {names.EXECUTE_TOOL}
"""The first words of names that were not renamed; such a span without its attribute is invalid."""

_IMPLIED_WITHIN = (
    (a.EPISODE_SPAN_COUNT, names.EPISODE),
    (a.SEGMENT_SPAN_COUNT, names.SEGMENT),
    (a.STEPS_COUNT, names.STEPS),
    (a.AGENT_LENGTH, names.AGENT),
    (a.COMPONENT_NAME, names.GRADE),
    (a.REWARD_STATUS, names.REWARD),
    (a.STEP_INDEX, names.STEP),
    (a.AGENT_ID, names.AGENT),
)
"""Attributes that imply the type, in order of precedence: the most specific first."""
_IMPLIED_APART = (
    (a.GAP_SPANS, names.GAP),
    (a.ANNOTATION_TARGET_TRACE_ID, names.ANNOTATE),
    (a.GROUP_SIZE, names.GROUP),
    (a.EVAL_OUTCOME, names.EVAL_RESULT),
    (a.EVAL_STATUS, names.EVAL_RUN),
    (a.EVAL_ID, names.EVAL_RUN_START),
    (a.GRADER_NAME, names.GRADE),
    (a.RUN_STATUS, names.RUN),
    (a.RUN_KIND, names.RUN_START),
)


def kind(record: SpanRecord) -> str:
    """Return the type of a span; `OTHER` for any other span of an episode, and empty if it is not mttp's."""
    return of(record.name, record.attributes, is_root=not record.parent_id)


def of(name: str, attributes: Mapping[str, Any], *, is_root: bool) -> str:
    """Return the type of a span with this name and these attributes."""
    if a.RUN_ID in attributes:
        within = a.EPISODE_ID in attributes
        known = _WITHIN if within else _APART
    else:
        within, known = False, _WITHOUT_RUN
    if a.SPAN_TYPE in attributes:
        span_type = str(attributes[a.SPAN_TYPE])
        if known.get(span_type) in attributes:
            return span_type
    word = name.partition(" ")[0]
    if known.get(word) in attributes:
        return word
    if a.GEN_AI_OPERATION_NAME in attributes and (within or a.GRADER_NAME in attributes):
        return CALL
    if word in _WORDS:
        return OTHER if within else ""
    if within:
        return next((implied for key, implied in _IMPLIED_WITHIN if key in attributes), OTHER)
    if known is not _APART:
        return ""
    if a.UPDATE_INDEX in attributes:
        return names.UPDATE if is_root else names.UPDATE_LINKS
    return next((implied for key, implied in _IMPLIED_APART if key in attributes), "")


def named(name: str) -> str:
    """Return the type of a span from the name that the recorder gave it."""
    word = name.partition(" ")[0]
    return word if word in _OURS else CALL


def by_type(records: Iterable[SpanRecord]) -> dict[str, list[SpanRecord]]:
    """Return the spans by type, in the given order."""
    spans: dict[str, list[SpanRecord]] = {}
    for record in records:
        spans.setdefault(kind(record), []).append(record)
    return spans


def is_run(record: SpanRecord) -> bool:
    """Return whether the span is a run's root or its start marker."""
    return a.EPISODE_ID not in record.attributes and kind(record) in (names.RUN, names.RUN_START)


def is_group(record: SpanRecord) -> bool:
    """Return whether the span is a group."""
    return kind(record) == names.GROUP


def is_update(record: SpanRecord) -> bool:
    """Return whether the span is an update."""
    return kind(record) == names.UPDATE


def is_call_operation(attributes: Mapping[str, Any]) -> bool:
    """
    Return whether a span is a call of a model or a tool by its operation.

    Spans of other libraries around calls, such as `invoke_agent`, are not: what is below them is read.
    """
    operation = attributes.get(a.GEN_AI_OPERATION_NAME)
    return operation is not None and (operation in _CALL_OPERATIONS or a.RUN_ID in attributes)


def is_annotation(record: SpanRecord) -> bool:
    """Return whether the span is an annotation."""
    return kind(record) == names.ANNOTATE


def is_evaluation(record: SpanRecord) -> bool:
    """Return whether the span is an evaluation's root, start marker or result, from a trace or a message."""
    return kind(record) in _OF_EVALUATIONS

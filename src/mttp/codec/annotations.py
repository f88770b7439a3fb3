"""Annotations of episodes and steps: attributes of their spans, and annotations from spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mttp.codec import blocks, components, fields, rewards, steps, summary_fields
from mttp.codec.blocks import Column
from mttp.codec.plain import Faults, Plain, plain
from mttp.model.declarations import keys
from mttp.model.episodes import Annotation, Reward
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

__all__ = ["FACT", "OF_STEPS", "PREFERENCE", "STATED", "decode", "encode", "kind", "spans"]

PREFERENCE = "preference"
FACT = "fact"
OF_STEPS = "steps"
STATED = {
    "score": a.REWARD_VALUE,
    "outcome": a.EPISODE_OUTCOME,
    "advantage": a.ADVANTAGE,
    "label": a.GEN_AI_EVALUATION_SCORE_LABEL,
    "comment": a.GEN_AI_EVALUATION_EXPLANATION,
}
"""The attribute for the value of each kind of annotation; a fact with a user-supplied key is metadata."""

_KINDS = {key: name for name, key in STATED.items()}
_OWN = f"{a.METADATA}."
KEYS = frozenset(
    {
        *keys(Annotation).values(),
        *rewards.KEYS,
        a.STEP_INDEX,
        a.ANNOTATION_KEY,
        a.ANNOTATION_VALUE,
    }
    | {a.STEPS_FIRST_INDEX, a.STEPS_COUNT, a.STEPS_LAYOUT, a.REWARD_EVIDENCE}
)
"""All attributes of an annotation except templates."""
TEMPLATES = (*components.TEMPLATES, a.STEPS_COLUMN)


def kind(key: str) -> str:
    """Return the kind of annotation for a key."""
    return key if key in STATED or key in (PREFERENCE, OF_STEPS) else FACT


def encode(annotation: Annotation, faults: Faults) -> dict[str, Plain]:
    """Return the attributes; components beyond `rewards.MAX_INLINE` are left to `rewards.grades`."""
    attributes = {} if annotation.reward is None else rewards.encode(annotation.reward, faults)
    attributes |= fields.encode_value(annotation, faults)
    if annotation.kind == OF_STEPS:
        return attributes | _columns(annotation)
    if annotation.step is not None:
        attributes[a.STEP_INDEX] = annotation.step
    if annotation.kind != PREFERENCE:
        attributes[a.ANNOTATION_KEY] = STATED.get(annotation.kind, f"{_OWN}{annotation.key}")
    if annotation.value is not None:
        value = plain(annotation.value, faults)
        attributes[a.ANNOTATION_VALUE] = value.tolist() if hasattr(value, "tolist") else value
    return attributes


def _columns(annotation: Annotation) -> dict[str, Plain]:
    """Return a column of each annotated field of several steps, without NaN values."""
    columns = {}
    for name, numbers in annotation.value.items():
        known = np.flatnonzero(~np.isnan(numbers))
        columns[steps.FACTS[name]] = Column(
            numbers[known], None if len(known) == len(numbers) else known.tolist()
        )
    count = max(map(len, annotation.value.values()))
    return {a.STEPS_FIRST_INDEX: annotation.step, a.STEPS_COUNT: count, **blocks.laid_out(columns)}


def _of_steps(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays of shape [steps] by name."""
    rows = blocks.rows(attributes)
    return {
        name: np.array([row.get(key, np.nan) for row in rows])
        for name, key in steps.FACTS.items()
        if f"{a.STEPS_COLUMN}.{key}" in attributes
    }


def decode(record: SpanRecord, others: Sequence[SpanRecord] = ()) -> Annotation:
    """Return the annotation of a span; the grades of its components are among the trace's other spans."""
    attributes: Mapping[str, Any] = record.attributes
    annotation_kind = attributes.get(a.ANNOTATION_KIND, FACT)
    reward = _reward(record, others) if annotation_kind == "score" else None
    is_of_steps = annotation_kind == OF_STEPS and blocks.is_block(attributes)
    return Annotation(
        key=_key(annotation_kind, attributes.get(a.ANNOTATION_KEY)),
        value=_of_steps(attributes) if is_of_steps else attributes.get(a.ANNOTATION_VALUE),
        step=attributes.get(a.STEPS_FIRST_INDEX if is_of_steps else a.STEP_INDEX),
        reward=reward,
        **fields.of_span(Annotation, record, KEYS, TEMPLATES),
    )


def spans(record: SpanRecord) -> Iterator[SpanRecord]:
    """Yield a span for each step of an annotation of several steps, as if each were annotated apart."""
    packed = record.attributes
    shared = {key: value for key, value in packed.items() if not key.startswith((a.STEPS_COLUMN, _OF_BLOCKS))}
    for index, row in enumerate(blocks.rows(packed), packed.get(a.STEPS_FIRST_INDEX, 0)):
        attributes = {**shared, **row, a.STEP_INDEX: index}
        yield replace(record, span_id=f"{record.span_id}:{index}", attributes=attributes)


_OF_BLOCKS = a.STEPS_COLUMN.removesuffix("column")


def _key(annotation_kind: str, key: str | None) -> str:
    """Return the kind, or the user-supplied key without its prefix."""
    if key is None or _KINDS.get(key) == annotation_kind:
        return annotation_kind
    return key.removeprefix(_OWN)


def _reward(record: SpanRecord, others: Sequence[SpanRecord]) -> Reward:
    """Return the scoring of an annotation; one with a number and no status is ok."""
    attributes = {a.REWARD_VALUE: record.attributes.get(a.ANNOTATION_VALUE), **record.attributes}
    return rewards.decode(replace(record, attributes=attributes), summary_fields.children(others))

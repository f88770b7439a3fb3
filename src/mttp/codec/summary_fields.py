"""The fields of a span that summaries need, without decoding the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from mttp.codec import components, kinds
from mttp.codec.segments import segment
from mttp.model.declarations import keys
from mttp.model.gradings import Graded, Scored
from mttp.model.scorings import Grade, Reward, Spec
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = [
    "CALL",
    "OTHER",
    "Children",
    "Gap",
    "children",
    "count",
    "fault_kind",
    "faults",
    "gap",
    "grade",
    "indices",
    "kind",
    "members",
    "number",
    "omitted",
    "omitted_name",
    "reward",
    "step_scorings",
]

CALL, OTHER = kinds.CALL, kinds.OTHER
Children: TypeAlias = Mapping[str, Sequence[SpanRecord]]
"""Spans by their parent's span id, in order of start."""
_NO_CHILDREN: Children = {}
_MAX_STEPS = 1000
"""The maximum number of steps in a block."""
FAULTS_OF_STEPS = f"{a.STEPS_COLUMN}.{a.FAULTS}"
OMISSIONS_OF_STEPS = f"{a.STEPS_COLUMN}.{a.OMISSIONS}"
_DOCUMENTS = (a.RUN_CONFIG_JSON, a.ENV_KWARGS)
"""Attributes with JSON, of which an omission may name a member."""
_MERGED = {
    names.RUN_START: names.RUN,
    names.EVAL_RUN_START: names.EVAL_RUN,
    names.EVAL_RESULT: names.EVAL_RUN,
}
_OUTSIDE_EPISODES = frozenset(
    {names.RUN, names.EVAL_RUN, names.GROUP, names.UPDATE, names.ANNOTATE, names.GRADE}
)


_SCORED = {name: key for name, key in keys(Reward).items() if name in {*Scored._fields} - {"failed_checks"}}
_GRADED = {name: key for name, key in keys(Grade).items() if name in {*Graded._fields} - {"evidence"}}
"""The attributes of scalars of rewards and grades."""


class Gap(NamedTuple):
    """The spans that a transport lost, as recorded by a gap span."""

    spans: int
    episodes: int
    reason: str


def kind(record: SpanRecord) -> str:
    """
    Return the type of a span within an episode, including `CALL` and `OTHER`.

    Outside of episodes, `run`, `group`, `update`, `annotate`, `eval.run` or `grade`, and empty for others.
    """
    span_type = kinds.kind(record)
    if a.RUN_ID in record.attributes and a.EPISODE_ID in record.attributes:
        return span_type
    span_type = _MERGED.get(span_type, span_type)
    return span_type if span_type in _OUTSIDE_EPISODES else ""


def indices(record: SpanRecord) -> range:
    """Return the indices of a block's steps."""
    first = count(record.attributes, a.STEPS_FIRST_INDEX)
    return range(first, first + count(record.attributes, a.STEPS_COUNT))


def step_scorings(record: SpanRecord) -> Iterator[tuple[str, int, Scored]]:
    """
    Yield the scorings that are attributes of a step or block, each with a key and the index of its step.

    The key is that of the step in any form: transports may have it in a span and in columns.
    """
    values = record.attributes
    steps: Sequence[Mapping[str, Any]] = [values]
    first = count(values, a.STEP_INDEX)
    if a.STEPS_COUNT in values:
        if a.REWARD_SCORE not in str(values.get(a.STEPS_LAYOUT)):
            return
        from mttp.codec import blocks  # loads numpy

        steps, first = blocks.rows(values), count(values, a.STEPS_FIRST_INDEX)
    for index, step in enumerate(steps, first):
        if attributes := components.of_step(step):
            key = f"{segment(record)} {values.get(a.AGENT_ID)} {index}"
            yield key, index, reward(replace(record, start_time=record.end_time, attributes=attributes))


def reward(record: SpanRecord) -> Scored:
    """Return the scoring of a span, without the grades below it."""
    attributes = record.attributes
    values = _scalars(_SCORED, attributes)
    if (late := attributes.get(a.ANNOTATION_VALUE)) is not None:
        values.setdefault("value", late)
    if "value" in values and values["status"] == "missing":
        values["status"] = "ok"
    scores, statuses = components.scores(attributes)
    return Scored(
        components=scores,
        component_statuses=statuses,
        spec=_spec(attributes) if a.SPEC_NAME in attributes else None,
        failed_checks=tuple(_listed(attributes.get(a.REWARD_FAILED_CHECKS))),
        span_id=record.span_id,
        start_time=record.start_time,
        end_time=record.end_time,
        **values,
    )


def _spec(facts: Mapping[str, Any]) -> Spec:
    return Spec(name=facts[a.SPEC_NAME], version=facts.get(a.SPEC_VERSION), sha256=facts.get(a.SPEC_SHA256))


def _scalars(attributes: Mapping[str, str], scoring: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value for name, key in attributes.items() if (value := scoring.get(key)) is not None}
    return values | {"status": str(scoring.get(a.REWARD_STATUS, "missing"))}


def grade(record: SpanRecord, children: Children = _NO_CHILDREN) -> Graded:
    """Return the grade of a span; its parts are among `children`."""
    attributes = record.attributes
    return Graded(
        name=components.name(attributes),
        parts=tuple(
            grade(child, children)
            for child in children.get(record.span_id, ())
            if a.COMPONENT_NAME in child.attributes and kinds.kind(child) == names.GRADE
        ),
        evidence=_evidence(attributes) if a.REWARD_ERROR in attributes else None,
        **_scalars(_GRADED, attributes),
    )


def _evidence(attributes: Mapping[str, Any]) -> Any:
    try:
        return json.loads(attributes.get(a.REWARD_EVIDENCE, "null"))
    except (TypeError, ValueError, RecursionError):
        return None


def children(records: Iterable[SpanRecord]) -> Children:
    """Return spans by their parent's span id, in order of start."""
    by_parent: dict[str, list[SpanRecord]] = {}
    for record in sorted(records, key=lambda record: (record.start_time, record.end_time)):
        by_parent.setdefault(record.parent_id, []).append(record)
    return by_parent


def members(record: SpanRecord) -> tuple[str, tuple[str, ...]]:
    """Id and trace ids of the episodes of a group."""
    attributes = record.attributes
    return str(attributes.get(a.GROUP_ID, "")), tuple(map(str, _listed(attributes.get(a.GROUP_EPISODES))))


def faults(attributes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kind of each fault of a span, including those of a block's steps."""
    yield from map(fault_kind, _listed(attributes.get(a.FAULTS)))
    column = _listed(attributes.get(FAULTS_OF_STEPS))
    if column:
        times = count(attributes, a.STEPS_COUNT) if _is_same_for_all(attributes, a.FAULTS) else 1
        for fault in (fault for entry in column for fault in _listed(entry)):
            yield from (fault_kind(fault) for _ in range(min(times, _MAX_STEPS)))


def omitted(attributes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a span's omitted values, including those of a block's steps."""
    yield from map(omitted_name, _listed(attributes.get(a.OMISSIONS)))
    column = _listed(attributes.get(OMISSIONS_OF_STEPS))
    if column:
        same = _is_same_for_all(attributes, a.OMISSIONS)
        times = count(attributes, a.STEPS_COUNT) if same else 1
        for omission in (omission for entry in column for omission in _listed(entry)):
            yield from (omitted_name(omission) for _ in range(min(times, _MAX_STEPS)))


def omitted_name(omission: object) -> str:
    """Return the attribute of an omission, `attribute: reason`, without the path of a member."""
    name = str(omission).partition(":")[0][:80]
    return next((key for key in _DOCUMENTS if name.startswith(f"{key}.")), name)


def _is_same_for_all(attributes: Mapping[str, Any], column: str) -> bool:
    """Return whether a block's column has one entry for all steps."""
    try:
        layout = json.loads(attributes.get(a.STEPS_LAYOUT) or "[]")
        return any(key == column and which == "same" for key, _, _, which in layout)
    except (TypeError, ValueError):
        return False


def _listed(value: object) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, (list, tuple)) else ()


def fault_kind(fault: object) -> str:
    """Return the kind of a fault, `kind: detail`."""
    return str(fault).partition(":")[0][:80]


def gap(record: SpanRecord) -> Gap | None:
    """Return the gap of a span; None for another type of span."""
    if kinds.kind(record) != names.GAP:
        return None
    reason = str(record.attributes.get(a.GAP_REASON, "unknown"))
    return Gap(count(record.attributes, a.GAP_SPANS), count(record.attributes, a.GAP_EPISODES), reason)


def number(attributes: Mapping[str, Any], key: str) -> float | None:
    """Return the attribute as a float; None if it is not a number."""
    value = attributes.get(key)
    return float(value) if isinstance(value, (int, float)) else None


def count(attributes: Mapping[str, Any], key: str) -> int:
    """Return the attribute as a count; 0 if it is not one."""
    value = attributes.get(key)
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0

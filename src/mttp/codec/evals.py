"""
Evaluations: attributes of their spans and of result spans, and evaluations from spans.

Each result is a span that is written at once, so that it survives a crash of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mttp.codec import fields, kinds, rewards, templates
from mttp.codec.plain import Faults, Plain
from mttp.model.declarations import keys
from mttp.model.evaluations import OUTCOMES, EvalSummary, Evaluation, TaskResult
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.values import TestCaseResultStatus as Status

__all__ = [
    "ON_EPISODES",
    "decode",
    "encode",
    "encode_result",
    "ending",
    "lacking",
    "merged",
    "missing_policy",
    "on_episode",
    "policy",
    "tag_pairs",
]

_IDENTITY = keys(Evaluation, "run_id", "id", "suite", "suite_version")
_POLICY = keys(Evaluation, "policy", "policy_version")
_START = {
    name: key
    for name, key in keys(Evaluation).items()
    if key not in (a.EVAL_SAMPLES, a.EVAL_IS_BASELINE, a.EVAL_STATUS)
}
_FIGURES = keys(EvalSummary)
_SHARED = keys(TaskResult, "outcome", "score", "baseline_score", "delta")
"""The attributes that a result and its episode share."""
KEYS = frozenset(
    {*keys(Evaluation).values(), *_FIGURES.values(), *rewards.SPEC_KEYS, a.EVAL_TAGS}
    | {a.EVAL_RESULT_COUNT, a.GEN_AI_EVALUATION_NAME, a.FAULTS, a.ERROR_TYPE, a.MESSAGE_ID}
)
"""All attributes of an evaluation except templates."""
_TEMPLATES = (a.METRIC, a.METADATA, a.EVAL_COUNT, a.EVAL_BASELINE_COUNT)
RESULT_KEYS = frozenset(
    {*_IDENTITY.values(), *keys(TaskResult).values(), *rewards.SPEC_KEYS, a.ERROR_TYPE}
    | {a.TEST_CASE_RESULT_STATUS, a.MESSAGE_ID, a.EVAL_SAMPLE_INDEX}
)
"""All attributes of a result."""
ON_EPISODES = frozenset(
    {a.EVAL_ID, a.EVAL_SUITE_NAME, a.EVAL_SUITE_VERSION, *_SHARED.values(), a.TEST_CASE_RESULT_STATUS}
    | {a.EVAL_SAMPLE_INDEX}
)
"""The attributes of an episode that is part of an evaluation."""


# Values to attributes.


def encode(evaluation: Evaluation, faults: Faults) -> dict[str, Plain]:
    """Return the attributes at an evaluation's start, without user-supplied metrics and metadata."""
    attributes = fields.encode(_START, evaluation, faults)
    attributes |= rewards.encode_spec(evaluation.spec, faults)
    if evaluation.samples > 1:
        attributes[a.EVAL_SAMPLES] = evaluation.samples
    if evaluation.tags:
        attributes[a.EVAL_TAGS] = tag_pairs(evaluation.tags)
    if evaluation.is_baseline:
        attributes[a.EVAL_IS_BASELINE] = True
    return attributes | templates.encode(a.EVAL_BASELINE_COUNT, evaluation.baseline_counts)


def _identity(evaluation: Evaluation, faults: Faults) -> dict[str, Plain]:
    return fields.encode(_IDENTITY, evaluation, faults) | rewards.encode_spec(evaluation.spec, faults)


def tag_pairs(tags: Mapping[str, str]) -> list[str]:
    """Return `name=value` for each tag."""
    return [f"{name}={value}" for name, value in tags.items()]


def ending(status: str, summary: EvalSummary, result_count: int) -> dict[str, Plain]:
    """Return the attributes at an evaluation's end; `result_count` is the number of results in its trace."""
    counts = {name: count for name in OUTCOMES if (count := getattr(summary, name))}
    figures = {key: value for name, key in _FIGURES.items() if (value := getattr(summary, name)) is not None}
    ended: dict[str, Plain] = {a.EVAL_STATUS: status, a.EVAL_RESULT_COUNT: result_count}
    return ended | templates.encode(a.EVAL_COUNT, counts) | figures


def encode_result(evaluation: Evaluation, result: TaskResult, faults: Faults) -> dict[str, Plain]:
    """Return the attributes of a result's span."""
    attributes = _identity(evaluation, faults) | fields.encode_value(result, faults)
    return attributes | _sample(evaluation, result.sample) | _verdict(result)


def on_episode(
    evaluation: Evaluation, faults: Faults, *, sample: int = 0, result: TaskResult | None = None
) -> dict[str, Plain]:
    """Return the attributes of a task's episode about the evaluation, and about its result if known."""
    attributes = {key: value for key, value in _identity(evaluation, faults).items() if key in ON_EPISODES}
    attributes |= _sample(evaluation, sample if result is None else result.sample)
    if result is None:
        return attributes
    return attributes | fields.encode(_SHARED, result, faults) | _verdict(result)


def policy(evaluation: Evaluation) -> dict[str, Plain]:
    """Return the attributes of the policy, which its episodes share."""
    return fields.encode(_POLICY, evaluation, [])


def missing_policy(attributes: Mapping[str, Any], policy: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the attributes of the policy that an episode lacks; none if it names another policy."""
    named = policy.get(a.POLICY_ID)
    if attributes.get(a.POLICY_ID, named) != named:
        return {}
    return {key: value for key, value in policy.items() if key not in attributes}


def _sample(evaluation: Evaluation, sample: int) -> dict[str, Plain]:
    return {a.EVAL_SAMPLE_INDEX: sample} if evaluation.samples > 1 or sample else {}


def _verdict(result: TaskResult) -> dict[str, Plain]:
    if result.passed is None:
        return {}
    return {a.TEST_CASE_RESULT_STATUS: Status.PASS if result.passed else Status.FAIL}


# Spans to values.


def decode(records: Sequence[SpanRecord]) -> Evaluation:
    """
    Return the evaluation of one trace's spans, in any order, without duplicates.

    Without a root it is unfinished, and its fields come from the start marker or a result.
    From messages alone, its status is unknown; from results alone, its id is empty.
    """
    root = next((record for record in records if kinds.kind(record) == names.EVAL_RUN), None)
    starts = [record for record in records if kinds.kind(record) == names.EVAL_RUN_START]
    start = root or min(starts, key=lambda record: a.MESSAGE_ID in record.attributes, default=None)
    results = sorted(_results(records), key=_by_time)
    known = start or results[0]
    decoded = tuple(map(_result, results))
    attributes: Mapping[str, Any] = known.attributes
    values: dict[str, Any] = {"id": "", "samples": 1 + max((result.sample for result in decoded), default=0)}
    if start is None:
        values |= fields.decode(Evaluation, attributes)
    else:
        values = {"id": start.trace_id, **fields.of_span(Evaluation, start, KEYS, _TEMPLATES)}
    values |= {"status": _status(root, known), "start_time": known.start_time}
    values["end_time"] = None if root is None else root.end_time
    return Evaluation(
        **values,
        baseline_counts=templates.decode(a.EVAL_BASELINE_COUNT, attributes),
        tags=dict(str(pair).partition("=")[::2] for pair in attributes.get(a.EVAL_TAGS) or ()),
        spec=rewards.spec(attributes),
        results=decoded,
        trace_ids=(known.trace_id,),
    )


def _status(root: SpanRecord | None, known: SpanRecord) -> str:
    if root is not None:
        return str(root.attributes.get(a.EVAL_STATUS, "completed"))
    return "unknown" if a.MESSAGE_ID in known.attributes else "unfinished"


def _by_time(record: SpanRecord) -> tuple[int, int, str]:
    return record.attributes.get(a.EVAL_REVISION, 0), record.end_time, record.span_id


def _results(records: Iterable[SpanRecord]) -> list[SpanRecord]:
    """Return the results' spans, without messages that repeat another of these spans."""
    results = [record for record in records if kinds.kind(record) == names.EVAL_RESULT]
    ids = {record.trace_id + record.span_id for record in results}
    return [record for record in results if _restated(record) not in ids]


def _restated(record: SpanRecord) -> str:
    """Return the span that a message repeats, from its id, which may have a sample's index as suffix."""
    return str(record.attributes.get(a.MESSAGE_ID, "")).partition("-")[0]


def _result(record: SpanRecord) -> TaskResult:
    attributes: Mapping[str, Any] = record.attributes
    passed = attributes.get(a.TEST_CASE_RESULT_STATUS)
    values = {"task": "", **fields.of_span(TaskResult, record, RESULT_KEYS)}
    if values.get("error_type") in OUTCOMES:
        values["error_type"] = None
    return TaskResult(
        **values,
        sample=attributes.get(a.EVAL_SAMPLE_INDEX, 0),
        passed=None if passed is None else passed == Status.PASS,
    )


def lacking(records: Iterable[SpanRecord]) -> int:
    """Return the number of results that are missing by the count on the root."""
    records = list(records)
    result_counts = (record.attributes.get(a.EVAL_RESULT_COUNT) for record in records)
    counts = [count for count in result_counts if isinstance(count, int)]
    return max(max(counts, default=0) - len(_results(records)), 0)


def merged(parts: Iterable[Evaluation]) -> list[Evaluation]:
    """
    Return the evaluations in order of start, each merged from the parts with its id.

    Results without an evaluation id are added to the latest evaluation of their suite that started before.
    """
    by_id: dict[str, Evaluation] = {}
    for part in sorted(parts, key=lambda part: (not part.id, part.start_time or 0, part.trace_ids)):
        if not part.id:
            part = _assigned(part, by_id)
        if part.id or part.results:
            id = part.id or part.trace_ids[0]
            earlier = by_id.get(id)
            by_id[id] = replace(part, id=id) if earlier is None else _continued(earlier, part)
    return sorted(by_id.values(), key=lambda evaluation: (evaluation.start_time or 0, evaluation.trace_ids))


def _assigned(part: Evaluation, by_id: dict[str, Evaluation]) -> Evaluation:
    """Add a part's results to known evaluations, and return the part with the remaining results."""
    left = []
    for result in part.results:
        begun = [
            evaluation
            for evaluation in by_id.values()
            if evaluation.suite == part.suite and (evaluation.start_time or 0) <= (result.end_time or 0)
        ]
        if begun:
            last = max(begun, key=lambda evaluation: evaluation.start_time or 0)
            by_id[last.id] = replace(last, results=(*last.results, result))
        else:
            left.append(result)
    return replace(part, results=tuple(left))


def _continued(earlier: Evaluation, later: Evaluation) -> Evaluation:
    """Return the merged evaluation; the later part's fields take precedence."""
    return replace(
        later,
        tasks=tuple(dict.fromkeys((*earlier.tasks, *later.tasks))),
        samples=max(earlier.samples, later.samples),
        baseline_counts=later.baseline_counts or earlier.baseline_counts,
        tags={**earlier.tags, **later.tags},
        is_baseline=earlier.is_baseline or later.is_baseline,
        spec=later.spec or earlier.spec,
        results=(*earlier.results, *later.results),
        metrics={**earlier.metrics, **later.metrics},
        metadata={**earlier.metadata, **later.metadata},
        faults=(*earlier.faults, *later.faults),
        extra={**earlier.extra, **later.extra},
        trace_ids=(*earlier.trace_ids, *later.trace_ids),
        start_time=earlier.start_time,
    )

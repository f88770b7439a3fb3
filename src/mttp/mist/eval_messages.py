"""
Converts evaluations between spans and `eval.run` and `eval.result` messages.

The id of a message is the trace id and the span id of its span, so that a reader of both counts one.
`eval.result` has no field for the sample: if there are several, the id ends with a dash and the sample's
index. Messages of other tools are read as spans, and written again with their original ids.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mttp.codec import kinds
from mttp.codec.evals import tag_pairs
from mttp.mist.messages.envelope import Message
from mttp.mist.messages.payloads import EvalResult, EvalRun, Payload
from mttp.model.evaluations import OUTCOMES
from mttp.model.spans import Scope, SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.values import EvalOutcome as Outcome
from mttp.semconv.values import TestCaseResultStatus as Status

TRACEPARENT = "traceparent"
"""The tag with the evaluation's span in the format of W3C trace context."""
TAGS = (
    a.RUN_ID,
    a.RUN_NAME,
    a.EVAL_ID,
    a.EVAL_SUITE_VERSION,
    a.EVAL_SAMPLES,
    a.SPEC_NAME,
    a.SPEC_VERSION,
    a.SPEC_SHA256,
    a.POLICY_ID,
    a.POLICY_VERSION_START,
)
"""Attributes of an evaluation that become tags of its message."""

_LONGEST_MS = 2**62
_OURS = re.compile(r"([0-9a-f]{32})[0-9a-f]{16}(?:-([0-9]{1,18}))?", re.ASCII).fullmatch
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-[0-9a-f]{2}").match


def messages(span: SpanRecord) -> Iterator[tuple[Payload, str]]:
    """Yield the evaluation messages of a span, as payload and message id; most spans have none."""
    if a.EVAL_SUITE_NAME not in span.attributes:
        return
    sample = span.attributes.get(a.EVAL_SAMPLE_INDEX)
    own_id = span.trace_id + span.span_id + ("" if sample is None else f"-{sample}")
    id = str(span.attributes.get(a.MESSAGE_ID, own_id))
    kind = kinds.kind(span)
    if kind == names.EVAL_RUN_START:
        yield _run(span), id
    elif kind == names.EVAL_RESULT:
        yield _result(span), id


def _run(span: SpanRecord) -> EvalRun:
    attributes = span.attributes
    tags = dict(str(pair).partition("=")[::2] for pair in attributes.get(a.EVAL_TAGS) or ())
    tags |= {key: str(attributes[key]) for key in TAGS if key in attributes}
    if span.parent_id:
        tags[TRACEPARENT] = f"00-{span.trace_id}-{span.parent_id}-01"
    return EvalRun(
        suite=str(attributes[a.EVAL_SUITE_NAME]),
        tasks=tuple(attributes.get(a.EVAL_TASKS) or ()),
        baseline=bool(attributes.get(a.EVAL_IS_BASELINE, False)),
        tags=tags,
    )


def _result(span: SpanRecord) -> EvalResult:
    attributes = span.attributes
    return EvalResult(
        suite=str(attributes[a.EVAL_SUITE_NAME]),
        task=str(attributes.get(a.TASK_ID, "")),
        passed=attributes.get(a.TEST_CASE_RESULT_STATUS) == Status.PASS,
        score=_number(attributes, a.GEN_AI_EVALUATION_SCORE_VALUE),
        baseline_score=_number(attributes, a.EVAL_BASELINE_SCORE),
        delta=_number(attributes, a.EVAL_DELTA),
        duration_ms=round(min(max(_number(attributes, a.EVAL_DURATION) * 1000, 0), _LONGEST_MS)),
        error=_error(attributes),
    )


def _number(attributes: Mapping[str, Any], key: str) -> float:
    value = attributes.get(key)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def _error(attributes: Mapping[str, Any]) -> str:
    """Return the error text, not empty without a score: other tools would read the score as 0."""
    outcome, error = str(attributes.get(a.EVAL_OUTCOME, "")), str(attributes.get(a.EVAL_ERROR, ""))
    if outcome == Outcome.SCORED:
        return error
    if outcome == Outcome.ERRORED:
        return error or outcome
    return f"{outcome}: {error}" if error else outcome


def decode(message: Message) -> SpanRecord | None:
    """
    Return the span of an `eval.run` or `eval.result` message; None for other messages.

    Raises PayloadError if the payload does not match the type.
    """
    if message.type not in (EvalRun.TYPE, EvalResult.TYPE):
        return None
    payload = message.decode()
    if isinstance(payload, EvalRun):
        return _begun(message, payload)
    return _done(message, payload) if isinstance(payload, EvalResult) else None


def _begun(message: Message, payload: EvalRun) -> SpanRecord:
    tags = {**payload.tags} | ({"infer_url": payload.infer_url} if payload.infer_url else {})
    at = _TRACEPARENT(tags.pop(TRACEPARENT, ""))
    attributes: dict[str, Any] = {key: tags.pop(key) for key in TAGS if key in tags}
    samples = attributes.pop(a.EVAL_SAMPLES, "")
    if re.fullmatch("[1-9][0-9]{0,17}", samples, re.ASCII):
        attributes[a.EVAL_SAMPLES] = int(samples)
    attributes |= {a.EVAL_SUITE_NAME: payload.suite, a.MESSAGE_ID: message.id}
    if payload.tasks:
        attributes[a.EVAL_TASKS] = list(payload.tasks)
    if tags:
        attributes[a.EVAL_TAGS] = tag_pairs(tags)
    if payload.baseline:
        attributes[a.EVAL_IS_BASELINE] = True
    when = max(message.timestamp_ns, 0)
    return SpanRecord(
        trace_id=at[1] if at else _trace_id(message.id, message.id),
        span_id=_digest(message.id)[:16],
        parent_id=at[2] if at else "",
        name=names.EVAL_RUN_START,
        start_time=when,
        end_time=when,
        attributes=attributes,
        scope=_sent_by(message.source),
    )


def _done(message: Message, payload: EvalResult) -> SpanRecord:
    when = max(message.timestamp_ns, 0)
    outcome, error = _outcome(payload.error)
    attributes: dict[str, Any] = {
        a.EVAL_SUITE_NAME: payload.suite,
        a.TASK_ID: payload.task,
        a.EVAL_OUTCOME: outcome,
        a.EVAL_REVISION: when,
        a.MESSAGE_ID: message.id,
    }
    match = _OURS(message.id)
    if match and match[2]:
        attributes[a.EVAL_SAMPLE_INDEX] = int(match[2])
    if outcome == Outcome.SCORED:
        attributes[a.GEN_AI_EVALUATION_SCORE_VALUE] = payload.score
        attributes[a.TEST_CASE_RESULT_STATUS] = Status.PASS if payload.passed else Status.FAIL
    if payload.baseline_score or payload.delta:  # the reference implementation leaves both at zero
        attributes[a.EVAL_BASELINE_SCORE] = payload.baseline_score
        attributes |= {a.EVAL_DELTA: payload.delta} if outcome == Outcome.SCORED else {}
    if payload.duration_ms > 0:
        attributes[a.EVAL_DURATION] = payload.duration_ms / 1000
    if error:
        attributes[a.EVAL_ERROR] = error
    return SpanRecord(
        trace_id=_trace_id(message.id, f"{EvalResult.TYPE} {payload.suite}"),
        span_id=_digest(message.id)[:16],
        name=names.EVAL_RESULT,
        start_time=max(when - max(payload.duration_ms, 0) * 1_000_000, 0),
        end_time=when,
        attributes=attributes,
        status_code=2 if outcome in (Outcome.ERRORED, Outcome.TIMED_OUT) else 0,
        status_message=error if outcome in (Outcome.ERRORED, Outcome.TIMED_OUT) else "",
        scope=_sent_by(message.source),
    )


def _outcome(error: str) -> tuple[str, str]:
    """Split an error text into outcome and reason."""
    if not error:
        return Outcome.SCORED, ""
    word, _, rest = error.partition(": ")
    if word in OUTCOMES and word != Outcome.SCORED:
        return word, rest
    return Outcome.ERRORED, error


def _trace_id(message_id: str, otherwise: str) -> str:
    """Return the trace id in the id of one of our messages, else a digest of `otherwise`."""
    match = _OURS(message_id)
    return match[1] if match else _digest(otherwise)[:32]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _sent_by(source: str) -> Scope:
    return Scope(resource={a.SERVICE_NAME: source})

"""
Traces of agents that hold no episodes of mttp, in OTLP JSON.

A trace is an episode whose steps are its model calls; calls are recognized by the GenAI conventions,
OpenInference and OpenLLMetry's names. Rewards are the proposed `rl.reward.*` attributes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mttp.codec import calls, other_calls
from mttp.codec.conformity import Conformity
from mttp.codec.duplicates import fuller, is_same
from mttp.errors import ReadError
from mttp.formats.fields import as_list, number, text, trace_id
from mttp.formats.json_records import lines
from mttp.formats.records import ImportedRecord, UnreadableRecord
from mttp.formats.sample import FileSample
from mttp.model.calls import Call
from mttp.model.chat import message_text, new_messages
from mttp.model.chat_forms import chat_messages
from mttp.model.episodes import Episode, Reward, Step
from mttp.model.spans import SpanRecord
from mttp.otlp.json_decode import LineError, decode_documents
from mttp.otlp.streams import Cut, Skipped, StreamLine
from mttp.semconv import attributes as a

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "traces of agents"
LACKS = (
    "environment steps (each model call is a step)",
    "token ids and log probabilities",
    "groups and advantages",
    "seeds",
)
_MOST_UNREADABLE = 100
"""Number of lines without a call after which a file is not searched further for one."""


def recognizes(sample: FileSample) -> bool:
    """Return whether a file has OTLP JSON whose first call is not mttp's."""
    return not (sample.columns or sample.members) and _OtlpFile(sample.path).is_of_others()


def other_signals(path: Path) -> str:
    """Return what a file of OTLP JSON without spans holds, such as `logs and metrics`; else an empty text."""
    file = _OtlpFile(path)
    file.is_of_others()
    return "" if file.has_spans else " and ".join(sorted(file.signals))


def read(path: Path) -> Iterator[ImportedRecord]:
    """
    Yield an episode for each trace that has a call or a reward, in order of start.

    Spans that are repeated count once. Raises ReadError for a file of logs or metrics without spans.
    """
    traces: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)
    conformity = Conformity()
    file = _OtlpFile(path)
    for place, record in file.spans():
        if isinstance(record, UnreadableRecord):
            yield record
            continue
        span, misfits = conformity.examine(record)
        yield from (UnreadableRecord(place, misfit.reason) for misfit in misfits)
        spans = traces[span.trace_id]
        known = spans.get(span.span_id, span)
        if is_same(known, span):
            spans[span.span_id] = fuller(known, span)
        else:
            yield UnreadableRecord(place, f"span {span.name!r:.80} has the id of another one, {span.span_id}")
    if file.signals and not traces:
        raise ReadError(f"{path} holds {' and '.join(sorted(file.signals))} of OpenTelemetry, and no traces")
    for trace in sorted(traces.values(), key=lambda trace: min(span.start_time for span in trace.values())):
        spans_of_trace = [*trace.values()]
        try:
            value = episode(spans_of_trace)
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            yield UnreadableRecord(f"trace {spans_of_trace[0].trace_id}", f"{type(error).__name__}: {error}")
        else:
            if value.steps or value.reward.status != "missing":
                yield value


class _OtlpFile:
    """A file of OTLP JSON: documents of traces, among which those of other signals may stand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.signals: set[str] = set()
        """The other signals in what was read: `logs`, `metrics` or `profiles`."""
        self.has_spans = False
        """Whether what was read has a span."""

    def spans(self) -> Iterator[tuple[str, SpanRecord | UnreadableRecord]]:
        """Yield the spans and what can't be read, each with its place."""
        for line in lines(self._path):
            spans, reasons = self._decoded(line)
            self.has_spans = self.has_spans or bool(spans)
            place = f"line {line.number}"
            yield from ((place, span) for span in spans)
            yield from ((place, UnreadableRecord(place, reason)) for reason in reasons)

    def _decoded(self, line: StreamLine | Skipped | Cut) -> tuple[list[SpanRecord], list[str]]:
        """Return the spans of a line, and why others can't be read."""
        if isinstance(line, Skipped):
            return [], [line.reason]
        reasons = [line.reason] if isinstance(line, Cut) else []
        try:
            spans, wrong = decode_documents(line.content)
        except LineError as error:
            if error.signal is None:
                return [], reasons or [str(error)]
            self.signals.add(error.signal)
            return [], reasons
        return spans, [*wrong, *reasons]

    def is_of_others(self) -> bool:
        """Return whether the first call is none of mttp, or there are only spans of others without calls."""
        unreadable = 0
        for _, span in self.spans():
            if isinstance(span, UnreadableRecord):
                unreadable += 1
                if unreadable == _MOST_UNREADABLE:
                    break
            elif a.RUN_ID in span.attributes:
                return False
            elif calls.is_call(other_calls.with_conventions(span)):
                return True
        return self.has_spans


def episode(spans: Sequence[SpanRecord]) -> Episode:
    """Return the episode of the spans of one trace."""
    ordered = sorted(spans, key=lambda span: (span.start_time, span.span_id))
    ids = {span.span_id for span in ordered}
    roots = [span for span in ordered if span.parent_id not in ids]
    failed = next((span for span in roots if span.status_code == 2), None)
    pairs = [*_calls(ordered)]
    steps = _steps(pairs)
    reward = _reward(ordered)
    resource = roots[0].scope.resource
    facts = {
        key: value for span in ordered for key, value in span.attributes.items() if key.startswith("rl.")
    }
    return Episode(
        trace_id=trace_id(roots[0].trace_id),
        env=text(facts.get("rl.environment.name")) or text(resource.get(a.SERVICE_NAME)) or "",
        task=text(facts.get("rl.sample.task.id")) or _asked(steps),
        policy=next((call.name for _, call in pairs if call.name and call.operation != "execute_tool"), None),
        steps=steps,
        step_count=len(steps),
        length=len(steps),
        status="error" if failed else "completed",
        error_type=None if failed is None else text(failed.attributes.get(a.ERROR_TYPE)) or "error",
        error_message=None if failed is None else failed.status_message or None,
        reward=reward,
        rewards=() if reward.status == "missing" else (reward,),
        return_=reward.value,
        return_basis=None if reward.value is None else "episode",
        metadata={"trace": {"root": roots[0].name, "spans": len(ordered), **facts}},
        start_time=min(span.start_time for span in ordered),
        end_time=max(span.end_time for span in ordered),
    )


def _calls(spans: Sequence[SpanRecord]) -> Iterator[tuple[SpanRecord, Call]]:
    """
    Yield the calls in order of start, without those inside another call.

    A response that two libraries recorded is one call.
    """
    by_id = {span.span_id: span for span in spans}
    ids: set[str] = set()
    for span in spans:
        if calls.is_call(span) and not _is_within_call(span, by_id):
            call = calls.decode(span)
            if call.id is None or call.operation == "execute_tool" or call.id not in ids:
                yield span, call
            ids.add(call.id or "")


def _is_within_call(record: SpanRecord, by_id: Mapping[str, SpanRecord]) -> bool:
    above, ids = by_id.get(record.parent_id), {record.span_id}
    while above is not None and above.span_id not in ids:
        if calls.is_call(above):
            return True
        ids.add(above.span_id)
        above = by_id.get(above.parent_id)
    return False


def _steps(pairs: Sequence[tuple[SpanRecord, Call]]) -> tuple[Step, ...]:
    """Return a step for each model call, with the calls of tools until the next one."""
    steps: list[Step] = []
    before: list[Any] = []
    for record, call in pairs:
        if call.operation == "execute_tool":
            if steps:
                last = steps[-1]
                steps[-1] = replace(last, calls=(*last.calls, call), end_time=call.end_time)
            continue
        asked = chat_messages(call.arguments)
        action, choices = _answer(call)
        steps.append(
            Step(
                index=len(steps),
                observation=new_messages(asked, before) or None,
                action=action,
                calls=(replace(call, arguments=None, result=None),),
                start_time=record.start_time,
                end_time=record.end_time,
                error_type=call.error_type,
                error_message=call.error_message,
                metadata={"choices": choices} if choices else {},
            )
        )
        before = [*asked, *([] if action is None else [action])]
    return tuple(steps)


def _answer(call: Call) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """
    Return the message that a model answered, and further choices.

    Messages of one choice, such as a text and tool calls of the Responses API, are one.
    """
    answers = chat_messages(call.result, "assistant")
    if not answers:
        return None, []
    first, texts = answers[0], [message for message in answers if message.get("content")]
    if len(answers) == 1 or len(call.finish_reasons) > 1 or len(texts) > 1:
        return first, answers[1:]
    merged = {**first, "content": (texts or answers)[0].get("content")}
    tools = [tool for message in answers for tool in message.get("tool_calls", ())]
    for message in answers[1:]:
        merged |= {key: value for key, value in message.items() if key not in merged}
    return {**merged, **({"tool_calls": tools} if tools else {})}, []


def _reward(spans: Sequence[SpanRecord]) -> Reward:
    """Return the last reward of a trace; one that is no finite number is an error."""
    scored = [span for span in spans if "rl.reward.score" in span.attributes]
    if not scored:
        return Reward()
    span = scored[-1]
    score = span.attributes["rl.reward.score"]
    value = number(score)
    return Reward(
        value=value,
        status="error" if value is None else "ok",
        raw=None if value is not None or score is None else str(score),
        explanation=text(span.attributes.get("rl.reward.run.reason")),
        label=text(span.attributes.get("rl.reward.verify.result")),
        start_time=span.start_time,
        end_time=span.end_time,
    )


def _asked(steps: Sequence[Step]) -> str | None:
    """Return the first message of the user, by which samples of a task are compared."""
    messages = as_list(steps[0].observation) if steps else ()
    return next((message_text(turn)[:500] or None for turn in messages if turn.get("role") == "user"), None)

"""
Traces of agents that hold no episodes of mttp: OTLP JSON, and agent-lightning's spans as JSON lines.

A trace, or an attempt of agent-lightning, is an episode whose steps are its model calls; calls are recognized
by the GenAI conventions, OpenInference and OpenLLMetry's names. Rewards are those of agent-lightning 0.3
(`agentlightning.reward.N.name` and `.value`) and the proposed `rl.reward.*` attributes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mttp.codec import calls, other_calls
from mttp.formats.fields import as_list, as_mapping, json_value, nanoseconds, number, text, trace_id
from mttp.formats.json_records import json_lines
from mttp.formats.records import ImportedRecord, UnreadableRecord
from mttp.formats.sample import FileSample
from mttp.model.calls import Call
from mttp.model.chat import new_messages
from mttp.model.episodes import Episode, Reward, Step, Tokens
from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.json_decode import LineError, decode_line
from mttp.otlp.streams import Cut, Skipped, read_lines
from mttp.semconv import attributes as a

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "traces of agents"
LACKS = (
    "environment steps (each model call is a step)",
    "log probabilities, unless the server's are recorded",
    "groups and advantages",
    "seeds",
)
_REWARD = re.compile(r"agentlightning\.reward\.(\d+)\.(name|value)")
_LIGHTNING = {"rollout_id", "attempt_id", "sequence_id", "trace_id", "span_id", "attributes"}


def recognizes(sample: FileSample) -> bool:
    """Return whether the first line is a span of agent-lightning, or OTLP JSON without spans of mttp."""
    if sample.row.keys() >= _LIGHTNING:
        return True
    keys = {
        text(attribute.get("key"))
        for resource in map(as_mapping, as_list(sample.row.get("resourceSpans")))
        for scope in map(as_mapping, as_list(resource.get("scopeSpans")))
        for span in map(as_mapping, as_list(scope.get("spans")))
        for attribute in map(as_mapping, as_list(span.get("attributes")))
    }
    return bool(keys) and a.RUN_ID not in keys


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each trace or attempt that has a call or a reward, in order of start."""
    traces: defaultdict[str, list[SpanRecord]] = defaultdict(list)
    for found in _spans(path):
        if isinstance(found, UnreadableRecord):
            yield found
        else:
            traces[str(found.scope.resource.get("agentlightning.attempt_id") or found.trace_id)].append(found)
    for spans in sorted(traces.values(), key=lambda spans: min(one.start_time for one in spans)):
        try:
            value = episode(spans)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            yield UnreadableRecord(f"trace {spans[0].trace_id}", f"{type(error).__name__}: {error}")
        else:
            if value.steps or value.reward.status != "missing":
                yield value


def _spans(path: Path) -> Iterator[SpanRecord | UnreadableRecord]:
    first: Any = next(json_lines(path), ("", {}))[1]
    if isinstance(first, Mapping) and first.keys() >= _LIGHTNING:
        for place, record in json_lines(path):
            try:
                yield record if isinstance(record, UnreadableRecord) else _of_lightning(record)
            except (ValueError, TypeError, LookupError) as error:
                yield UnreadableRecord(place, f"{type(error).__name__}: {error}")
        return
    for line in read_lines(path):
        place = f"line {line.number}"
        if isinstance(line, (Skipped, Cut)):
            yield UnreadableRecord(place, line.reason)
            continue
        try:
            yield from decode_line(line.content)
        except LineError as error:
            yield UnreadableRecord(place, str(error))


def _of_lightning(record: Mapping[str, Any]) -> SpanRecord:
    """Return the span of a record of agent-lightning's store; times are seconds since the Unix epoch."""
    start = nanoseconds(record.get("start_time")) or 0
    status = as_mapping(record.get("status"))
    identity = {name: str(record[name]) for name in ("rollout_id", "attempt_id")}
    resource = {f"agentlightning.{name}": value for name, value in identity.items()}
    return SpanRecord(
        trace_id=str(record["trace_id"]),
        span_id=str(record["span_id"]),
        parent_id=str(record.get("parent_id") or ""),
        name=str(record["name"]),
        start_time=start,
        end_time=nanoseconds(record.get("end_time")) or start,
        attributes=dict(as_mapping(record["attributes"])),
        status_code=2 if status.get("status_code") == "ERROR" else 0,
        status_message=str(status.get("description") or ""),
        scope=Scope(
            resource={**as_mapping(as_mapping(record.get("resource")).get("attributes")), **resource}
        ),
    )


def episode(spans: Sequence[SpanRecord]) -> Episode:
    """Return the episode of the spans of one trace, or of one attempt."""
    ordered = sorted(map(_with_conventions, spans), key=lambda one: (one.start_time, one.span_id))
    ids = {one.span_id for one in ordered}
    roots = [one for one in ordered if one.parent_id not in ids]
    failed = next((one for one in roots if one.status_code == 2), None)
    found = [*_calls(ordered)]
    steps = _steps(found)
    reward = _reward(ordered)
    resource = roots[0].scope.resource
    attempt = text(resource.get("agentlightning.attempt_id"))
    facts = {key: value for one in ordered for key, value in one.attributes.items() if key.startswith("rl.")}
    return Episode(
        id=text(resource.get("agentlightning.rollout_id")) or "",
        trace_id=trace_id(roots[0].trace_id) if attempt is None else trace_id("agent-lightning", attempt),
        env=text(facts.get("rl.environment.name")) or text(resource.get(a.SERVICE_NAME)) or "",
        task=text(facts.get("rl.sample.task.id")) or _asked(steps),
        policy=next((call.name for _, call in found if call.name and call.operation != "execute_tool"), None),
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
        start_time=min(one.start_time for one in ordered),
        end_time=max(one.end_time for one in ordered),
    )


def _with_conventions(record: SpanRecord) -> SpanRecord:
    if not other_calls.is_other_call(record.attributes):
        return record
    return replace(record, attributes=other_calls.with_conventions(record.attributes))


def _calls(spans: Sequence[SpanRecord]) -> Iterator[tuple[SpanRecord, Call]]:
    """Yield the calls in order of start, without those inside another call."""
    by_id = {one.span_id: one for one in spans}
    for one in spans:
        if calls.is_call(one) and not _is_within_call(one, by_id):
            yield one, calls.decode(one)


def _is_within_call(record: SpanRecord, by_id: Mapping[str, SpanRecord]) -> bool:
    above, seen = by_id.get(record.parent_id), {record.span_id}
    while above is not None and above.span_id not in seen:
        if calls.is_call(above):
            return True
        seen.add(above.span_id)
        above = by_id.get(above.parent_id)
    return False


def _steps(found: Sequence[tuple[SpanRecord, Call]]) -> tuple[Step, ...]:
    """Return a step for each model call, with the calls of tools until the next one."""
    steps: list[Step] = []
    before: list[Any] = []
    for record, call in found:
        if call.operation == "execute_tool":
            if steps:
                last = steps[-1]
                steps[-1] = replace(last, calls=(*last.calls, call), end_time=call.end_time)
            continue
        asked = [_message(one) for one in as_list(json_value(call.arguments))]
        answered = [_message(one) for one in as_list(json_value(call.result))]
        steps.append(
            Step(
                index=len(steps),
                observation=new_messages(asked, before) or None,
                action=answered[0] if len(answered) == 1 else answered or None,
                tokens=_tokens(record.attributes),
                calls=(replace(call, arguments=None, result=None),),
                start_time=record.start_time,
                end_time=record.end_time,
                error_type=call.error_type,
                error_message=call.error_message,
            )
        )
        before = [*asked, *answered]
    return tuple(steps)


def _message(value: Any) -> dict[str, Any]:
    """Return a message of the conventions, which has parts, in the form of chat APIs."""
    given = as_mapping(value)
    parts = [as_mapping(one) for one in as_list(given.get("parts"))]
    texts = [str(one.get("content")) for one in parts if one.get("type") == "text"]
    answers = [one for one in parts if one.get("type") == "tool_call_response"]
    asked = [
        {"id": one.get("id"), "type": "function", "function": {k: one.get(k) for k in ("name", "arguments")}}
        for one in parts
        if one.get("type") == "tool_call"
    ]
    role = str(given.get("role", "user"))
    if answers:
        content = str(answers[0].get("response", answers[0].get("result")))
        return {"role": "tool", "tool_call_id": answers[0].get("id"), "content": content}
    content = "\n".join(texts) if parts else str(given.get("content", ""))
    return {"role": role, "content": content, **({"tool_calls": asked} if asked else {})}


def _tokens(attributes: Mapping[str, Any]) -> Tokens | None:
    """Return token ids and log probabilities as agent-lightning records them."""
    ids, prompt = (json_value(attributes.get(name)) for name in ("response_token_ids", "prompt_token_ids"))
    entries = as_list(json_value(attributes.get("logprobs.content")))
    logprobs: Any = [number(as_mapping(one).get("logprob")) for one in entries]
    flat: Any = as_list(ids)[0] if as_list(ids) and isinstance(as_list(ids)[0], list) else as_list(ids)
    if not flat:
        return None
    known = len(logprobs) == len(flat) and None not in logprobs
    given: Any = list(as_list(prompt)) or None
    return Tokens(ids=list(flat), prompt_ids=given, logprobs=logprobs if known else None)  # type: ignore[arg-type]


def _reward(spans: Sequence[SpanRecord]) -> Reward:
    """Return the last reward of a trace; the first dimension of agent-lightning is the value."""
    found = Reward()
    for span in spans:
        parts: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        for key, value in span.attributes.items():
            match = _REWARD.fullmatch(key)
            if match is not None:
                parts[int(match[1])][match[2]] = value
        if parts:
            named = {
                str(one.get("name", f"reward {place}")): one.get("value") for place, one in parts.items()
            }
            first = parts[min(parts)].get("value")
            known = {name: score for name, given in named.items() if (score := number(given)) is not None}
            found = _valued(first, known if len(named) > 1 else {}, span)
        elif "rl.reward.score" in span.attributes:
            found = _valued(span.attributes["rl.reward.score"], {}, span)
    return found


def _valued(given: object, components: Mapping[str, float], span: SpanRecord) -> Reward:
    value = number(given)
    reason = text(span.attributes.get("rl.reward.run.reason"))
    return Reward(
        value=value,
        status="error" if value is None else "ok",
        raw=None if value is not None else str(given),
        components=components,
        explanation=reason,
        label=text(span.attributes.get("rl.reward.verify.result")),
        start_time=span.start_time,
        end_time=span.end_time,
    )


def _asked(steps: Sequence[Step]) -> str | None:
    """Return the first message of the user, by which samples of a task are compared."""
    messages = as_list(steps[0].observation) if steps else ()
    return next((str(one.get("content"))[:500] for one in messages if one.get("role") == "user"), None)

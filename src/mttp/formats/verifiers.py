"""
verifiers: the traces and episodes that verifiers 0.4 and prime-rl save as JSON lines.

A trace is a graph of messages, of which each sampled one is a step: its observation are the messages since
the sampled message before it on its path.
What mttp has no name for stays in the metadata `verifiers`, so that `record` returns the library's record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.chats import tool_calls
from mttp.formats.completions import assessed
from mttp.formats.fields import as_list, as_mapping, nanoseconds, number, text, trace_id, whole
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.formats.verifiers_nodes import node_tokens, restored_nodes, unmapped_nodes
from mttp.model.calls import Call
from mttp.model.episodes import Agent, Episode, Reward, Step

__all__ = ["LACKS", "SUFFIX", "TITLE", "episode", "read", "recognizes", "record"]

TITLE = "verifiers traces"
SUFFIX = ".jsonl"
LACKS = ("reward specs", "seeds", "times of tool calls", "log probabilities beyond four decimals")
_PARAMETERS = ("temperature", "top_p", "top_k", "max_tokens", "seed")
_LIMITS = (
    "max_turns",
    "max_input_tokens",
    "max_output_tokens",
    "max_total_tokens",
    "compaction_failed",
)
"""Stop conditions that verifiers counts as truncation."""


def recognizes(sample: FileSample) -> bool:
    """Return whether the first record is an episode or a trace of verifiers."""
    traces = as_list(sample.row.get("traces"))
    first = as_mapping(traces[0]) if traces else sample.row
    is_trace = {"nodes", "agent", "verifiers"} <= first.keys()
    return "task" in sample.row and (is_trace or ("traces" in sample.row and "env" in sample.row))


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield the episodes of a file of traces or episodes, one a line."""
    yield from json_records.episodes(json_records.json_lines(path), episode)


def episode(record: Mapping[str, Any]) -> Episode:
    """
    Return the episode of a record of an episode or of a trace; raises ValueError for another record.

    An episode of several traces has an agent for each of them.
    Its reward is that of its only trainable agent; with several trainable agents it has none.
    """
    traces = [as_mapping(item) for item in as_list(record.get("traces"))] if "traces" in record else [record]
    if not isinstance(record.get("task"), Mapping) or any("nodes" not in trace for trace in traces):
        raise ValueError("has no task or no nodes, so it is neither an episode nor a trace of verifiers")
    ids = _agent_ids(traces) if len(traces) > 1 else (None,) * len(traces)
    steps = [step for trace, agent in zip(traces, ids, strict=True) for step in _steps(trace, agent)]
    trainable = [trace for trace in traces if as_mapping(trace.get("agent")).get("trainable") is not False]
    scored = trainable[0] if len(trainable) == 1 else {}
    reward = _reward(scored)
    task, work = as_mapping(record["task"]), as_mapping(as_mapping(record.get("run")).get("work"))
    policy = as_mapping(work.get("policy"))
    starts = [start for trace in traces if (start := _times(trace)[0]) is not None]
    ends = [end for trace in traces if (end := _times(trace)[1]) is not None]
    ends += [step.end_time for step in steps if step.end_time is not None]
    return Episode(
        id=text(record.get("id")) or "",
        trace_id=trace_id(record.get("id")) if record.get("id") else trace_id("verifiers", record),
        env=text(as_mapping(record.get("env")).get("id")) or "",
        task=text(task.get("key")) or text(task.get("hash")),
        inputs=task.get("data"),
        group=text(as_mapping(record.get("group")).get("id")),
        split=text(work.get("type")) or text(as_mapping(record.get("run")).get("type")),
        policy=_policy(scored) or next(filter(None, map(_policy, traces)), None),
        policy_version_start=text(policy.get("start")),
        policy_version_end=text(policy.get("end")),
        steps=tuple(steps),
        step_count=len(steps),
        length=len(steps),
        agents=tuple(
            _agent(trace, agent, steps) for trace, agent in zip(traces, ids, strict=True) if agent is not None
        ),
        reward=reward,
        rewards=() if reward.status == "missing" else (reward,),
        return_=reward.value,
        return_basis=None if reward.value is None else "episode",
        advantage=_advantage(scored),
        metrics=_metrics(scored),
        cost_usd=_cost(traces),
        metadata={"verifiers": _unmapped(record, traces)},
        start_time=min(starts, default=None),
        end_time=max(ends, default=None),
        **_ending(record, traces),
    )


def record(episode: Episode) -> dict[str, Any]:
    """
    Return the record of an episode that was read or recorded from verifiers, as verifiers saves it.

    Raises ValueError for another episode.
    """
    saved = episode.metadata.get("verifiers")
    if not isinstance(saved, Mapping) or "task" not in saved:
        raise ValueError("not one of verifiers")
    document = dict(saved)
    document["task"] = {**saved["task"], "data": episode.inputs}
    traces = [dict(saved_trace) for saved_trace in saved["traces"]] if "traces" in saved else [document]
    ids: Sequence[str | None] = _agent_ids(traces) if len(traces) > 1 else (None,)
    for trace, agent in zip(traces, ids, strict=False):
        steps = [step for step in episode.steps if step.agent == agent]
        trace["nodes"] = restored_nodes(trace["nodes"], steps)
        trace.setdefault("task", document["task"])
    if "traces" in saved:
        document["traces"] = traces
    return document


def _unmapped(record: Mapping[str, Any], traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record without the task's data, messages and tokens, which episode and steps have."""
    unmapped_traces = []
    for trace in traces:
        rest = {key: value for key, value in trace.items() if trace is record or key != "task"}
        if trace is not record and trace.get("task") != record["task"]:
            rest["task"] = trace.get("task")
        unmapped_traces.append({**rest, "nodes": unmapped_nodes(as_list(trace.get("nodes")))})
    unmapped = unmapped_traces[0] if "traces" not in record else {**record, "traces": unmapped_traces}
    unmapped["task"] = {key: value for key, value in record["task"].items() if key != "data"}
    return unmapped


def _agent_ids(traces: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the name of each trace's agent, with a number from its second trace on."""
    counts: Counter[str] = Counter()
    ids = []
    for trace in traces:
        name = text(as_mapping(trace.get("agent")).get("name")) or "agent"
        counts[name] += 1
        ids.append(name if counts[name] == 1 else f"{name}-{counts[name]}")
    return tuple(ids)


def _agent(trace: Mapping[str, Any], agent: str, steps: Sequence[Step]) -> Agent:
    reward = _reward(trace)
    start, end = _times(trace)
    error = _error(as_list(trace.get("errors"))) if trace.get("ok") is False else {}
    return Agent(
        id=agent,
        name=text(as_mapping(trace.get("agent")).get("name")),
        policy=_policy(trace),
        length=sum(step.agent == agent for step in steps),
        reward=reward,
        rewards=() if reward.status == "missing" else (reward,),
        return_=reward.value,
        advantage=_advantage(trace),
        metrics=_metrics(trace),
        start_time=start,
        end_time=end,
        truncated=_is_truncated(trace),
        **error,
    )


def _steps(trace: Mapping[str, Any], agent: str | None) -> Iterator[Step]:
    """Yield a step for each sampled message; one without an action if no call of the model succeeded."""
    nodes = [as_mapping(node) for node in as_list(trace.get("nodes"))]
    turns = [*node_tokens(nodes)]
    calls = _calls(trace, [position for position, _, _ in turns])
    answers = {
        str(message.get("tool_call_id")): message.get("content")
        for node in nodes
        if (message := as_mapping(node.get("message"))).get("role") == "tool"
    }
    previous, _ = _times(trace)
    for index, (position, inputs, tokens) in enumerate(turns):
        message = as_mapping(nodes[position].get("message"))
        model_calls = calls.get(position, ())
        end = model_calls[-1].end_time if model_calls else None
        end = end or nanoseconds(nodes[position].get("timestamp"))
        start = (model_calls[0].start_time if model_calls else None) or previous or end
        start = start if end is None or start is None else min(start, end)
        yield Step(
            index=index,
            agent=agent,
            observation=[nodes[place].get("message") for place in inputs] or None,
            action=message or None,
            tokens=tokens,
            calls=(*model_calls, *tool_calls(message, answers, start_time=end, end_time=end)),
            start_time=start,
            end_time=end,
        )
        previous = end
    if not turns and calls:
        failed = calls[None]
        yield Step(
            agent=agent,
            calls=failed,
            start_time=failed[0].start_time,
            end_time=failed[-1].end_time,
            error_type=failed[-1].error_type,
            error_message=failed[-1].error_message,
        )


def _calls(trace: Mapping[str, Any], positions: Sequence[int]) -> dict[int | None, tuple[Call, ...]]:
    """Return the model's calls by the position of the message that they led to, failed ones before it."""
    by_position: dict[int | None, tuple[Call, ...]] = {}
    failed: tuple[Call, ...] = ()
    for entry in as_list(trace.get("calls")):
        call = as_mapping(entry)
        if call.get("node") in positions:
            position = call["node"]
            by_position[position] = (*by_position.get(position, ()), *failed, _call(call))
            failed = ()
        else:
            failed = (*failed, _call(call))
    if failed:
        last = positions[-1] if positions else None
        by_position[last] = (*by_position.get(last, ()), *failed)
    return by_position


def _call(call: Mapping[str, Any]) -> Call:
    sampling, usage = as_mapping(call.get("sampling")), as_mapping(call.get("usage"))
    prompt, cached = whole(usage.get("prompt_tokens")), whole(usage.get("cached_input_tokens")) or 0
    reason = text(call.get("finish_reason"))
    return Call(
        operation="chat",
        name=text(call.get("model")),
        parameters={name: sampling[name] for name in _PARAMETERS if sampling.get(name) is not None},
        finish_reasons=(reason,) if reason else (),
        input_tokens=None if prompt is None else prompt + cached,
        output_tokens=whole(usage.get("completion_tokens")),
        start_time=nanoseconds(as_mapping(call.get("time")).get("start")),
        end_time=nanoseconds(as_mapping(call.get("time")).get("end")),
        **_error([call["error"]] if call.get("error") else []),
    )


def _reward(trace: Mapping[str, Any]) -> Reward:
    """
    Return the reward of a trace, which is the sum of its scores times their weights.

    A score that is None was not computed: the reward is then partial, or has no value if all are None.
    With a score or a weight that is not a finite number it is an error.
    """
    rewards = as_mapping(trace.get("rewards"))
    if not rewards:
        return Reward()
    valid, statuses = assessed({name: as_mapping(item).get("score") for name, item in rewards.items()})
    weights, wrong = assessed({name: _weight(item) for name, item in rewards.items() if item is not None})
    is_wrong = bool(wrong) or "error" in statuses.values()
    total = sum(score * weights.get(name, 0.0) for name, score in valid.items()) if valid else None
    value = None if is_wrong else number(total)
    errors = as_list(trace.get("errors")) if trace.get("ok") is False else ()
    absent = "error" if errors else "missing"
    failure = "error" if valid or is_wrong else absent
    statuses = {name: absent if status == "missing" else status for name, status in statuses.items()}
    start, end = as_mapping(as_mapping(trace.get("timing")).get("scoring")), None
    judged = as_list(as_mapping(trace.get("info")).get("judge_calls"))
    end = nanoseconds(start.get("end"))
    return Reward(
        value=value,
        status="partial" if value is not None and statuses else "ok" if value is not None else failure,
        components=valid,
        component_statuses=statuses,
        weights=weights,
        evidence={"judge_calls": list(judged)} if judged else None,
        calls=tuple(_judge_call(as_mapping(call), end) for call in judged),
        start_time=nanoseconds(start.get("start")),
        end_time=end,
        **(_reward_error(errors) if statuses else {}),
    )


def _weight(reward: object) -> object:
    weight = as_mapping(reward).get("weight")
    return 1.0 if weight is None else weight


def _reward_error(errors: Sequence[Any]) -> dict[str, Any]:
    error = _error(errors)
    return {"error_type": error["error_type"], "error": error["error_message"]} if error else {}


def _judge_call(judged: Mapping[str, Any], end: int | None) -> Call:
    response = as_mapping(judged.get("response"))
    usage = as_mapping(response.get("usage"))
    return Call(
        operation="chat",
        name=text(as_mapping(judged.get("request")).get("model")) or text(judged.get("name")),
        response_model=text(response.get("model")),
        input_tokens=whole(usage.get("prompt_tokens")),
        output_tokens=whole(usage.get("completion_tokens")),
        start_time=end,
        end_time=end,
    )


def _metrics(trace: Mapping[str, Any]) -> dict[str, float]:
    metrics = as_mapping(trace.get("metrics"))
    return {name: figure for name, value in metrics.items() if (figure := number(value)) is not None}


def _advantage(trace: Mapping[str, Any]) -> float | None:
    """Return the advantage of the trace if all its sampled tokens have the same one."""
    nodes = [as_mapping(node) for node in as_list(trace.get("nodes"))]
    advantages = {value for node in nodes for value in as_list(node.get("advantages"))}
    return number(advantages.pop()) if len(advantages) == 1 else None


def _policy(trace: Mapping[str, Any]) -> str | None:
    model = text(as_mapping(as_mapping(trace.get("agent")).get("config")).get("model"))
    called = (text(as_mapping(call).get("model")) for call in as_list(trace.get("calls")))
    return model or next(filter(None, called), None)


def _cost(traces: Sequence[Mapping[str, Any]]) -> float | None:
    calls = [as_mapping(call).get("usage") for trace in traces for call in as_list(trace.get("calls"))]
    extra = [usage for trace in traces for usage in as_list(trace.get("extra_usage"))]
    costs = [number(as_mapping(usage).get("cost")) for usage in (*calls, *extra)]
    known_costs = [cost for cost in costs if cost is not None]
    return sum(known_costs) if known_costs else None


def _times(trace: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the start of a trace and the end of its last phase."""
    timing = as_mapping(trace.get("timing"))
    ends = [nanoseconds(as_mapping(phase).get("end")) for phase in timing.values()]
    return nanoseconds(timing.get("start")), max((end for end in ends if end is not None), default=None)


def _is_truncated(trace: Mapping[str, Any]) -> bool:
    """Return whether a limit ended the trace, by the rule of verifiers."""
    if trace.get("is_timeout") or trace.get("stop_condition") in _LIMITS:
        return True
    calls = [as_mapping(call) for call in as_list(trace.get("calls")) if not as_mapping(call).get("error")]
    return bool(calls) and calls[-1].get("finish_reason") == "length"


def _ending(record: Mapping[str, Any], traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return status, stop reason, flags and error of an episode."""
    errors = [*as_list(record.get("errors"))]
    if "traces" in record:
        errors = [error for trace in traces for error in as_list(trace.get("errors"))] + errors
    failed = record.get("ok") is False and bool(errors)
    is_truncated = bool(record.get("is_timeout")) or any(map(_is_truncated, traces))
    completed = record.get("ok") is True or all(
        trace.get("is_completed") or _reward(trace).value is not None for trace in traces
    )
    return {
        "status": "error" if failed else "completed" if completed else "aborted",
        "stop_reason": text(traces[0].get("stop_condition")) if len(traces) == 1 else None,
        "truncated": is_truncated if traces else None,
        "terminated": not is_truncated if completed and not failed and traces else None,
        **(_error(errors) if failed else {}),
    }


def _error(errors: Sequence[Any]) -> dict[str, Any]:
    """Return type and message of the last error."""
    if not errors:
        return {}
    last = as_mapping(errors[-1])
    return {"error_type": text(last.get("type")) or "error", "error_message": text(last.get("message"))}

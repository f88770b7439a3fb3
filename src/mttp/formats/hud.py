"""
HUD: the local telemetry of runs, JSON lines of spans with one step each, a file for each run.

A step of the agent is a step; the tools' answers and the user's messages before it are its observation. The
reward is the result of the task's evaluation with its tree of subscores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mttp.formats.fields import as_list, as_mapping, json_value, nanoseconds, number, text, trace_id, whole
from mttp.formats.json_records import json_lines
from mttp.formats.records import ImportedRecord, UnreadableRecord
from mttp.formats.sample import FileSample
from mttp.model.calls import Call
from mttp.model.episodes import Episode, Grade, Reward, Step, Tokens

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "HUD telemetry"
LACKS = ("groups and advantages", "the policy's version", "seeds", "steps of robots")
_SCHEMA, _PAYLOAD, _RUN = "hud.schema", "hud.payload", "hud.task_run_id"
_STEPS = "hud.step.v1"


def recognizes(sample: FileSample) -> bool:
    """Return whether the first span has the id of a run."""
    return _RUN in as_mapping(sample.row.get("attributes")) and "span_id" in sample.row


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each run that has a step of the agent or an evaluation."""
    runs: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for place, record in json_lines(path):
        if isinstance(record, UnreadableRecord):
            yield record
            continue
        attributes = as_mapping(as_mapping(record).get("attributes"))
        if text(attributes.get(_RUN)) is None:
            yield UnreadableRecord(place, "is not a span of a run")
        elif attributes.get(_SCHEMA) == _STEPS:
            runs[str(attributes[_RUN])].append(as_mapping(attributes.get(_PAYLOAD)))
    for run, payloads in runs.items():
        value = episode(run, payloads)
        if value.steps or value.reward.status != "missing":
            yield value


def episode(run: str, payloads: Sequence[Mapping[str, Any]]) -> Episode:
    """Return the episode of a run's steps, in any order."""
    ordered = sorted(payloads, key=lambda one: whole(one.get("step_id")) or 0)
    setup, evaluation = _task_call(ordered, "setup"), _task_call(ordered, "evaluate")
    steps = _steps(ordered)
    reward = _reward(evaluation)
    errors = [found for one in ordered if (found := text(one.get("error"))) is not None]
    failed = errors[-1] if errors and not steps else None
    times = [nanoseconds(one.get(name)) for one in ordered for name in ("started_at", "ended_at")]
    known = [time for time in times if time is not None]
    arguments = setup.get("arguments")
    named = text(setup.get("name")) or text(evaluation.get("name"))
    return Episode(
        id=run,
        trace_id=trace_id(run),
        env="hud",
        task=named,
        inputs=arguments,
        policy=next((call.name for step in steps for call in step.calls if call.operation == "chat"), None),
        steps=steps,
        step_count=len(steps),
        length=len(steps),
        status="error" if failed else "completed",
        error_type="error" if failed else None,
        error_message=failed,
        reward=reward,
        rewards=() if reward.status == "missing" else (reward,),
        return_=reward.value,
        return_basis=None if reward.value is None else "episode",
        metadata={"hud": {"errors": errors}} if errors else {},
        start_time=min(known, default=None),
        end_time=max(known, default=None),
    )


def _task_call(payloads: Sequence[Mapping[str, Any]], phase: str) -> Mapping[str, Any]:
    """Return the last call of the task in a phase: setup or evaluate."""
    calls = [as_mapping(one.get("task_call")) for one in payloads]
    return next((one for one in reversed(calls) if one.get("phase") == phase), {})


def _steps(payloads: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    steps: list[Step] = []
    before: list[Any] = []
    tools = {
        text(as_mapping(one.get("call")).get("id")): one for one in payloads if one.get("source") == "tool"
    }
    for one in payloads:
        source = one.get("source")
        if source in ("user", "system"):
            before += [_prompt(message, str(source)) for message in as_list(one.get("messages"))]
        elif source == "tool":
            before.append(_answer(one))
        elif source == "agent":
            steps.append(_step(one, len(steps), before, tools))
            before = []
    return tuple(steps)


def _step(
    agent: Mapping[str, Any], index: int, before: list[Any], tools: Mapping[Any, Mapping[str, Any]]
) -> Step:
    asked = [as_mapping(one) for one in as_list(agent.get("tool_calls"))]
    usage, start, end = as_mapping(agent.get("usage")), agent.get("started_at"), agent.get("ended_at")
    reason = text(agent.get("finish_reason"))
    model = Call(
        operation="chat",
        name=text(agent.get("model")),
        finish_reasons=(reason,) if reason else (),
        input_tokens=whole(usage.get("input_tokens", usage.get("prompt_tokens"))),
        output_tokens=whole(usage.get("output_tokens", usage.get("completion_tokens"))),
        start_time=nanoseconds(start),
        end_time=nanoseconds(end),
    )
    action: dict[str, Any] = {"role": "assistant", "content": agent.get("content")}
    if text(agent.get("reasoning")):
        action["reasoning_content"] = agent["reasoning"]
    if text(agent.get("refusal")):
        action["refusal"] = agent["refusal"]
    if asked:
        action["tool_calls"] = [
            {"id": one.get("id"), "function": {name: one.get(name) for name in ("name", "arguments")}}
            for one in asked
        ]
    return Step(
        index=index,
        observation=before or None,
        action=action,
        tokens=_tokens(as_mapping(agent.get("sample"))),
        calls=(model, *(_tool_call(one, as_mapping(tools.get(text(one.get("id"))))) for one in asked)),
        error_type="error" if text(agent.get("error")) else None,
        error_message=text(agent.get("error")),
        start_time=nanoseconds(start),
        end_time=nanoseconds(end),
    )


def _tool_call(call: Mapping[str, Any], answered: Mapping[str, Any]) -> Call:
    result = as_mapping(answered.get("result"))
    return Call(
        operation="execute_tool",
        name=text(call.get("name")),
        id=text(call.get("id")),
        arguments=json_value(call.get("arguments")),
        result=_content(result) or None,
        error_type="tool_error" if result.get("isError") else None,
        start_time=nanoseconds(answered.get("started_at")),
        end_time=nanoseconds(answered.get("ended_at")),
    )


def _answer(tool: Mapping[str, Any]) -> dict[str, Any]:
    identity = text(as_mapping(tool.get("call")).get("id"))
    return {"role": "tool", "tool_call_id": identity, "content": _content(as_mapping(tool.get("result")))}


def _content(result: Mapping[str, Any]) -> str:
    """Return the texts of a tool's result; other blocks by their type."""
    blocks = [as_mapping(one) for one in as_list(result.get("content"))]
    return "\n".join(str(one["text"]) if "text" in one else f"({one.get('type')})" for one in blocks)


def _prompt(message: Any, source: str) -> dict[str, Any]:
    given = as_mapping(message)
    content = given.get("content")
    block = as_mapping(content)
    role = "system" if source == "system" else str(given.get("role", "user"))
    return {"role": role, "content": block.get("text", content)}


def _tokens(sample: Mapping[str, Any]) -> Tokens | None:
    """Return the tokens of a trainable model's turn."""
    ids: Any = list(as_list(sample.get("output_token_ids")))
    prompt: Any = list(as_list(sample.get("prompt_token_ids"))) or None
    logprobs: Any = list(as_list(sample.get("output_logprobs"))) or None
    return Tokens(ids=ids, prompt_ids=prompt, logprobs=logprobs) if ids else None


def _reward(evaluation: Mapping[str, Any]) -> Reward:
    """
    Return the reward of the evaluation; one that failed is an error and has no value.

    Subscores are components with their weights, and grades with their children.
    """
    result = as_mapping(evaluation.get("result"))
    if not result:
        return Reward()
    given = result.get("score", result.get("reward"))
    value = number(given)
    scores = [as_mapping(one) for one in as_list(result.get("subscores"))]
    values = {str(one["name"]): number(one.get("value")) for one in scores}
    facts: dict[str, Any] = {
        "explanation": text(result.get("content")),
        "components": {name: found for name, found in values.items() if found is not None},
        "weights": {str(one["name"]): _weight(one) for one in scores},
        "grades": tuple(map(_grade, scores)),
        "evidence": as_mapping(result.get("info")) or None,
    }
    if result.get("isError") or value is None:
        return Reward(status="error", raw=None if value is not None else str(given), **facts)
    return Reward(value=value, status="ok", **facts)


def _weight(score: Mapping[str, Any]) -> float:
    weight = number(score.get("weight"))
    return 1.0 if weight is None else weight


def _grade(score: Mapping[str, Any]) -> Grade:
    value, weight = number(score.get("value")), _weight(score)
    return Grade(
        name=str(score.get("name")),
        kind="penalty" if weight < 0 else "verifier",
        value=value,
        status="missing" if value is None else "ok",
        weight=weight,
        contribution=None if value is None else value * weight,
        evidence=as_mapping(score.get("info")) or None,
        parts=tuple(_grade(as_mapping(one)) for one in as_list(score.get("children"))),
    )

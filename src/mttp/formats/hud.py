"""
HUD: the spans that it writes to a folder as JSON lines, one file for each run.

HUD's trace of a run has a step for each model turn, tool call and phase of the task; an episode has a step
for each model turn, or for each control tick of a robot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.completions import status_of
from mttp.formats.fields import as_list, as_mapping, nanoseconds, number, text, trace_id, whole
from mttp.formats.records import ImportedRecord, UnreadableRecord
from mttp.formats.sample import FileSample
from mttp.model.calls import Call
from mttp.model.episodes import Episode, Reward, Step, Tokens
from mttp.model.scorings import Grade

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "HUD spans"
LACKS = (
    "the environment's name",
    "groups and jobs",
    "stop reasons",
    "seeds",
    "camera frames of robots",
    "kinds of graders",
)
_RUN, _SCHEMA, _PAYLOAD = "hud.task_run_id", "hud.schema", "hud.payload"
_STATUSES = {"completed": "completed", "error": "error", "cancelled": "aborted"}
_UNGRADED = "not graded"
"""The content of the grade of a run that was not graded."""


def recognizes(sample: FileSample) -> bool:
    """Return whether the first row is a span with the id of a run of HUD."""
    return _RUN in as_mapping(sample.row.get("attributes"))


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each run, in the order of their first spans."""
    runs: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for place, span in json_records.json_lines(path):
        attributes = as_mapping(as_mapping(span).get("attributes"))
        if isinstance(span, UnreadableRecord):
            yield span
        elif (run := text(attributes.get(_RUN))) is None:
            yield UnreadableRecord(place, f"is not a span of HUD: its attributes have no {_RUN}")
        else:
            places.setdefault(run, place)
            record = runs.setdefault(run, {"trace_id": run, "steps": [], "spans": []})
            is_step = _SCHEMA in attributes
            record["steps" if is_step else "spans"].append(attributes.get(_PAYLOAD) if is_step else span)
    yield from json_records.episodes(((places[run], record) for run, record in runs.items()), episode)


def episode(record: Mapping[str, Any]) -> Episode:
    """
    Return the episode of a run.

    `record` has the fields of HUD's trace (`trace_id`, `steps`, `status`, `stop_reason`, `content`, `extra`),
    and, where they are known, `env`, `slug`, `group_id`, `job_id`, `runtime`, `grade` and `spans`.
    Raises ValueError for a run without an id.
    """
    run = text(record.get("trace_id"))
    if run is None:
        raise ValueError("has no trace_id, so it is not a run of HUD")
    entries = [as_mapping(step) for step in as_list(record.get("steps"))]
    setup = next((call for step in entries if (call := _phase(step, "setup"))), {})
    turns = _Turns()
    for entry in entries:
        turns.add(entry)
    reward = _reward(entries, as_mapping(record.get("grade")))
    status = _STATUSES.get(str(record.get("status"))) or _status(
        entries, is_rewarded=reward.value is not None
    )
    error = next((step["error"] for step in reversed(entries) if text(step.get("error"))), None)
    stop = text(record.get("stop_reason"))
    truncated = None if stop is None else stop != "done"
    costs = [cost for step in entries if (cost := _cost(step)) is not None]
    times = [time for step in entries for time in _times(step).values() if time is not None]
    models = [model for step in entries if (model := text(step.get("model")))]
    return Episode(
        trace_id=trace_id(run) if len(run.replace("-", "")) == 32 else trace_id("hud", run),
        env=text(record.get("env")) or "",
        task=text(record.get("slug")) or text(setup.get("name")),
        group=text(record.get("group_id")),
        policy=models[-1] if models else None,
        inputs=setup.get("arguments") or None,
        metadata={"hud": _rest(record)},
        steps=tuple(turns.steps),
        step_count=len(turns.steps),
        length=len(turns.steps),
        final_observation=turns.pending or None,
        status=status,
        error_type="error" if status == "error" else None,
        error_message=error if status == "error" else None,
        stop_reason=stop,
        truncated=truncated,
        terminated=not truncated if status == "completed" and truncated is not None else None,
        cost_usd=sum(costs) if costs else None,
        reward=reward,
        rewards=() if reward.status == "missing" else (reward,),
        return_=reward.value,
        return_basis=None if reward.value is None else "episode",
        start_time=min(times, default=None),
        end_time=max(times, default=None),
        timing="live" if times else "batch",
    )


class _Turns:
    """Builds the steps of an episode from those of a trace."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.pending: list[Any] = []
        """The messages since the last step."""

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add one step of a trace."""
        source = entry.get("source")
        if source == "user":
            self.pending += [
                {"role": message.get("role"), "content": _content([message.get("content")])}
                for message in map(as_mapping, as_list(entry.get("messages")))
            ]
        elif source == "agent":
            self._append(entry, action=_action(entry), tokens=_tokens(entry), calls=(_model_call(entry),))
        elif source == "tool":
            self._called(_tool_call(entry))
        elif source == "subagent":
            self._called(_agent_call(entry))
        elif source == "observation":
            self._append(entry, observation=entry.get("state"), metadata={"tick": entry.get("tick")})
        elif source == "inference":
            self._inferred(entry)

    def _append(self, entry: Mapping[str, Any], **facts: Any) -> None:
        facts = {"observation": self.pending or None} | facts
        error = text(entry.get("error"))
        facts |= {"error_type": "error", "error_message": error} if error else {}
        self.steps.append(Step(index=len(self.steps), **facts, **_times(entry)))
        self.pending = []

    def _called(self, call: Call) -> None:
        """Add a call to the last turn, and its result to what the next turn observes."""
        if not self.steps:
            self._append({}, calls=(call,))
        else:
            last = self.steps[-1]
            self.steps[-1] = replace(last, calls=(*last.calls, call), end_time=call.end_time or last.end_time)
        self.pending.append({"role": "tool", "tool_call_id": call.id, "content": call.result})

    def _inferred(self, entry: Mapping[str, Any]) -> None:
        """Add the actions that a robot's policy inferred to the step of their tick."""
        ticks = [step.metadata.get("tick") for step in self.steps[-1:]]
        if ticks != [entry.get("tick")]:
            self._append(entry, action=entry.get("chunk"), metadata={"tick": entry.get("tick")})
        else:
            self.steps[-1] = replace(self.steps[-1], action=entry.get("chunk"))


def _phase(entry: Mapping[str, Any], phase: str) -> Mapping[str, Any]:
    """Return the call of a phase of the task; empty for another step."""
    call = as_mapping(entry.get("task_call"))
    return call if call.get("phase") == phase else {}


def _status(entries: Sequence[Mapping[str, Any]], *, is_rewarded: bool) -> str:
    """Return the status of a run whose file does not state it; a run with a reward was trained on."""
    if any(entry.get("source") == "system" and entry.get("error") for entry in entries):
        return "error"
    is_evaluated = is_rewarded or any(_phase(entry, "evaluate") for entry in entries)
    return "completed" if is_evaluated else "aborted"


def _rest(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an episode has no place for."""
    names = ("trace_id", "job_id", "runtime", "content", "extra", "spans")
    return {name: record[name] for name in names if record.get(name)}


def _cost(entry: Mapping[str, Any]) -> float | None:
    """Return the cost of a turn in US dollars; None if it is not stated."""
    return number(as_mapping(entry.get("usage")).get("cost_usd"))


def _times(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return start and end; a step without a start has its end for both, as HUD's spans have."""
    end = nanoseconds(entry.get("ended_at"))
    return {"start_time": nanoseconds(entry.get("started_at")) or end, "end_time": end}


# Messages and calls.


def _content(blocks: Sequence[Any]) -> Any:
    """Return the text of blocks that are all text; else the blocks."""
    texts = [block["text"] for block in map(as_mapping, blocks) if isinstance(block.get("text"), str)]
    return "\n".join(texts) if len(texts) == len(blocks) else list(blocks)


def _action(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn as a message in the form of chat APIs."""
    names = ("reasoning", "refusal", "citations", "done", "stop_reason")
    calls = [
        {
            "id": call.get("id"),
            "type": "function",
            "function": {"name": call.get("name"), "arguments": call.get("arguments")},
        }
        for call in map(as_mapping, as_list(entry.get("tool_calls")))
    ]
    return {
        "role": "assistant",
        "content": entry.get("content"),
        **({"tool_calls": calls} if calls else {}),
        **{name: entry[name] for name in names if entry.get(name)},
    }


def _model_call(entry: Mapping[str, Any]) -> Call:
    usage = as_mapping(entry.get("usage"))
    reason, error = text(entry.get("finish_reason")), text(entry.get("error"))
    return Call(
        operation="chat",
        name=text(entry.get("model")),
        finish_reasons=() if reason is None else (reason,),
        input_tokens=whole(usage.get("prompt_tokens")),
        output_tokens=whole(usage.get("completion_tokens")),
        error_type="error" if error else None,
        error_message=error,
        **_times(entry),
    )


def _tool_call(entry: Mapping[str, Any]) -> Call:
    call, result = as_mapping(entry.get("call")), as_mapping(entry.get("result"))
    content = _content(as_list(result.get("content")))
    error = text(entry.get("error"))
    failed = bool(result.get("isError")) or error is not None
    return Call(
        operation="execute_tool",
        name=text(call.get("name")),
        id=text(call.get("id")),
        arguments=call.get("arguments"),
        result=content or result.get("structuredContent"),
        error_type="tool_error" if failed else None,
        error_message=(error or str(content)) if failed else None,
        **_times(entry),
    )


def _agent_call(entry: Mapping[str, Any]) -> Call:
    """Return the call of another agent, whose trace is the result."""
    nested = as_mapping(entry.get("subagent"))
    failed = nested.get("status") == "error"
    return Call(
        operation="invoke_agent",
        result=dict(nested),
        error_type="error" if failed else None,
        error_message=text(entry.get("error")) if failed else None,
        **_times(entry),
    )


def _tokens(entry: Mapping[str, Any]) -> Tokens | None:
    sample = as_mapping(entry.get("sample"))
    ids, logprobs = as_list(sample.get("output_token_ids")), as_list(sample.get("output_logprobs"))
    if not ids:
        return None
    arrays: Any = {"ids": ids, "prompt_ids": as_list(sample.get("prompt_token_ids")) or None}
    return Tokens(logprobs=logprobs or None, **arrays)  # type: ignore[arg-type]  # lists become arrays


# Grades.


def _reward(entries: Sequence[Mapping[str, Any]], grade: Mapping[str, Any]) -> Reward:
    """Return the grade of the last evaluation; missing without one, and an error if it failed."""
    revoked = grade.get("is_error") and grade.get("content") == _UNGRADED
    for entry in reversed(entries):
        call, error = _phase(entry, "evaluate"), text(entry.get("error"))
        if error and error.startswith("[grading]"):
            return Reward(status="error", error=error, error_type="error", **_times(entry))
        if call and not revoked:
            return _graded(str(call.get("name")), as_mapping(call.get("result")), _times(entry))
        if call or _phase(entry, "setup"):  # of a verifier that has not evaluated
            return Reward()
    return Reward()


def _graded(name: str, result: Mapping[str, Any], times: Mapping[str, Any]) -> Reward:
    grades = _grades(as_list(result.get("subscores")))
    value = result.get("score", result.get("reward"))
    score, failed = number(value), bool(result.get("isError"))
    invalid = score is None and value is not None
    facts: dict[str, Any] = {
        "components": {grade.name: grade.value for grade in grades if grade.value is not None},
        "component_statuses": {grade.name: grade.status for grade in grades if grade.value is None},
        "weights": {grade.name: grade.weight for grade in grades if grade.weight is not None},
        "grades": grades,
        "grader": name,
        "explanation": text(result.get("content")),
        "evidence": result.get("info") or None,
        **times,
    }
    if failed or invalid:
        reason = facts["explanation"] if failed else "the score is not a finite number"
        raw = str(value) if invalid else None
        return Reward(status="error", error=reason, error_type="error", raw=raw, **facts)
    return Reward(value=score, **facts)


def _grades(subscores: Sequence[Any]) -> tuple[Grade, ...]:
    """Return the tree of subscores; equal names of one parent are numbered, as HUD numbers them."""
    grades: list[Grade] = []
    names: set[str] = set()
    for subscore in map(as_mapping, subscores):
        value, weight = number(subscore.get("value")), number(subscore.get("weight"))
        name = stem = text(subscore.get("name")) or "subscore"
        repeat = 1
        while name in names:
            repeat += 1
            name = f"{stem}-{repeat}"
        names.add(name)
        grades.append(
            Grade(
                name=name,
                kind="penalty" if weight is not None and weight < 0 else "rubric",
                value=value,
                status=status_of(subscore.get("value")),
                weight=weight,
                evidence=subscore.get("info") or None,
                parts=_grades(as_list(subscore.get("children"))),
            )
        )
    return tuple(grades)

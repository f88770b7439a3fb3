"""
Inspect AI: evaluation logs, `.eval` or JSON; a sample is an episode, the log is an evaluation.

The reward of an episode is the score of the headline scorer, as Inspect itself reads it: C is 1, P is 0.5,
I and N are 0. The other scores are scorings, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mttp.errors import ReadError
from mttp.formats import json_records
from mttp.formats.completions import assessed, scored
from mttp.formats.fields import as_list, as_mapping, json_value, nanoseconds, number, text, trace_id, whole
from mttp.formats.records import ImportedRecord, UnreadableRecord
from mttp.formats.sample import FileSample, sample
from mttp.formats.zip_files import json_member
from mttp.model.calls import Call
from mttp.model.episodes import Episode, Reward, Step, Tokens
from mttp.model.evaluations import Evaluation, TaskResult

__all__ = [
    "LACKS",
    "TITLE",
    "episode",
    "evaluation",
    "failed_scoring",
    "read",
    "recognizes",
    "result",
    "scoring",
]

TITLE = "Inspect logs"
LACKS = ("token ids", "rewards of steps", "versions of scorers")
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_VERDICTS = {"C": "pass", "I": "fail"}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_STATUSES = {"success": "completed", "cancelled": "aborted", "error": "error"}
_ATTACHMENT = "attachment://"
_START = "_journal/start.json"
"""The member of an archive that has `eval` and `plan` from the beginning; `header.json` is written last."""
_RECOGNIZED = 1 << 20
"""Characters of a document that is cut off by which it is recognized."""
_PARAMETERS = ("temperature", "top_p", "top_k", "max_tokens", "seed")


def recognizes(sample: FileSample) -> bool:
    """Return whether a zip file has the members of a log, or a document, which may be cut off, its fields."""
    if sample.members:
        has_samples = any(member.startswith("samples/") for member in sample.members)
        return _START in sample.members or ("header.json" in sample.members and has_samples)
    if sample.row or sample.columns:
        return {"eval", "plan", "status", "version"} <= sample.row.keys()
    with sample.path.open(encoding="utf-8", errors="replace") as file:
        log = _beginning(file.read(_RECOGNIZED))
    return "version" in log and {"task", "run_id"} <= as_mapping(log.get("eval")).keys()


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield the episode of each sample, then the evaluation with their results."""
    members = sample(path).members
    log = _log(path, members)
    if not isinstance(log, Mapping) or not isinstance(log.get("eval"), Mapping):
        raise ReadError(f"{path} is not a log of Inspect: it has no `eval`")
    results: list[TaskResult] = []
    for place, document in _samples(path, members, log):
        if isinstance(document, UnreadableRecord):
            yield document
            continue
        try:
            value = episode(log["eval"], as_mapping(document), log)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            yield UnreadableRecord(place, f"{type(error).__name__}: {error}")
        else:
            if log.get("status") == "started" and not (value.end_time or value.error_type):
                value = replace(value, status="unfinished", terminated=None, truncated=None)
            results.append(result(value))
            yield value
    yield evaluation(log, results)


def _log(path: Path, members: Sequence[str]) -> Any:
    """Return the log without the samples of an archive; one that was killed has the status `started`."""
    if members and _START in members and "header.json" not in members:
        return {**as_mapping(json_member(path, _START)), "status": "started"}
    if members:
        return json_member(path, "header.json")
    try:
        return json_records.json_document(path)
    except ReadError:
        log = _beginning(path.read_text("utf-8", errors="replace"))
        if "eval" not in log:
            raise
        return {**log, "status": "started"}


def _beginning(document: str) -> dict[str, Any]:
    """Return the complete fields of an object that is cut off, with the complete items of the last one."""
    fields: dict[str, Any] = {}
    position = document.find("{") + 1
    while position and (name := _next_value(document, position)) is not None:
        value = _next_value(document, name[1])
        if value is None:
            items = [item for item, _ in _items(document, name[1])]
            return {**fields, str(name[0]): items} if items else fields
        fields[str(name[0])], position = value
    return fields


def _items(document: str, position: int) -> Iterator[tuple[Any, int]]:
    """Yield the complete items of a list that begins after a separator, with their ends."""
    position = _after_separators(document, position)
    position = position + 1 if document[position : position + 1] == "[" else 0
    while position and (item := _next_value(document, position)) is not None:
        yield item
        position = item[1]


def _next_value(document: str, position: int) -> tuple[Any, int] | None:
    """Return the next complete value after a separator, and its end; None if there is none."""
    try:
        return json.JSONDecoder().raw_decode(document, _after_separators(document, position))
    except (ValueError, RecursionError):
        return None


def _after_separators(document: str, position: int) -> int:
    while document[position : position + 1] in (" ", "\n", "\r", "\t", ",", ":"):
        position += 1
    return position


def _samples(path: Path, members: Sequence[str], log: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if not members:
        yield from ((f"sample {number + 1}", item) for number, item in enumerate(as_list(log.get("samples"))))
    for name in sorted(name for name in members if name.startswith("samples/") and name.endswith(".json")):
        try:
            yield name, json_member(path, name)
        except ReadError as error:
            yield name, UnreadableRecord(name, str(error).removeprefix(f"{path}: {name}: "))


def episode(
    spec: Mapping[str, Any], sample: Mapping[str, Any], log: Mapping[str, Any] | None = None
) -> Episode:
    """
    Return the episode of a sample.

    `spec` is the log's `eval`. Raises ValueError for a sample without an id.
    """
    if sample.get("id") is None:
        raise ValueError("has no id, so it is not a sample of Inspect")
    events = [as_mapping(event) for event in as_list(sample.get("events"))]
    attachments = as_mapping(sample.get("attachments"))
    messages = [as_mapping(_attached(message, attachments)) for message in as_list(sample.get("messages"))]
    scorings = _scorings(sample, events, _headline(spec, log))
    reward = scorings[-1] if scorings else Reward()
    steps = _steps(messages, events)
    error, limit = as_mapping(sample.get("error")), as_mapping(sample.get("limit"))
    epoch = whole(sample.get("epoch")) or 1
    key = sample.get("uuid") or [spec.get("eval_id"), sample["id"], epoch]
    return Episode(
        id=text(sample.get("uuid")) or "",
        trace_id=trace_id("inspect", key),
        env=text(spec.get("task")) or "",
        env_version=text(spec.get("task_version")),
        task=str(sample["id"]),
        attempt=epoch - 1,
        policy=text(spec.get("model")),
        seed=as_mapping(spec.get("model_generate_config")).get("seed"),
        split=text(as_mapping(spec.get("dataset")).get("name")),
        inputs={"input": _attached(sample.get("input"), attachments), "target": sample.get("target")},
        metadata={**as_mapping(sample.get("metadata")), "inspect": _rest(spec, sample)},
        steps=steps,
        step_count=len(steps),
        length=len(steps),
        status="error" if error else "completed",
        error_type=_exception(error) if error else None,
        error_message=text(error.get("message")),
        truncated=bool(limit) if not error else None,
        terminated=not limit if not error else None,
        stop_reason=f"{limit['type']}_limit" if limit.get("type") else None,
        outcome={"pass": "success", "fail": "failure"}.get(reward.verdict or "", "unknown"),
        reward=reward,
        rewards=tuple(scorings),
        return_=reward.value,
        return_basis=None if reward.value is None else "episode",
        start_time=nanoseconds(sample.get("started_at")),
        end_time=nanoseconds(sample.get("completed_at")),
    )


def evaluation(log: Mapping[str, Any], results: Sequence[TaskResult]) -> Evaluation:
    """Return the evaluation of a log; metrics are named as in Inspect: `scorer/metric`."""
    spec, summary = as_mapping(log.get("eval")), as_mapping(log.get("results"))
    dataset, config = as_mapping(spec.get("dataset")), as_mapping(spec.get("config"))
    ids = [str(sample_id) for sample_id in as_list(dataset.get("sample_ids"))]
    metrics = {
        f"{score.get('name')}/{name}": value
        for score in map(as_mapping, as_list(summary.get("scores")))
        for name, metric in as_mapping(score.get("metrics")).items()
        if (value := number(as_mapping(metric).get("value"))) is not None
    }
    return Evaluation(
        id=text(spec.get("eval_id")) or "",
        suite=text(spec.get("task")) or "inspect",
        suite_version=text(spec.get("task_version")),
        tasks=tuple(ids) or tuple(dict.fromkeys(task_result.task for task_result in results)),
        samples=max([whole(config.get("epochs")) or 1, *(task_result.sample + 1 for task_result in results)]),
        policy=text(spec.get("model")),
        tags={"inspect.run_id": str(spec.get("run_id")), "inspect.status": str(log.get("status"))},
        status=_STATUSES.get(str(log.get("status")), "unfinished"),
        error_message=text(as_mapping(log.get("error")).get("message")),
        results=tuple(results),
        metrics=metrics,
        metadata={
            "inspect": {name: log[name] for name in ("eval", "plan", "stats", "reductions") if log.get(name)}
        },
    )


def result(episode: Episode) -> TaskResult:
    """Return the result of a sample in its evaluation."""
    reward = episode.reward
    failed = reward.value is None and (episode.status == "error" or reward.status == "error")
    outcome = "scored" if reward.value is not None else "errored" if failed else "skipped"
    return TaskResult(
        task=str(episode.task),
        sample=episode.attempt or 0,
        outcome=outcome,
        score=reward.value,
        passed=None if reward.verdict is None else reward.verdict == "pass",
        duration=episode.duration,
        error=(episode.error_message or reward.error) if failed else None,
        error_type=(episode.error_type or reward.error_type) if failed else None,
        episode=episode.trace_id,
    )


def _exception(error: Mapping[str, Any]) -> str:
    """Return the class of an exception, of which a log has the `repr`."""
    match = re.match(r"(\w+)\(", str(error.get("message")))
    return match[1] if match else "error"


def _rest(spec: Mapping[str, Any], sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an episode has no place for."""
    names = ("epoch", "store", "choices", "files", "sandbox", "working_time", "total_time", "error_retries")
    facts = {name: sample[name] for name in names if sample.get(name)}
    return {"eval_id": spec.get("eval_id"), "run_id": spec.get("run_id"), **facts}


def _headline(spec: Mapping[str, Any], log: Mapping[str, Any] | None) -> str | None:
    """Return the name of the scorer whose score is the reward: the log's headline, else the first scorer."""
    headline = as_mapping(as_mapping(as_mapping(log).get("results")).get("headline"))
    first = as_mapping(next(iter(as_list(spec.get("scorers"))), None))
    return text(headline.get("scorer")) or text(first.get("name"))


def _scorings(
    sample: Mapping[str, Any], events: Sequence[Mapping[str, Any]], headline: str | None
) -> list[Reward]:
    """Return a scoring for each scorer, that of the headline last."""
    scores = {name: as_mapping(score) for name, score in as_mapping(sample.get("scores")).items()}
    last = headline if headline in scores else next(iter(scores), None)
    names = [*(name for name in scores if name != last), *([last] if last in scores else [])]
    times = {
        str(event.get("scorer")): nanoseconds(event.get("timestamp"))
        for event in events
        if event.get("event") == "score"
    }
    latest = max((time for time in times.values() if time is not None), default=None)
    times[str(last)] = latest  # scorings are read in order of time
    return [scoring(str(name), scores[str(name)], times.get(str(name))) for name in names]


def failed_scoring(name: str, error: BaseException) -> Reward:
    """Return the scoring of a scorer that raised."""
    return Reward(status="error", grader=name, error_type=type(error).__name__, error=str(error))


def scoring(name: str, score: Mapping[str, Any], time: int | None = None) -> Reward:
    """Return the scoring of a scorer; a score of several values has them as components and no value."""
    value = score.get("value")
    facts: dict[str, Any] = {
        "grader": name,
        "grader_kind": "judge" if name.startswith("model_graded") else None,
        "label": value if isinstance(value, str) else None,
        "verdict": _VERDICTS.get(value) if isinstance(value, str) else None,
        "explanation": text(score.get("explanation")),
        "evidence": {key: score[key] for key in ("answer", "metadata") if score.get(key) is not None} or None,
        "start_time": time,
        "end_time": time,
    }
    if isinstance(value, (Mapping, list)):
        parts = value if isinstance(value, Mapping) else {str(key): item for key, item in enumerate(value)}
        known, absent = assessed({key: _number(part) for key, part in parts.items()})
        status = "error" if "error" in absent.values() else "missing"
        return Reward(status=status, components=known, component_statuses=absent, **facts)
    return replace(scored(_number(value)), **facts)


def _number(value: object) -> float | None:
    """
    Return a score's value as Inspect's `value_to_float` does, which may be infinite.

    None for another text, and for NaN, which is Inspect's value of what was not scored.
    """
    if isinstance(value, str):
        word = value.strip().lower()
        known = _LETTERS.get(value, _WORDS.get(word))
        if known is not None:
            return known
        try:
            value = float(word)
        except ValueError:
            return None
    return value if isinstance(value, (int, float)) and value == value else None


def _steps(messages: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Return a step for each message that the model generated, with its call and those of its tools."""
    models = {
        as_mapping(as_mapping(choice).get("message")).get("id"): (event, as_mapping(choice))
        for event in events
        if event.get("event") == "model"
        for choice in as_list(as_mapping(event.get("output")).get("choices"))
    }
    tools = {event.get("id"): event for event in events if event.get("event") == "tool"}
    steps: list[Step] = []
    before: list[Any] = []
    for message in messages:
        if message.get("role") != "assistant" or message.get("source") not in ("generate", None):
            before.append(_plain(message))
            continue
        event, choice = models.get(message.get("id"), ({}, {}))
        asked = [as_mapping(tool_call) for tool_call in as_list(message.get("tool_calls"))]
        calls = [_model_call(event)] if event else []
        calls += [_tool_call(tool_call, as_mapping(tools.get(tool_call.get("id")))) for tool_call in asked]
        steps.append(
            Step(
                index=len(steps),
                observation=before or None,
                action=_plain(message),
                tokens=_tokens(choice),
                calls=tuple(calls),
                start_time=nanoseconds(event.get("timestamp")),
                end_time=max((call.end_time for call in calls if call.end_time), default=None),
            )
        )
        before = []
    return tuple(steps)


def _model_call(event: Mapping[str, Any]) -> Call:
    output, config = as_mapping(event.get("output")), as_mapping(event.get("config"))
    usage = as_mapping(output.get("usage"))
    reasons = [text(as_mapping(choice).get("stop_reason")) for choice in as_list(output.get("choices"))]
    error = text(event.get("error"))
    return Call(
        operation="chat",
        name=text(event.get("model")),
        response_model=text(output.get("model")),
        parameters={name: config[name] for name in _PARAMETERS if config.get(name) is not None},
        finish_reasons=tuple(reason for reason in reasons if reason),
        input_tokens=whole(usage.get("input_tokens")),
        output_tokens=whole(usage.get("output_tokens")),
        error_type="error" if error else None,
        error_message=error,
        start_time=nanoseconds(event.get("timestamp")),
        end_time=nanoseconds(event.get("completed")),
    )


def _tool_call(asked: Mapping[str, Any], event: Mapping[str, Any]) -> Call:
    error = as_mapping(event.get("error"))
    return Call(
        operation="execute_tool",
        name=text(asked.get("function")),
        id=text(asked.get("id")),
        arguments=asked.get("arguments"),
        result=event.get("result"),
        error_type=text(error.get("type")),
        error_message=text(error.get("message")),
        start_time=nanoseconds(event.get("timestamp")),
        end_time=nanoseconds(event.get("completed")),
    )


def _tokens(choice: Mapping[str, Any]) -> Tokens | None:
    entries = [as_mapping(entry) for entry in as_list(as_mapping(choice.get("logprobs")).get("content"))]
    logprobs: Any = [logprob for entry in entries if (logprob := number(entry.get("logprob"))) is not None]
    return (
        Tokens(logprobs=logprobs, count=len(entries)) if entries and len(logprobs) == len(entries) else None
    )


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the form of chat APIs: a tool call has a function with name and arguments."""
    plain = {
        key: value for key, value in message.items() if key not in ("id", "source") and value is not None
    }
    calls = [as_mapping(call) for call in as_list(plain.get("tool_calls"))]
    if calls:
        plain["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call.get("function"), "arguments": json_value(call.get("arguments"))},
            }
            for call in calls
        ]
    return plain


def _attached(value: Any, attachments: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a value whose long texts, which a log keeps apart, are in their places."""
    if not attachments or depth > 20:
        return value
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, Mapping):
        return {key: _attached(item, attachments, depth + 1) for key, item in value.items()}
    return [_attached(item, attachments, depth + 1) for item in value] if isinstance(value, list) else value

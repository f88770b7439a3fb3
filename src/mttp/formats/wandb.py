"""
Weights & Biases: tables of completions, as TRL and verl log them, and calls that Weave exports as JSON lines.

A row of a table is an episode; so is a trace of Weave, whose steps are its model calls.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mttp.formats import json_records, trl
from mttp.formats.completions import completion_episode, group_id, scored
from mttp.formats.fields import as_list, as_mapping, nanoseconds, number, text, trace_id, whole
from mttp.formats.records import ImportedRecord, UnreadableRecord
from mttp.formats.sample import FileSample
from mttp.model.calls import Call
from mttp.model.chat import new_messages
from mttp.model.episodes import Episode, Reward, Step

__all__ = ["LACKS", "TITLE", "read", "recognizes"]

TITLE = "W&B tables and Weave calls"
LACKS = (
    "tokens and log probabilities",
    "advantages, unless a table has them",
    "seeds",
    "rewards of Weave's calls",
)
_TRL = {"prompt", "completion", "advantage"}
_SAMPLE = re.compile(r"(input|output|score)_(\d+)")
"""A column of the table that verl logs, with several samples in a row."""
_WEAVE = {"op_name", "trace_id", "started_at", "inputs"}


def recognizes(sample: FileSample) -> bool:
    """Return whether the first object is a table of completions, or a call of Weave."""
    columns = {str(column) for column in as_list(sample.row.get("columns"))}
    is_table = isinstance(sample.row.get("data"), list) and (columns >= _TRL or "input_1" in columns)
    return is_table or sample.row.keys() >= _WEAVE


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each sample of a table, or for each trace of Weave with a model call."""
    first = json_records.first_record(path)
    if "columns" in first:
        yield from _of_table(path)
    else:
        yield from _traces(path)


def _of_table(path: Path) -> Iterator[ImportedRecord]:
    """Yield the episodes of a table; the run's summary of metrics names the reward functions of TRL."""
    table = json_records.json_document(path)
    rows = [*_rows(path, table)]
    typical: dict[str, Any] = {}
    for _, row in rows:
        for name, value in as_mapping(row).items():
            if typical.get(name) is None or isinstance(value, float):
                typical[name] = value
    columns = trl.reward_columns(typical, [path.parent.parent.parent / "wandb-summary.json"])
    yield from json_records.episodes(iter(rows), partial(_of_row, columns=columns))


def _rows(path: Path, table: object) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a table by column, and each sample of a row with several."""
    columns = [str(name) for name in as_list(as_mapping(table).get("columns"))]
    for number_, values in enumerate(as_list(as_mapping(table).get("data")), 1):
        place = f"row {number_}"
        if not isinstance(values, list) or len(values) != len(columns):
            yield place, UnreadableRecord(place, f"does not have {len(columns)} values")
            continue
        row: dict[str, Any] = dict(zip(columns, values, strict=True))
        named = f"{'/'.join(path.parts[-3:])} {place}"
        samples: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for column, value in row.items():
            match = _SAMPLE.fullmatch(column)
            if match is not None:
                samples[match[2]][match[1]] = value
        if not samples:
            yield place, {**row, "_place": named}
        for sample, fields in samples.items():
            yield (
                f"{place}, sample {sample}",
                {**fields, "step": row.get("step"), "_place": f"{named} {sample}"},
            )


def _of_row(row: Mapping[str, Any], columns: trl.RewardColumns) -> Episode:
    if row.keys() >= _TRL:
        return trl.episode(row, columns)
    step = whole(row.get("step"))
    return completion_episode(
        "wandb",
        [row["_place"], row["input"], row["output"]],
        prompt=row["input"],
        completion=row["output"],
        reward=scored(row.get("score")),
        task=str(row["input"])[:500],
        group=group_id(step, row["input"]),
        policy_update_index=step,
        policy_version_start=text(step),
    )


def _traces(path: Path) -> Iterator[ImportedRecord]:
    traces: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for place, record in json_records.json_lines(path):
        if isinstance(record, UnreadableRecord):
            yield record
        elif not isinstance(record, Mapping) or text(record.get("trace_id")) is None:
            yield UnreadableRecord(place, "is not a call of Weave")
        else:
            traces[str(record["trace_id"])].append(record)
    for identity, calls in traces.items():
        value = _of_trace(identity, sorted(calls, key=lambda call: nanoseconds(call.get("started_at")) or 0))
        if value.steps:
            yield value


def _of_trace(identity: str, calls: Sequence[Mapping[str, Any]]) -> Episode:
    """Return the episode of a trace of Weave."""
    root = next((call for call in calls if not call.get("parent_id")), calls[0])
    steps: list[Step] = []
    before: list[Any] = []
    for call in calls:
        answer = _answer(call)
        if answer is None:
            continue
        inputs = as_mapping(call.get("inputs"))
        asked = [dict(as_mapping(message)) for message in as_list(inputs.get("messages"))]
        steps.append(_step(call, len(steps), new_messages(_chat(asked), before), answer))
        before = [*_chat(asked), answer]
    error = text(root.get("exception"))
    return Episode(
        id=identity,
        trace_id=trace_id(identity),
        env=_operation(root),
        inputs=as_mapping(root.get("inputs")) or None,
        policy=next((call.name for step in steps for call in step.calls), None),
        steps=tuple(steps),
        step_count=len(steps),
        length=len(steps),
        status="error" if error else "completed",
        error_type="error" if error else None,
        error_message=error,
        reward=Reward(),
        metadata={"weave": {"output": root.get("output"), "attributes": root.get("attributes")}},
        start_time=nanoseconds(root.get("started_at")),
        end_time=nanoseconds(root.get("ended_at")),
    )


def _operation(call: Mapping[str, Any]) -> str:
    """Return the name of an operation without its address: `weave:///team/project/op/solve:digest`."""
    return str(call.get("op_name")).rpartition("/")[2].partition(":")[0]


def _chat(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [message for message in messages if isinstance(message.get("role"), str)]


def _answer(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the message of a model call; None for another operation."""
    output = as_mapping(call.get("output"))
    choice = as_mapping(next(iter(as_list(output.get("choices"))), None))
    message = as_mapping(choice.get("message"))
    if message:
        return {"role": "assistant", **message}
    is_message = output.get("type") == "message" and output.get("role") == "assistant"
    return {"role": "assistant", "content": output.get("content")} if is_message else None


def _step(call: Mapping[str, Any], index: int, observation: Sequence[Any], answer: dict[str, Any]) -> Step:
    output = as_mapping(call.get("output"))
    usage, inputs = as_mapping(output.get("usage")), as_mapping(call.get("inputs"))
    reason = as_mapping(next(iter(as_list(output.get("choices"))), None)).get("finish_reason")
    start, end = nanoseconds(call.get("started_at")), nanoseconds(call.get("ended_at"))
    temperature = number(inputs.get("temperature"))
    model = Call(
        operation="chat",
        name=text(inputs.get("model")) or text(output.get("model")),
        response_model=text(output.get("model")),
        parameters={} if temperature is None else {"temperature": temperature},
        finish_reasons=(reason,) if isinstance(reason, str) else (),
        input_tokens=whole(usage.get("prompt_tokens", usage.get("input_tokens"))),
        output_tokens=whole(usage.get("completion_tokens", usage.get("output_tokens"))),
        start_time=start,
        end_time=end,
    )
    return Step(
        index=index,
        observation=list(observation) or None,
        action=answer,
        calls=(model,),
        start_time=start,
        end_time=end,
    )

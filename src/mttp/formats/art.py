"""
ART: the trajectories that `model.log` saves as Parquet, and older ones as JSON lines.

A message that the model sampled is a step; messages that were given to it are observations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mttp.formats import json_records
from mttp.formats.chats import chat_steps, conversation, tool_calls
from mttp.formats.completions import scored
from mttp.formats.fields import as_list, as_mapping, json_value, nanoseconds, number, text, trace_id, whole
from mttp.formats.records import ImportedRecord
from mttp.formats.sample import FileSample
from mttp.model.calls import Call
from mttp.model.chat import new_messages
from mttp.model.chat_forms import answer, chat_messages
from mttp.model.episodes import Agent, Episode, Reward, Step, Tokens

__all__ = ["LACKS", "TITLE", "episode", "read", "recognizes"]

TITLE = "ART trajectories"
LACKS = (
    "tokens and log probabilities",
    "versions of the policy",
    "additional histories",
    "whether a reward of 0 was given or is the default",
    "the judge and the rubric of RULER",
    "seeds, times",
)
_COLUMNS = {"group_index", "reward", "metrics", "messages"}
_STEP_FILE = re.compile(r"([^/]+)/(\d{4,})\.\w+ ")
"""The split and the training step, in the place of a row."""
_TOKEN_ID = re.compile(r"token_id:(\d+)")
"""A token of a log probability, as vLLM gives it with `return_tokens_as_token_ids`."""
_EXPLANATION = "RULER explanation: "
_MAPPED = (
    "messages",
    "messages_and_choices",
    "exchanges",
    "trajectory_json",
    "reward",
    "metrics",
    "additional_histories",
    "initial_policy_version",
    "final_policy_version",
)


def recognizes(sample: FileSample) -> bool:
    """Return whether the file has the columns of trajectories, or its first line has a group of them."""
    first = as_mapping(next(iter(as_list(sample.row.get("trajectories"))), None))
    return {*sample.columns} >= _COLUMNS or {"messages_and_choices", "reward"} <= first.keys()


def read(path: Path) -> Iterator[ImportedRecord]:
    """Yield an episode for each trajectory; split and training step are in the names of file and folder."""
    yield from json_records.episodes(_trajectories(path), episode)


def _trajectories(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of Parquet, or the trajectories of the group of each line."""
    for number_, (place, row) in enumerate(json_records.placed(path)):
        if not isinstance(row, Mapping) or "trajectories" not in row:
            yield place, row
            continue
        for member, trajectory in enumerate(as_list(row["trajectories"])):
            where = f"{row['_place']} trajectory {member + 1}"
            yield where, {**as_mapping(trajectory), "_place": where, "group_index": number_}


def episode(record: Mapping[str, Any]) -> Episode:
    """
    Return the episode of a trajectory.

    Besides the fields of ART, `group` is the id of its group, `split` and `step` those that it was logged
    with, `judged` the facts of its scoring by RULER, and `_place` its place in a file.
    Additional histories are agents of their own.
    """
    messages = conversation(record.get("messages") or record.get("messages_and_choices"), "user")
    histories = [as_mapping(item) for item in as_list(record.get("additional_histories"))]
    main = "main" if histories else None
    exchanges = record.get("exchanges") or as_mapping(json_value(record.get("trajectory_json"))).get(
        "exchanges"
    )
    steps = [*(_exchanged(as_mapping(exchanges)) or _steps(messages, main))]
    messages = messages or [*as_list(steps[0].observation if steps else None)]
    for index, history in enumerate(histories):
        steps += _steps(conversation(history.get("messages_and_choices"), "user"), f"history-{index + 1}")
    split, step = _logged(record)
    metrics = as_mapping(json_value(record.get("metrics")))
    rewards = _rewards(record, metrics)
    place = record.get("_place")
    return Episode(
        trace_id=text(record.get("trace_id")) or trace_id("art", place, record),
        task=_task(messages),
        group=_group(record, split, step),
        split=split,
        policy_update_index=step,
        policy_version_start=text(record.get("initial_policy_version")),
        policy_version_end=text(record.get("final_policy_version")),
        steps=tuple(steps),
        step_count=len(steps),
        length=len(steps),
        agents=tuple(Agent(id=str(agent)) for agent in dict.fromkeys(step.agent for step in steps) if agent),
        reward=rewards[-1],
        rewards=rewards,
        return_=rewards[-1].value,
        return_basis=None if rewards[-1].value is None else "episode",
        metrics={name: value for name, metric in metrics.items() if (value := number(metric)) is not None},
        metadata={"art": _rest(record)},
        start_time=whole(record.get("start_time")),
        end_time=whole(record.get("end_time")),
        final_observation=[_message(message)[0] for message in messages[_used(steps, main) :]] or None,
        timing="live" if record.get("start_time") else "batch",
    )


def _used(steps: Sequence[Step], agent: str | None) -> int:
    """Return how many messages of a history are in its steps."""
    return sum(1 + len(as_list(step.observation)) for step in steps if step.agent == agent)


def _steps(messages: Sequence[Mapping[str, Any]], agent: str | None) -> list[Step]:
    """
    Return the steps of a history; a choice of the model has its own log probabilities and finish reason.

    Where no message is marked as sampled, each one of the assistant is a step.
    """
    plain = [_message(message) for message in messages]
    sampled = [is_sampled for _, is_sampled in plain]
    are_steps = [
        message.get("role") == "assistant" and (is_sampled or not any(sampled))
        for message, is_sampled in plain
    ]
    choices = [message for message, is_step in zip(messages, are_steps, strict=True) if is_step]
    steps = chat_steps([message for message, _ in plain], sampled=are_steps)
    return [
        replace(step, agent=agent, tokens=_tokens(choice), calls=(*_calls(choice), *step.calls))
        for step, choice in zip(steps, choices, strict=True)
    ]


def _exchanged(exchanges: Mapping[str, Any]) -> list[Step]:
    """Return a step for each captured request, of any interface, in order of their starts."""
    captured = [as_mapping(entry) for kind in exchanges.values() for entry in as_list(kind)]
    steps: list[Step] = []
    before: list[Any] = []
    for exchange in sorted(captured, key=lambda entry: str(entry.get("start_time"))):
        request, response = (as_mapping(exchange.get(name)) for name in ("request", "response"))
        asked = chat_messages(request.get("system") or request.get("instructions"), "system")
        prompts = (request.get(name) for name in ("messages", "input", "prompt"))
        asked += chat_messages(next((prompt for prompt in prompts if prompt is not None), None))
        new = new_messages(asked, before)
        if steps:
            answers = {turn["tool_call_id"]: turn.get("content") for turn in new if "tool_call_id" in turn}
            last = steps[-1]
            steps[-1] = replace(last, calls=(*last.calls, *tool_calls(as_mapping(last.action), answers)))
        choices = [as_mapping(entry) for entry in as_list(response.get("choices"))]
        choice = choices[0] if choices else {}
        items = as_list(response.get("output", response.get("content")))
        action = _message({"finish_reason": None, **choice})[0] if "message" in choice else answer(items)
        action = {"role": "assistant", "content": choice["text"]} if "text" in choice else action
        usage = as_mapping(response.get("usage"))
        reason = choice.get("finish_reason") or response.get("stop_reason") or response.get("status")
        call = Call(
            operation="text_completion" if "text" in choice else "chat",
            name=text(request.get("model")),
            id=text(response.get("id")),
            response_model=text(response.get("model")),
            finish_reasons=(str(reason),) if reason else (),
            input_tokens=whole(usage.get("prompt_tokens", usage.get("input_tokens"))),
            output_tokens=whole(usage.get("completion_tokens", usage.get("output_tokens"))),
        )
        steps.append(
            Step(
                index=len(steps),
                observation=new or None,
                action=action,
                tokens=_tokens(choice),
                calls=(call,),
                start_time=nanoseconds(exchange.get("start_time")),
                end_time=nanoseconds(exchange.get("end_time")),
            )
        )
        before = [*asked, action]
    if steps:
        steps[-1] = replace(
            steps[-1], calls=(*steps[-1].calls, *tool_calls(as_mapping(steps[-1].action), {}))
        )
    return steps


def _message(entry: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a message without empty fields, and whether the model sampled it."""
    inner = as_mapping(entry.get("message")) if "finish_reason" in entry else entry
    is_sampled = "finish_reason" in entry or entry.get("trainable") is True
    message = {key: value for key, value in inner.items() if value is not None and key != "trainable"}
    if "tool_calls" in message:
        message["tool_calls"] = json_value(message["tool_calls"])
    return message, is_sampled


def _tokens(choice: Mapping[str, Any]) -> Tokens | None:
    """Return the log probabilities of a choice, with the token ids where the server gave them."""
    entries = [as_mapping(entry) for entry in as_list(as_mapping(choice.get("logprobs")).get("content"))]
    logprobs: Any = [value for entry in entries if (value := number(entry.get("logprob"))) is not None]
    if not entries or len(logprobs) != len(entries):
        return None
    server_ids: Any = as_list(choice.get("token_ids"))
    named = [_TOKEN_ID.fullmatch(str(entry.get("token"))) for entry in entries]
    ids: Any = [int(match[1]) for match in named if match is not None]
    ids = next((some for some in (server_ids, ids) if len(some) == len(entries)), None)
    return Tokens(ids=ids, logprobs=logprobs, count=len(entries))


def _calls(choice: Mapping[str, Any]) -> tuple[Call, ...]:
    reason = text(choice.get("finish_reason"))
    return (Call(operation="chat", finish_reasons=(reason,)),) if reason else ()


def _rewards(record: Mapping[str, Any], metrics: Mapping[str, Any]) -> tuple[Reward, ...]:
    """
    Return the scorings: with RULER the reward before it, then RULER's, which is relative to the group.

    Where the judge failed, RULER's reward is an error, whatever the trajectory's reward was before.
    """
    judged = as_mapping(record.get("judged"))
    calls = tuple(call for call in as_list(judged.get("calls")) if isinstance(call, Call))
    facts: dict[str, Any] = {"grader": "ruler", "grader_kind": "judge", "relative": True, "calls": calls}
    reward_fields = ("calls", "error_type", "error_message")
    facts["evidence"] = {name: value for name, value in judged.items() if name not in reward_fields} or None
    if judged.get("error_type") is not None:
        error = {"error_type": judged["error_type"], "error": text(judged.get("error_message"))}
        return (Reward(status="error", **error, **facts),)
    if metrics.get("ruler_score") is None:
        return (scored(record.get("reward")),)
    logs = [str(log) for log in as_list(record.get("logs"))]
    explanations = [log.removeprefix(_EXPLANATION) for log in logs if log.startswith(_EXPLANATION)]
    facts["explanation"] = explanations[-1] if explanations else None
    ruler = replace(scored(record.get("reward")), **facts)
    before = scored(metrics.get("independent_reward"))
    return (ruler,) if before.status == "missing" else (replace(before, grader="independent_reward"), ruler)


def _logged(record: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Return the split and the training step."""
    match = _STEP_FILE.search(f"{record.get('_place', '')} ")
    split, step = (match[1], int(match[2])) if match else (None, None)
    return text(record.get("split")) or split, whole(record.get("step")) if "step" in record else step


def _group(record: Mapping[str, Any], split: str | None, step: int | None) -> str | None:
    index = whole(record.get("group_index"))
    if record.get("group") is not None or index is None:
        return text(record.get("group"))
    return "/".join(str(part) for part in (split, step, index) if part is not None)


def _task(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the first message of the user, by which samples of a task are compared."""
    asked = (_message(turn)[0] for turn in messages)
    return next((str(turn.get("content"))[:500] for turn in asked if turn.get("role") == "user"), None)


def _rest(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an episode has no place for; JSON texts become values."""
    mapped = (*_MAPPED, "group", "split", "step", "judged", "_place", "trace_id", "start_time", "end_time")
    return {
        name: json_value(value) for name, value in record.items() if name not in mapped and value is not None
    }

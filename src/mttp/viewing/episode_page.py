"""One episode as data of a page: its steps, scorings, timeline and curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mttp.model.chat import Message, messages, new_messages
from mttp.model.episodes import Agent, Annotation, Call, Episode, Group, Step
from mttp.model.scorings import Grade, Reward
from mttp.reading.jsonable import jsonable, to_json
from mttp.viewing.blocks import fact
from mttp.viewing.content import chat_content, content
from mttp.viewing.token_view import Pieces, token_view

__all__ = ["episode_page"]

_MOST_CURVES = 8
"""Largest number of coordinates of an observation that are drawn as curves."""
_MOST_SPANS = 500
"""Largest number of spans of a timeline."""
_IDENTITY = (
    "run_id",
    "env",
    "env_version",
    "task",
    "split",
    "seed",
    "policy",
    "policy_version_start",
    "policy_version_end",
    "attempt",
    "stop_reason",
    "return_basis",
    "advantage",
    "cost_usd",
)
_OF_STEP = ("trained_reward", "value_estimate", "return_target", "advantage", "logprob", "reward_raw")
_OF_CALL = ("provider", "response_model", "input_tokens", "output_tokens", "time_to_first_chunk")
_BAD = frozenset({"error", "aborted", "failure", "unfinished"})


def episode_page(
    episode: Episode,
    *,
    group: Group | None = None,
    problems: Sequence[str] = (),
    pieces: Pieces | None = None,
    source: str = "",
) -> dict[str, Any]:
    """
    The data of an episode's page, as `viewer/src/data.ts` describes it.

    `group` is the episode's group, `problems` are those of its trace, `pieces` gives the texts of token ids,
    and `source` is the path for the command that shows the episode in a terminal.
    """
    title = " ".join(filter(None, (episode.env, episode.task))) or "episode"
    return {
        "trace_id": episode.trace_id,
        "title": f"{title}: {episode.status}, {episode.outcome}",
        "facts": _facts(episode),
        "warnings": [*_warnings(episode), *problems],
        "rewards": [_scoring(one) for one in episode.rewards or _late_reward(episode)],
        "steps": _Conversation(pieces).steps(episode),
        "timeline": _timeline(episode),
        "group": None if group is None else _group(group, episode),
        "curves": _curves(episode),
        "action_strip": _action_strip(episode.steps),
        "annotations": [_annotation(one) for one in episode.annotations],
        "command": f"mttp show {source} --episode {episode.trace_id[:8]}" if source else "",
    }


def _line(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


# The episode.


def _facts(episode: Episode) -> list[dict[str, Any]]:
    outcome = {"success": "good", "failure": "bad"}.get(episode.outcome, "plain")
    facts = [
        fact("return", episode.return_),
        _reward_fact(episode.reward),
        fact("outcome", episode.outcome, state=outcome),
        fact("status", episode.status, state="bad" if episode.status in _BAD else "plain"),
        fact("steps", episode.length),
        fact("seconds", episode.duration),
    ]
    facts += _stated(episode, _IDENTITY)
    facts += [fact("slices", ", ".join(episode.slices))] if episode.slices else []
    facts += [fact("consumed by", ", ".join(map(str, episode.consumed_by)))] if episode.consumed_by else []
    facts += [fact("discarded by", ", ".join(episode.discarded_by))] if episode.discarded_by else []
    facts += [fact("inputs", episode.inputs)] if episode.inputs is not None else []
    facts += _named("metrics", episode.metrics) + _named("metadata", episode.metadata)
    for agent in episode.agents:
        facts.append(fact(f"agent {agent.id}", _agent(agent)))
    return facts


def _reward_fact(reward: Reward) -> dict[str, Any]:
    if reward.status == "ok":
        return fact("reward", reward.value)
    return fact(
        "reward", reward.value, detail=reward.status, state="bad" if reward.status == "error" else "warn"
    )


def _agent(agent: Agent) -> str:
    return_ = "unknown" if agent.return_ is None else f"{agent.return_:.6g}"
    return f"return {return_}, {agent.length} steps"


def _stated(value: Any, names: Iterable[str]) -> list[dict[str, Any]]:
    return [
        fact(name.replace("_", " "), found)
        for name in names
        if (found := getattr(value, name)) not in (None, "")
    ]


def _named(prefix: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [fact(f"{prefix}.{name}", value) for name, value in values.items()]


def _warnings(value: Episode | Step | Agent | Call) -> list[str]:
    """Errors, faults and omissions."""
    found = []
    if value.error_type is not None:
        found.append(f"{value.error_type}: {value.error_message or ''}".removesuffix(": "))
    if isinstance(value, Episode):
        found += [f"the recording of the episode is {value.status}"] if value.status == "unfinished" else []
        found += ["spans of the episode are missing"] if not value.complete else []
        for agent in value.agents:
            found += [f"agent {agent.id}: {one}" for one in _warnings(agent)]
    found += [f"fault {one}" for one in getattr(value, "faults", ())]
    return found + [f"omitted {one}" for one in getattr(value, "omissions", ())]


def _late_reward(episode: Episode) -> list[Reward]:
    """The score of an annotation, where the episode has no scoring of its own."""
    return [episode.reward] if episode.reward.status != "missing" else []


def _annotation(one: Annotation) -> str:
    if one.reward is not None:
        value = one.reward.status if one.reward.value is None else f"{one.reward.value:.6g}"
    elif one.rejected:
        value = f"over {', '.join(one.rejected)}"
    else:
        value = _line(one.value)
    by = f" by {one.by}" if one.by else ""
    why = f": {one.explanation}" if one.explanation else ""
    where = f" of step {one.step}" if one.step is not None else ""
    return f"{one.key}{where}: {value}{by}{why}"


# Scorings.


def _scoring(reward: Reward) -> dict[str, Any]:
    spec = reward.spec
    graded = {grade.name for grade in reward.grades}
    parts = [_grade(grade) for one in reward.grades for grade in (one, *one.parts)]
    parts += [
        _component(name, reward.components.get(name), reward.component_statuses.get(name, "ok"), reward)
        for name in {**reward.components, **reward.component_statuses}
        if name not in graded
    ]
    return {
        "grader": reward.grader or "",
        "spec": "" if spec is None else " ".join(filter(None, (spec.name, spec.version))),
        "value": jsonable(reward.value),
        "status": reward.status,
        "explanation": _explanation(reward),
        "error": _error(reward),
        "components": parts,
    }


def _explanation(reward: Reward) -> str:
    """The explanation, with what else decided: verdict, label, failed checks, clipping."""
    parts = [reward.verdict, reward.label, reward.explanation]
    parts += [f"failed checks: {', '.join(reward.failed_checks)}"] if reward.failed_checks else []
    parts += ["clipped to its range"] if reward.clipped else []
    parts += ["the reward differs from the weighted sum of its components"] if reward.mismatch else []
    return "; ".join(filter(None, parts))


def _error(value: Reward | Grade) -> str:
    raw = f" ({value.raw})" if isinstance(value, Reward) and value.raw else ""
    return ": ".join(filter(None, (value.error_type, value.error))) + raw


def _grade(grade: Grade) -> dict[str, Any]:
    parts = [grade.verdict, grade.label, grade.explanation]
    parts += ["clipped to its range"] if grade.clipped else []
    parts += ["late"] if grade.late else []
    return {
        "name": grade.name,
        "kind": grade.kind,
        "value": jsonable(grade.value),
        "status": grade.status,
        "weight": jsonable(grade.weight),
        "contribution": jsonable(grade.contribution),
        "explanation": "; ".join(filter(None, parts)),
        "error": _error(grade),
    }


def _component(name: str, value: float | None, status: str, reward: Reward) -> dict[str, Any]:
    weight = reward.weights.get(name)
    return {
        "name": name,
        "kind": "",
        "value": jsonable(value),
        "status": status,
        "weight": jsonable(weight),
        "contribution": None if value is None or weight is None else jsonable(value * weight),
        "explanation": "",
        "error": "",
    }


# Steps.


class _Conversation:
    """Builds the steps of an episode; in a chat, each has only its new messages."""

    def __init__(self, pieces: Pieces | None) -> None:
        self._pieces = pieces
        self._before: dict[str | None, list[Message]] = {}
        """The messages of the steps before, by agent."""

    def steps(self, episode: Episode) -> list[dict[str, Any]]:
        found = [self._step(step) for step in episode.steps]
        if episode.final_observation is not None:
            found.append(_final(episode))
        return found

    def _step(self, step: Step) -> dict[str, Any]:
        facts = _stated(step, _OF_STEP)
        facts += [fact(name, True) for name in ("terminated", "truncated") if getattr(step, name)]
        seconds = _seconds(step.start_time, step.end_time)
        facts += [fact("seconds", seconds)] if seconds is not None else []
        facts += _named("metrics", step.metrics) + _named("metadata", step.metadata)
        observation, action = self._exchange(step)
        return {
            "index": step.index,
            "agent": step.agent,
            "observation": observation,
            "action": action,
            "reward": jsonable(step.reward),
            "reward_status": step.reward_status,
            "facts": facts,
            "warnings": [*_warnings(step), *(f"annotation {_annotation(one)}" for one in step.annotations)],
            "rewards": [_scoring(one) for one in step.rewards],
            "calls": [_call(one) for one in step.calls],
            "tokens": None if step.tokens is None else token_view(step.tokens, self._pieces),
        }

    def _exchange(self, step: Step) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        seen, sent = messages(step.observation), messages(step.action)
        if seen is None:
            return content(step.observation), content(step.action)
        before = self._before.get(step.agent, [])
        self._before[step.agent] = [*seen, *(sent or [])]
        if sent is None and isinstance(step.action, str):
            sent = [{"role": "assistant", "content": step.action}]
        new = new_messages(seen, before)
        action = content(step.action) if sent is None else chat_content(sent)
        return (chat_content(new) if new else None), action


def _final(episode: Episode) -> dict[str, Any]:
    """The observation after the last action, as a step without action."""
    return {
        "index": max((step.index for step in episode.steps), default=-1) + 1,
        "agent": None,
        "observation": content(episode.final_observation),
        "action": None,
        "reward": None,
        "reward_status": "missing",
        "facts": [fact("final observation", True)],
        "warnings": [],
        "rewards": [],
        "calls": [],
        "tokens": None,
    }


def _call(call: Call) -> dict[str, Any]:
    facts = _stated(call, _OF_CALL)
    seconds = _seconds(call.start_time, call.end_time)
    facts += [fact("seconds", seconds)] if seconds is not None else []
    facts += [fact("finish reasons", ", ".join(call.finish_reasons))] if call.finish_reasons else []
    facts += _named("parameters", call.parameters)
    return {
        "name": call.name or call.operation,
        "kind": call.operation,
        "facts": facts,
        "error": "; ".join(_warnings(call)),
        "input": content(call.arguments),
        "output": content(call.result),
    }


def _seconds(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else (end - start) / 1e9


# Timeline, group and curves.


def _timeline(episode: Episode) -> list[dict[str, Any]]:
    """The first spans in order of start; times are milliseconds since the start of the episode."""
    origin = episode.start_time
    if origin is None:
        return []
    spans = [_bar("episode", "episode", 0, episode, origin, None)]
    for place, step in enumerate(episode.steps[:_MOST_SPANS]):
        spans.append(_bar(f"step {step.index}", "step", 1, step, origin, place))
        spans += [_bar(one.name or one.operation, "call", 2, one, origin, place) for one in step.calls]
        spans += _scoring_bars(step.rewards, 2, origin, place)
    spans += _scoring_bars(episode.rewards, 1, origin, None)
    known = [span for span in spans if span is not None]
    return sorted(known, key=lambda span: (span["start"], span["depth"]))[:_MOST_SPANS]


def _scoring_bars(
    rewards: Iterable[Reward], depth: int, origin: int, step: int | None
) -> Iterator[dict[str, Any] | None]:
    for reward in rewards:
        yield _bar(reward.grader or "reward", "reward", depth, reward, origin, step)
        for grade in reward.grades:
            yield _bar(grade.name, "grade", depth + 1, grade, origin, step)


def _bar(
    name: str, kind: str, depth: int, value: Any, origin: int, step: int | None
) -> dict[str, Any] | None:
    if value.start_time is None:
        return None
    seconds = _seconds(value.start_time, value.end_time)
    return {
        "name": name,
        "kind": kind,
        "depth": depth,
        "start": round((value.start_time - origin) / 1e6, 3),
        "duration": 0.0 if seconds is None else round(1e3 * seconds, 3),
        "error": getattr(value, "error_type", None) is not None or getattr(value, "status", "") == "error",
        "step": step,
    }


def _group(group: Group, episode: Episode) -> dict[str, Any]:
    advantages = [*group.advantages, *[math.nan] * (len(group.episodes) - len(group.advantages))]
    rewards = [*group.rewards, *[math.nan] * (len(group.episodes) - len(group.rewards))]
    members = [
        {
            "episode": trace_id,
            "reward": jsonable(reward),
            "status": "missing" if math.isnan(reward) else "ok",
            "advantage": jsonable(advantage),
        }
        for trace_id, reward, advantage in zip(group.episodes, rewards, advantages, strict=False)
    ]
    return {"id": group.id, "members": members, "note": _group_note(group, episode)}


def _group_note(group: Group, episode: Episode) -> str:
    """How the advantages came about, in a sentence."""
    if group.reward_std == 0 and group.valid_count > 1:
        return "All rewards are equal, so that the group gives no advantage."
    parts = [f"{group.valid_count} of {len(group.episodes)} members have a valid reward"]
    if group.reward_mean is not None:
        parts.append(f"mean {group.reward_mean:.6g}")
    if group.reward_std is not None:
        parts.append(f"standard deviation {group.reward_std:.6g} (ddof {group.ddof})")
    if group.normalization:
        parts.append(f"advantages by {group.normalization}")
    if episode.advantage is not None:
        parts.append(f"this episode has {episode.advantage:.6g}")
    return ", ".join(parts) + "."


def _curves(episode: Episode) -> list[dict[str, Any]]:
    """Reward and value estimate over the steps, and the coordinates of small array observations."""
    steps = episode.steps
    found = [
        {"name": name, "values": [jsonable(getattr(step, name)) for step in steps]}
        for name in ("reward", "value_estimate", "logprob")
        if any(getattr(step, name) is not None for step in steps)
    ]
    observed = [_coordinates(step.observation) for step in steps]
    width = max(map(len, observed), default=0)
    if 0 < width <= _MOST_CURVES:
        found += [
            {"name": f"observation {place}", "values": [_at(one, place) for one in observed]}
            for place in range(width)
        ]
    return found if len(steps) > 1 else []


def _coordinates(observation: Any) -> list[float]:
    if isinstance(observation, np.ndarray) and observation.ndim <= 1 and observation.dtype.kind in "fiub":
        return [float(value) for value in observation.reshape(-1)[: _MOST_CURVES + 1]]
    return [float(observation)] if _is_number(observation) else []


def _at(values: Sequence[float], place: int) -> float | None:
    if place >= len(values) or not math.isfinite(values[place]):
        return None
    return float(f"{values[place]:.5g}")  # a curve of a few pixels needs no more digits


def _action_strip(steps: Sequence[Step]) -> list[int | None] | None:
    """Discrete actions by step; None if an action is no integer, or there are fewer than two steps."""
    actions = [_discrete(step.action) for step in steps]
    is_strip = len(steps) > 1 and any(one is not None for one in actions)
    is_discrete = all(
        one is not None or step.action is None for one, step in zip(actions, steps, strict=True)
    )
    return actions if is_strip and is_discrete else None


def _discrete(action: Any) -> int | None:
    if isinstance(action, np.ndarray) and action.size == 1 and action.dtype.kind in "iu":
        return int(action.reshape(-1)[0])
    return action if isinstance(action, int) and not isinstance(action, bool) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

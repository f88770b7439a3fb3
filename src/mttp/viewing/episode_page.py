"""One episode as data of a page: its steps, scorings, timeline and curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mttp.model.chat import Message, frame_message, messages, seen
from mttp.model.episodes import Agent, Annotation, Episode, Group, Step
from mttp.model.scorings import Reward
from mttp.pages.blocks import fact
from mttp.pages.episode import error_of, identity, stated
from mttp.reading.jsonable import jsonable, to_json
from mttp.viewing.call_block import call_block
from mttp.viewing.content import chat_content, content
from mttp.viewing.episode_curves import action_strip, curves, timeline
from mttp.viewing.scoring_page import scoring
from mttp.viewing.token_view import Pieces, token_view

__all__ = ["episode_page"]

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
        "rewards": [scoring(one) for one in episode.rewards or _late_reward(episode)],
        "steps": _Conversation(pieces).steps(episode),
        "timeline": timeline(episode),
        "group": None if group is None else _group(group, episode),
        "curves": curves(episode),
        "action_strip": action_strip(episode.steps),
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
    facts += [fact(name, value) for name, value in identity(episode).items()]
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


def _named(prefix: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [fact(f"{prefix}.{name}", value) for name, value in values.items()]


def _warnings(value: Episode | Step | Agent) -> list[str]:
    """Errors, faults and omissions."""
    found = [error] if (error := error_of(value)) else []
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


# Steps.


class _Conversation:
    """Builds the steps of an episode; in a chat, each has only its new messages."""

    def __init__(self, pieces: Pieces | None) -> None:
        self._pieces = pieces
        self._before: dict[str | None, list[Message]] = {}
        """The messages of the steps before, by agent."""

    def steps(self, episode: Episode) -> list[dict[str, Any]]:
        found = [self._step(step, episode.step_duration(step)) for step in episode.steps]
        if episode.final_observation is not None:
            found.append(_final(episode))
        return found

    def _step(self, step: Step, seconds: float | None) -> dict[str, Any]:
        facts = [fact(name, value) for name, value in stated(step).items()]
        facts += [fact(name, True) for name in ("terminated", "truncated") if getattr(step, name)]
        facts += [fact("seconds", seconds)] if seconds is not None else []
        if any(call.history[2:] or call.history[:1] > (0,) for call in step.calls):
            facts.append(fact("messages", "some earlier ones were left out or changed"))
        facts += _named("metrics", step.metrics) + _named("metadata", step.metadata)
        observation, action = self._exchange(step)
        return {
            "index": step.index,
            "agent": step.agent,
            "observation": observation,
            "frame": None if step.frame is None else chat_content([frame_message(step.frame)]),
            "action": action,
            "reward": jsonable(step.reward),
            "reward_status": step.reward_status,
            "facts": facts,
            "warnings": [*_warnings(step), *(f"annotation {_annotation(one)}" for one in step.annotations)],
            "rewards": [scoring(one) for one in step.rewards],
            "calls": [call_block(one, step) for one in step.calls],
            "tokens": None if step.tokens is None else token_view(step.tokens, self._pieces),
        }

    def _exchange(self, step: Step) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        sent = messages(step.action)
        shown = seen(step, self._before.get(step.agent, []))
        if shown is None:
            return content(step.observation), content(step.action)
        self._before[step.agent] = [*(messages(step.observation) or ()), *(sent or ())]
        if sent is None and isinstance(step.action, str):
            sent = [{"role": "assistant", "content": step.action}]
        action = content(step.action) if sent is None else chat_content(sent)
        return (chat_content(shown.new) if shown.new else None), action


def _final(episode: Episode) -> dict[str, Any]:
    """The observation after the last action, as a step without action."""
    return {
        "index": max((step.index for step in episode.steps), default=-1) + 1,
        "agent": None,
        "observation": content(episode.final_observation),
        "frame": None,
        "action": None,
        "reward": None,
        "reward_status": "missing",
        "facts": [fact("final observation", True)],
        "warnings": [],
        "rewards": [],
        "calls": [],
        "tokens": None,
    }


# The group.


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

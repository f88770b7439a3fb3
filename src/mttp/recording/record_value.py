"""`record` records a finished episode from its value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from mttp.codec import rewards
from mttp.codec.plain import Faults
from mttp.model.episodes import Agent, Call, Episode, Reward, Step
from mttp.otlp.spans import RecordingSpan
from mttp.recording.handle import Host
from mttp.recording.open_call import span_kind
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.recording.trajectory import Trajectory

__all__ = ["record"]

_IDENTITY = (
    "attempt",
    "env",
    "env_index",
    "env_kwargs",
    "env_rng_sha256",
    "env_spaces",
    "env_version",
    "env_wrappers",
    "group",
    "index",
    "inputs",
    "policy",
    "policy_update_index",
    "policy_version_start",
    "seed",
    "slices",
    "split",
    "task",
)
_ENDING = (
    "advantage",
    "cost_usd",
    "discount",
    "error_message",
    "error_type",
    "final_value",
    "length",
    "outcome",
    "policy_version_end",
    "stop_reason",
    "terminated",
    "truncated",
)


def record(
    host: Host,
    episode: Episode,
    *,
    start_time: int | None = None,
    end_time: int | None = None,
    timing: str | None = None,
) -> OpenEpisode:
    """
    Record a finished episode, and return a handle that has ended.

    Times are in nanoseconds since the Unix epoch, by default the value's own, else now.
    The value's trace id is kept.
    """
    start = episode.start_time if start_time is None else start_time
    facts = {name: getattr(episode, name) for name in _IDENTITY} | {"timing": timing or episode.timing}
    opened = OpenEpisode(
        host,
        facts,
        trace_id=int(episode.trace_id or "0", 16),
        episode_id=episode.id or None,
        start_time=start,
        metadata=episode.metadata,
        metrics=episode.metrics,
    )
    root = cast(RecordingSpan, opened._span)
    finish = episode.end_time if end_time is None else end_time
    finish = root.started if finish is None else finish
    try:
        for agent in episode.agents:
            _begin_agent(opened, _timed(agent, root.started, finish))
        for step in episode.steps:
            _step(opened, step, root.started, finish, is_timed=facts["timing"] != "batch")
        for agent in episode.agents:
            _end_agent(opened, _timed(agent, root.started, finish))
        _score(opened, episode, root.started, finish)
        opened.final_observation(episode.final_observation)
        _keep_extra(root, episode)
    except Exception as error:  # an invalid value must not lose the episode
        root.fault("internal_error", f"record: {error!r}")
    opened._finish(end_time=finish, **_ending(opened, episode))
    return opened


def _ending(opened: OpenEpisode, episode: Episode) -> dict[str, Any]:
    facts = {name: getattr(episode, name) for name in _ENDING}
    facts["status"] = "aborted" if episode.status == "unfinished" else episode.status
    facts["length"] = episode.length or opened.length
    facts["error_message"] = episode.error_message or ""
    _keep_return(opened, episode)
    return facts


def _keep_return(opened: Trajectory, value: Episode | Agent) -> None:
    """Keep the value's return if the scorings and steps give another one."""
    if value.return_ is not None and value.return_ != opened.return_:
        opened._rewards.state_return(value.return_)


def _score(opened: Trajectory, value: Episode | Agent, start: int, end: int) -> None:
    stated = value.reward.status != "missing" or value.reward.components
    for reward in value.rewards or ((value.reward,) if stated else ()):
        opened._score(*_checked(_timed(reward, start, end)))


def _timed(value: Any, start: int, end: int) -> Any:
    return replace(value, start_time=value.start_time or start, end_time=value.end_time or end)


def _checked(reward: Reward) -> tuple[Reward, Faults]:
    faults: Faults = []
    return rewards.checked(reward, faults), faults


def _begin_agent(opened: OpenEpisode, value: Agent) -> None:
    agent = opened.agent(
        value.id,
        policy=value.policy,
        policy_version=value.policy_version_start,
        name=value.name,
        metadata=value.metadata,
        start_time=value.start_time,
    )
    agent._describe(None, value.metrics)


def _end_agent(opened: OpenEpisode, value: Agent) -> None:
    agent = opened.agent(value.id)
    span = cast(RecordingSpan, agent._span)
    _score(agent, value, span.started, cast(int, value.end_time))
    _keep_return(agent, value)
    _keep_extra(span, value)
    agent._finish(
        terminated=value.terminated,
        truncated=value.truncated,
        length=value.length or agent.length,
        advantage=value.advantage,
        policy_version_end=value.policy_version_end,
        error_type=value.error_type,
        error_message=value.error_message or "",
        end_time=value.end_time,
    )


def _step(opened: OpenEpisode, value: Step, start: int, end: int, *, is_timed: bool) -> None:
    is_timed = is_timed and None not in (value.start_time, value.end_time)
    value = _timed(value, start, end)
    trajectory = opened if value.agent is None else opened.agent(value.agent, start_time=value.start_time)
    step = trajectory.step(start_time=value.start_time, index=value.index)
    span = cast(RecordingSpan, step._span)
    span.is_timed = is_timed
    step.observation(value.observation)
    step.action(value.action)
    if value.tokens is not None:
        step._set_tokens(value.tokens)
    for reward in value.rewards:
        step._record_scoring(*_checked(_timed(reward, span.started, end)))
    for call in value.calls:
        _call(step, _timed(call, span.started, end))
    if value.reward is not None and value.reward_status == "ok":
        step.reward(value.reward)
    elif value.reward_status != "missing":
        step._set_reward(value.reward, value.reward_status, value.reward_raw)
    step.record(
        trained_reward=value.trained_reward,
        value_estimate=value.value_estimate,
        return_target=value.return_target,
        advantage=value.advantage,
        logprob=value.logprob,
        terminated=value.terminated,
        truncated=value.truncated,
    )
    for name, metric in value.metrics.items():
        step.metric(name, metric)
    for name, fact in value.metadata.items():
        step.set_metadata(name, fact)
    _keep_extra(span, value)
    step._finish(
        error_type=value.error_type, error_message=value.error_message or "", end_time=value.end_time
    )


def _call(step: OpenStep, value: Call) -> None:
    opened = step._open_call(value, span_kind(value), value.start_time)
    if opened is not None:
        opened._conclude()


def _keep_extra(span: RecordingSpan, value: Step | Agent | Episode) -> None:
    """Keep unknown attributes, faults and omissions of an earlier recording."""
    span.values |= {key: kept for key, kept in value.extra.items() if key not in span.values}
    span.faults.extend(value.faults)
    span.omissions.extend(value.omissions)

"""`record` records a finished episode from its value."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mttp.codec import fields, rewards
from mttp.codec.plain import Faults, nanoseconds, plain, scalar_text, text
from mttp.model import clock
from mttp.model.declarations import keys, table
from mttp.model.episodes import Agent, Episode, Reward, Step
from mttp.otlp.spans import RecordingSpan
from mttp.recording.arguments import EPISODE_ENDING, EPISODE_FACTS
from mttp.recording.open_call import OpenCall
from mttp.recording.open_episode import OpenEpisode, inert
from mttp.recording.open_step import OpenStep
from mttp.recording.trajectory import Trajectory

if TYPE_CHECKING:
    from mttp.recording.run_recorder import RunRecorder

__all__ = ["record"]

_Timed = TypeVar("_Timed", Agent, Reward, Step)
_TRACE_ID = re.compile(r"[0-9a-fA-F]{1,32}")

_IDENTITY = sorted((EPISODE_FACTS & keys(Episode).keys() | {"policy_version_start"}) - {"id", "timing"})
"""Fields that an episode has from its start."""
_ENDING = sorted(EPISODE_ENDING & {field.name for field in table(Episode)} - {"inputs", "status", "end_time"})
"""Fields that an episode has from its end."""


def record(
    host: RunRecorder,
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
    if not issubclass(type(episode), Episode):
        host.fault("episode_invalid", f"{scalar_text(episode):.80} is not an mttp.Episode")
        return inert()
    faults: Faults = []
    episode = fields.checked_value(episode, faults)
    trace_id = _trace_id(episode.trace_id, faults)
    start = episode.start_time if start_time is None else nanoseconds(start_time, faults)
    finish = episode.end_time if end_time is None else nanoseconds(end_time, faults)
    timing = fields.optional_text("timing", timing, faults) or episode.timing
    facts = {name: getattr(episode, name) for name in _IDENTITY} | {"timing": timing}
    opened = OpenEpisode(
        host,
        facts,
        trace_id=trace_id,
        episode_id=episode.id or None,
        start_time=start,
        metadata=episode.metadata,
        metrics=episode.metrics,
    )
    root = cast(RecordingSpan, opened._span)
    root.note(faults)
    finish = root.started + clock.MOMENT if finish is None else finish
    agents = [root.checked(_part, agent, root.started, finish) for agent in episode.agents]
    for agent in agents:
        opened._attempt(_begin_agent, opened, agent)
    for step in episode.steps:
        opened._attempt(_step, opened, step, root.started, finish, is_timed=timing != "batch")
    for agent in agents:
        opened._attempt(_end_agent, opened, agent)
    opened._attempt(_score, opened, episode, root.started, finish)
    opened.final_observation(episode.final_observation)
    opened._attempt(_keep_extra, root, episode)
    opened._finish(end_time=finish, **_ending(opened, episode))
    return opened


def _trace_id(digits: str, faults: Faults) -> int:
    """Return a trace id as a number; 0 without a valid one."""
    if not digits or _TRACE_ID.fullmatch(digits):
        return int(digits or "0", 16)
    faults.append(f"trace_id_invalid: {digits:.80} is not 32 hexadecimal digits")
    return 0


def _ending(opened: OpenEpisode, episode: Episode) -> dict[str, Any]:
    facts = {name: getattr(episode, name) for name in _ENDING}
    is_unfinished = type(episode.status) is str and episode.status == "unfinished"
    facts["status"] = "aborted" if is_unfinished else episode.status
    facts["length"] = episode.length or opened.length
    facts["error_message"] = episode.error_message or ""
    _keep_return(opened, episode)
    return facts


def _keep_return(opened: Trajectory, value: Episode | Agent) -> None:
    """Keep the value's return if the scorings and steps give another one."""
    if value.return_ is not None and value.return_ != opened.return_:
        opened._stated_return = value.return_


def _score(opened: Trajectory, value: Episode | Agent, start: int, end: int) -> None:
    for scoring in value.rewards or (value.reward,):
        faults: Faults = []
        reward = _timed(rewards.checked(scoring, faults), start, end)
        if value.rewards or faults or reward.status != "missing" or reward.components:
            opened._score(reward, faults)


def _part(value: _Timed, start: int, end: int, faults: Faults) -> _Timed:
    """Return a part of an episode whose fields have their types, with times."""
    return _timed(fields.checked_value(value, faults), start, end)


def _timed(value: _Timed, start: int, end: int) -> _Timed:
    return replace(value, start_time=value.start_time or start, end_time=value.end_time or end)


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
    faults: Faults = []
    is_timed = is_timed and value.start_time is not None and value.end_time is not None
    value = _part(value, start, end, faults)
    trajectory = opened if value.agent is None else opened.agent(value.agent, start_time=value.start_time)
    step = trajectory.step(start_time=value.start_time, index=value.index)
    span = cast(RecordingSpan, step._span)
    span.is_timed = is_timed
    span.note(faults)
    if not any(value.observation is call.arguments for call in value.calls):
        step.observation(value.observation)
    if not any(value.action is call.result for call in value.calls):
        step.action(value.action)
    if value.frame is not None:
        step._attempt(step._set_frame, value.frame)
    if value.tokens is not None:
        step._attempt(step._set_tokens, value.tokens)
    for scoring in value.rewards:
        step._attempt(_record_scoring, step, scoring, end)
    for call in value.calls:
        step._attempt(
            OpenCall._record_finished,
            step._host,
            call,
            step._call_span,
            start_time=span.started,
            end_time=end,
        )
    step._attempt(_set_reward, step, value)
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
    step._attempt(_keep_extra, span, value)
    step._finish(
        error_type=value.error_type, error_message=value.error_message or "", end_time=value.end_time
    )


def _record_scoring(step: OpenStep, scoring: Reward, end: int) -> None:
    faults: Faults = []
    reward = rewards.checked(scoring, faults)
    step._record_scoring(_timed(reward, cast(RecordingSpan, step._span).started, end), faults)


def _set_reward(step: OpenStep, value: Step) -> None:
    span = cast(RecordingSpan, step._span)
    number, assessed, raw = rewards.assess(value.reward)
    status = span.checked(rewards.known_status, value.reward_status) or assessed
    if assessed == "error":
        span.fault("reward_invalid", str(raw))
        status = assessed
    if status != "missing":
        step._set_reward(number, status, value.reward_raw if raw is None else raw)


def _keep_extra(span: RecordingSpan, value: Step | Agent | Episode) -> None:
    """Keep unknown attributes, faults and omissions of an earlier recording."""
    known = span.values
    for key, attribute in value.extra.items():
        if (name := text(key, [])) not in known:
            known[name] = span.checked(plain, attribute)
    span.faults.extend(value.faults)
    span.omissions.extend(value.omissions)

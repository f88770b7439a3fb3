"""Branches: a recorded episode played up to a step, and from there on by another policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.trace import SpanContext, TraceFlags

from mttp.errors import StudyError
from mttp.model.episodes import Episode
from mttp.reading import Recording, read
from mttp.recording import configuration
from mttp.recording.open_episode import OpenEpisode
from mttp.semconv import attributes as a
from mttp.workflows.environments import EnvSource, make, unrecorded
from mttp.workflows.replaying import chosen, prepared, take

__all__ = ["branch"]

_MAX_STEPS = 10_000


def branch(
    source: Any,
    *,
    step: int,
    policy: Callable[[Any], Any],
    episode: str | None = None,
    env: EnvSource | None = None,
    max_steps: int = _MAX_STEPS,
    tolerance: float = 1e-6,
) -> OpenEpisode:
    """
    Play a recorded episode up to a step, let another policy act from there on, and record a new episode.

    `policy` is a function from an observation to an action; the other arguments are those of `mttp.replay`.
    The new episode goes to the current session. It begins with the recorded steps, links to step `step` of
    the old episode, and names it in its metadata as `branch_episode` and `branch_step`.
    It ends with the environment, or as truncated after `max_steps` steps.

    Raises what `mttp.replay` raises, and StudyError for a step that the episode does not have, and where the
    replay up to it differs from the recording.
    """
    recording = source if isinstance(source, Recording) else read(source)
    old = chosen(recording, episode)
    if not 0 <= step < len(old.steps):
        raise StudyError(f"step {step} is not among the {len(old.steps):,} steps of {old.trace_id[:8]}")
    with unrecorded():
        environment = make(old, env)
        try:
            observation = _reach(old, recording.episodes, environment, step, tolerance)
            return _record(old, environment, step, observation, policy, max_steps)
        finally:
            if env is None:
                environment.close()


def _reach(episode: Episode, episodes: Sequence[Episode], env: Any, step: int, tolerance: float) -> Any:
    """Play the recorded steps before `step`, and return the observation of it."""
    play = prepared(episode, episodes, env, tolerance)
    for _ in range(step):
        if play.divergence is None:
            play.advance()
    if play.divergence is not None:
        raise StudyError(
            f"the replay of {episode.trace_id[:8]} differs before step {step}: {play.divergence}"
        )
    return play.observation


def _record(
    old: Episode, env: Any, step: int, observation: Any, policy: Callable[[Any], Any], max_steps: int
) -> OpenEpisode:
    with configuration.episode(
        env=old.env or None,
        env_version=old.env_version,
        env_kwargs=dict(old.env_kwargs) or None,
        env_wrappers=old.env_wrappers,
        seed=old.seed,
        task=old.task,
        split=old.split,
        slices=old.slices,
        inputs=old.inputs,
        metadata={"branch_episode": old.trace_id, "branch_step": step},
    ) as new:
        new.span.add_link(_context(old, step), {a.STEP_INDEX: step})
        for old_step in old.steps[:step]:
            with new.step() as copied:
                copied.observation(old_step.observation)
                copied.action(old_step.action)
                if old_step.reward is not None:
                    copied.reward(old_step.reward)
                copied.end(terminated=old_step.terminated, truncated=old_step.truncated)
        terminated = truncated = False
        index = step
        while not (terminated or truncated):
            with new.step() as live:
                live.observation(observation)
                action = policy(observation)
                live.action(action)
                observation, reward, terminated, truncated = take(env, action, index)
                live.reward(reward)
                index += 1
                truncated = truncated or (index >= max_steps and not terminated)
                live.end(terminated=terminated, truncated=truncated)
        new.final_observation(observation)
        new.end(terminated=terminated, truncated=truncated)
    return new


def _context(old: Episode, step: int) -> SpanContext:
    """The span of the step; of the episode where the step has none."""
    span_id = old.steps[step].span_id or old.span_id
    return SpanContext(int(old.trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1))

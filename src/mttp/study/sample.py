"""The episodes of one side of a comparison, as figures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mttp.errors import ReadError
from mttp.model.episodes import Episode, Reward, Run
from mttp.reading import Recording, read
from mttp.reading.sources import RecordedSpans

__all__ = ["EpisodeFigures", "Sample", "Side", "load"]

Side: TypeAlias = "str | os.PathLike[str] | RecordedSpans | Recording | Sequence[Any]"
"""A path, glob, directory or trace store, a session, a `Recording`, or a list of these: several seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFigures:
    """What a study uses of one episode; None where the recording does not state it."""

    trace_id: str
    run: str
    """The run's id."""
    start_time: int
    """Nanoseconds since the Unix epoch."""
    env: str
    task: str | None
    seed: int | str | None
    split: str | None
    slices: tuple[str, ...]
    group: str | None
    policy_version: str | None
    status: str
    stop_reason: str | None
    truncated: bool | None
    success: bool | None
    """By the outcome; else by the verdict of the reward."""
    return_: float | None
    reward: float | None
    reward_status: str
    verdict: str | None
    """pass or fail, of the reward of the episode."""
    components: Mapping[str, float]
    """Of the reward of the episode; else summed over the rewards of its steps."""
    component_statuses: Mapping[str, str]
    """Status of the components that are not ok, of the same rewards."""
    failed_checks: tuple[str, ...]
    """Names of the checks that failed, of the same rewards."""
    metrics: Mapping[str, float]
    spec: tuple[str, str, str]
    """Name, version and digest of the reward spec; empty strings where there is none."""
    grader: tuple[str, str]
    """Name and version of the grader."""
    length: int
    """Steps."""
    prompt_tokens: int | None
    completion_tokens: int | None
    duration: float | None
    """Seconds."""
    latency: float | None
    """Mean seconds of the model calls of its steps; None without such a call."""
    cost: float | None
    """US dollars."""
    inputs: Mapping[str, Any]

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens together."""
        known = [count for count in (self.prompt_tokens, self.completion_tokens) if count is not None]
        return sum(known) if known else None

    @property
    def unit(self) -> tuple[str, str] | None:
        """What makes two episodes comparable: environment and task, else environment and seed."""
        if self.task is not None:
            return self.env, self.task
        return None if self.seed is None else (self.env, f"seed {self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One side of a comparison."""

    name: str
    """What it was read from."""
    runs: tuple[Run, ...]
    episodes: tuple[EpisodeFigures, ...]
    """In order of start."""
    problems: tuple[str, ...] = ()
    """What is wrong with the recordings, in words."""
    updates: Mapping[str, int] = field(default_factory=dict)
    """Policy updates by run id."""

    def by_run(self) -> dict[str, list[EpisodeFigures]]:
        """The episodes of each run, in order of start."""
        found: dict[str, list[EpisodeFigures]] = {}
        for episode in self.episodes:
            found.setdefault(episode.run, []).append(episode)
        return found

    @property
    def is_training(self) -> bool:
        """Whether a run updated its policy while it recorded these episodes."""
        return any(self.updates.get(run, 0) > 0 for run in {episode.run for episode in self.episodes})


def load(side: Side, *, progress: Callable[[int], object] | None = None) -> Sample:
    """
    The episodes of a side; raises ReadError where there is nothing to read or no episode in it.
    """
    recordings = [_recording(source, progress) for source in _sources(side)]
    name = ", ".join(str(path) for one in recordings for path in one.sources) or "memory"
    episodes = sorted(
        (figures(episode) for one in recordings for episode in one.episodes),
        key=lambda one: (one.start_time, one.trace_id),
    )
    if not episodes:
        raise ReadError(f"{name} holds no episodes: there is nothing to compare")
    updates: dict[str, int] = {}
    for one in recordings:
        for update in one.updates:
            updates[update.run_id] = updates.get(update.run_id, 0) + 1
    return Sample(
        name=name,
        runs=tuple(run for one in recordings for run in one.runs),
        episodes=tuple(episodes),
        problems=tuple(str(problem.message) for one in recordings for problem in one.problems),
        updates=updates,
    )


def _sources(side: Side) -> Iterable[Any]:
    if isinstance(side, Sequence) and not isinstance(side, (str, bytes)):
        return side
    return [side]


def _recording(source: Any, progress: Callable[[int], object] | None) -> Recording:
    return source if isinstance(source, Recording) else read(source, progress=progress)


def figures(episode: Episode) -> EpisodeFigures:
    """The figures of an episode."""
    reward, blocks = episode.reward, [step.tokens for step in episode.steps if step.tokens is not None]
    scored = [reward] if reward.components or reward.spec else _of_steps(episode)
    spec = next((one.spec for one in reversed(scored) if one.spec), None)
    verdict = {"pass": True, "fail": False}.get(reward.verdict or "")
    return EpisodeFigures(
        trace_id=episode.trace_id,
        run=episode.run_id,
        start_time=episode.start_time or 0,
        env=episode.env,
        task=episode.task,
        seed=episode.seed,
        split=episode.split,
        slices=tuple(episode.slices),
        group=episode.group,
        policy_version=episode.policy_version_start,
        status=episode.status,
        stop_reason=episode.stop_reason,
        truncated=episode.truncated,
        success={"success": True, "failure": False}.get(episode.outcome, verdict),
        return_=episode.return_,
        reward=reward.value,
        reward_status=reward.status,
        verdict=reward.verdict,
        components=_components(scored),
        component_statuses={
            name: status for one in scored for name, status in one.component_statuses.items()
        },
        failed_checks=tuple(sorted({check for one in scored for check in one.failed_checks})),
        metrics=episode.metrics,
        spec=("", "", "") if spec is None else (spec.name, spec.version or "", spec.sha256 or ""),
        grader=(reward.grader or "", reward.grader_version or ""),
        length=episode.length,
        prompt_tokens=sum(len(one.prompt_ids) if one.prompt_ids is not None else 0 for one in blocks)
        if blocks
        else None,
        completion_tokens=sum(len(one.ids) if one.ids is not None else 0 for one in blocks)
        if blocks
        else None,
        duration=episode.duration,
        latency=_latency(episode),
        cost=episode.cost_usd,
        inputs=episode.inputs if isinstance(episode.inputs, Mapping) else {},
    )


def _of_steps(episode: Episode) -> list[Reward]:
    """The last scoring of each step."""
    return [step.rewards[-1] for step in episode.steps if step.rewards]


def _components(scored: Sequence[Reward]) -> dict[str, float]:
    names = {name for one in scored for name in one.components}
    return {name: math.fsum(one.components.get(name, 0.0) for one in scored) for name in sorted(names)}


def _latency(episode: Episode) -> float | None:
    """The mean seconds of the model calls of its steps."""
    seconds = [
        (call.end_time - call.start_time) / 1e9
        for step in episode.steps
        for call in step.calls
        if call.operation != "execute_tool" and call.start_time is not None and call.end_time is not None
    ]
    return math.fsum(seconds) / len(seconds) if seconds else None

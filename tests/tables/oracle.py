"""The figures of an episode as its value says, by the shortest code: what tables are tested against."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mttp.codec.plain import to_json
from mttp.model.episodes import Episode, Reward
from mttp.model.figures import EpisodeFigures


def expected_figures(episode: Episode) -> EpisodeFigures:
    """The figures that the row of the episode has."""
    blocks = [step.tokens for step in episode.steps if step.tokens is not None]
    calls = [
        (call.end_time - call.start_time, call.time_to_first_chunk)
        for step in episode.steps
        for call in step.calls
        if call.operation != "execute_tool" and call.start_time is not None and call.end_time is not None
    ]
    reward = episode.reward
    of_steps = [step.rewards[-1] for step in episode.steps if step.rewards]
    scorings = [reward] if reward.components or (reward.spec and reward.spec.name) else of_steps
    specs = [scoring.spec for scoring in scorings if scoring.spec is not None]
    return EpisodeFigures(
        share=episode.sampling_share,
        trace_id=episode.trace_id,
        run=episode.run_id,
        start_time=episode.start_time or 0,
        env=episode.env,
        task=episode.task,
        seed=None if episode.seed is None else str(episode.seed),
        split=episode.split,
        slices=tuple(episode.slices),
        group=episode.group,
        policy_version=episode.policy_version_start,
        status=episode.status,
        outcome=episode.outcome,
        stop_reason=episode.stop_reason,
        truncated=episode.truncated,
        return_=known(episode.return_),
        reward=known(reward.value),
        reward_status=reward.status,
        verdict=reward.verdict,
        components={
            name: total(scoring.components.get(name, 0.0) for scoring in scorings)
            for name in sorted({name for scoring in scorings for name in scoring.components})
        },
        component_statuses={
            name: status for scoring in scorings for name, status in scoring.component_statuses.items()
        },
        failed_checks=tuple(sorted({check for scoring in scorings for check in scoring.failed_checks})),
        spec=(specs[-1].name, specs[-1].version or "", specs[-1].sha256 or "") if specs else ("", "", ""),
        graders=(*graders([reward]), *graders(of_steps)),
        metrics=episode.metrics,
        metadata={
            name: str(value)
            for name, value in episode.metadata.items()
            if isinstance(value, (str, int, float)) and len(str(value)) <= 100
        },
        length=episode.length,
        prompt_tokens=sum(block.prompt_count or 0 for block in blocks) if blocks else None,
        completion_tokens=sum(block.count or 0 for block in blocks) if blocks else None,
        call_count=len(calls),
        call_seconds=sum(duration for duration, _ in calls) / 1e9,
        time_to_first_token=mean([first for _, first in calls if known(first) is not None]),
        duration=episode.duration,
        cost=known(episode.cost_usd),
        inputs_json=None if episode.inputs is None else to_json(episode.inputs, []),
        env_version=episode.env_version,
        env_kwargs=to_json(episode.env_kwargs, []) if episode.env_kwargs else None,
        env_spaces=to_json(episode.env_spaces, []) if episode.env_spaces else None,
        env_wrappers=tuple(episode.env_wrappers),
    )


def known(number: float | None) -> float | None:
    """The number; None if it is NaN."""
    return None if number is None or math.isnan(number) else number


def mean(numbers: Sequence[Any]) -> float | None:
    """The mean; None without a number."""
    return math.fsum(number / len(numbers) for number in numbers) if numbers else None


def total(numbers: Iterable[float]) -> float:
    """The sum, which is infinite where that of finite numbers overflows."""
    values = [*numbers]
    try:
        return math.fsum(values)
    except OverflowError:
        return sum(values)


def graders(scorings: Sequence[Reward]) -> list[tuple[str, str]]:
    """Name and version of each grader, sorted."""
    named = {(scoring.grader or "", scoring.grader_version or "") for scoring in scorings}
    return sorted(named - {("", "")})

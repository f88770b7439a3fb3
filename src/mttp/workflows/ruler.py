"""
RULER, ART's relative judge, as a component of reward specs; and reward specs in its place in ART.

    spec = mttp.RewardSpec(name="taste", version="1.0.0", components=[ruler])
    groups = await art.gather_trajectory_groups(..., after_each=scored_by(spec, seed=7))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mttp.errors import MissingExtra
from mttp.integrations import art
from mttp.rewards import Score, judge

if TYPE_CHECKING:
    from mttp.rewards import RewardSpec

__all__ = ["ruler", "scored_by"]


@judge(relative=True, range=(0, 1))
async def ruler(
    messages: Sequence[Sequence[Mapping[str, Any]]],
    *,
    judge_model: str = "openai/o3",
    rubric: str | None = None,
    litellm_params: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """
    Return RULER's scores of a group, from 0 to 1, with the judge's explanations.

    `messages` are the chat messages of each member. `judge_model`, `rubric` and `litellm_params` are those of
    `art.rewards.ruler`; in a spec they are the component's `params`.
    With `repeats` the members are shuffled for each call, against a judge's position bias.
    Raises MissingExtra without ART.
    """
    try:
        from art.rewards import ruler as judge_group
    except ImportError as error:
        raise MissingExtra(package="openpipe-art", extra="art", purpose="RULER") from error
    chosen = {} if rubric is None else {"rubric": rubric}
    scores = await judge_group(
        [list(map(dict, chat)) for chat in messages],
        judge_model=judge_model,
        extra_litellm_params=dict(litellm_params or {}),
        **chosen,
    )
    values = [Score(float(answer.score), explanation=str(answer.explanation)) for answer in scores]
    return {"scores": values, "model": judge_model, "prompt": rubric or "RULER's default rubric"}


def scored_by(
    spec: RewardSpec,
    *,
    inputs: Callable[[Any], Mapping[str, Any]] | None = None,
    seed: int | None = None,
) -> Callable[[Any], Awaitable[Any]]:
    """
    Return a function for `after_each` that sets the rewards of a group to those of a reward spec.

    `inputs` returns the spec's inputs for a trajectory, by default its `messages` and its metadata.
    `seed` shuffles the order that relative components receive.
    The rewards are recorded with their components. A trajectory without a valid reward is left out of the
    group, since ART has no other value for it than a number; it is recorded with its error.
    """

    def default_inputs(trajectory: Any) -> Mapping[str, Any]:
        return {**trajectory.metadata, "messages": trajectory.messages()}

    async def score(group: Any) -> Any:
        members = list(group.trajectories)
        samples = [dict((inputs or default_inputs)(trajectory)) for trajectory in members]
        ranking = await asyncio.to_thread(spec.rank, samples, seed=seed)
        for trajectory, result in zip(members, ranking.results, strict=True):
            if result.value is not None:
                trajectory.metrics["independent_reward"] = trajectory.reward
                trajectory.reward = result.value
        pairs = [*zip(members, ranking.results, strict=True)]
        art.keep_results(group, pairs)
        group.trajectories[:] = [trajectory for trajectory, result in pairs if result.value is not None]
        return group

    return score

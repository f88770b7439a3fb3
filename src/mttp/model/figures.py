"""The figures of one episode that studies, reports and views use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mttp.model.counting import is_counted, is_return_counted, is_reward_counted
from mttp.model.nesting import from_json

__all__ = ["EpisodeFigures"]

_OUTCOMES = {"success": True, "failure": False}
_VERDICTS = {"pass": True, "fail": False}


class EpisodeFigures(NamedTuple):
    """A row of the table of episodes; None where the recording does not state a value."""

    trace_id: str
    run: str
    """The run's id."""
    start_time: int
    """Nanoseconds since the Unix epoch."""
    env: str
    task: str | None
    seed: str | None
    split: str | None
    slices: tuple[str, ...]
    group: str | None
    policy_version: str | None
    """Version of the policy at the first step."""
    status: str
    outcome: str
    stop_reason: str | None
    truncated: bool | None
    return_: float | None
    reward: float | None
    """Value of the reward of the episode."""
    reward_status: str
    verdict: str | None
    """pass or fail, of the reward of the episode."""
    components: Mapping[str, float]
    """Scores of the reward of the episode if it has any or a spec; else sums over rewards of its steps."""
    component_statuses: Mapping[str, str]
    """Status of the components that are not ok, of the same rewards."""
    failed_checks: tuple[str, ...]
    """Names of the checks that failed, of the same rewards, sorted."""
    spec: tuple[str, str, str]
    """Name, version and digest of the reward spec, of the same rewards; empty strings if there is none."""
    graders: tuple[tuple[str, str], ...]
    """Name and version of the graders of the reward of the episode, then of those of its steps."""
    metrics: Mapping[str, float]
    metadata: Mapping[str, str]
    """The user-supplied numbers, booleans and short texts, as text."""
    length: int | None
    """Steps; None in `as_counted` of an episode that does not count."""
    prompt_tokens: int | None
    completion_tokens: int | None
    call_count: int
    """Model calls of its steps, without calls of tools."""
    call_seconds: float
    """Duration of these calls together."""
    time_to_first_token: float | None
    """Mean seconds to the first token of those of these calls that state it."""
    duration: float | None
    """Seconds."""
    cost: float | None
    """US dollars."""
    inputs_json: str | None
    """What a reward needs besides the steps, as JSON."""
    env_version: str | None
    env_kwargs: str | None
    """The environment's constructor arguments, as JSON."""
    env_spaces: str | None
    """The environment's observation and action space, as JSON."""
    env_wrappers: tuple[str, ...]
    """The environment's wrappers, outermost first."""
    share: float | None
    """The share with which samplers kept it."""

    @property
    def success(self) -> bool | None:
        """By the outcome; else by the verdict of the reward."""
        success = _OUTCOMES.get(self.outcome)
        return _VERDICTS.get(self.verdict or "") if success is None else success

    @property
    def is_answered(self) -> bool | None:
        """Whether it was scored; False if policy or grader abstained, None if it failed."""
        if self.reward_status == "abstained":
            return False
        return True if self.success is not None or self.reward is not None else None

    @property
    def grader(self) -> tuple[str, str]:
        """The first grader; empty strings if there is none."""
        return next(iter(self.graders), ("", ""))

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens together."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens

    @property
    def latency(self) -> float | None:
        """Mean seconds of the model calls of its steps; None without such a call."""
        return self.call_seconds / self.call_count if self.call_count else None

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What a reward needs besides the steps, by name."""
        inputs = {} if self.inputs_json is None else from_json(self.inputs_json)
        return inputs if isinstance(inputs, Mapping) else {}

    @property
    def unit(self) -> tuple[str, str] | None:
        """What makes two episodes comparable: environment and task, else environment and seed."""
        if self.task is not None:
            return self.env, self.task
        return None if self.seed is None else (self.env, f"seed {self.seed}")

    def as_counted(self) -> EpisodeFigures:
        """
        Return the figures for statistics: without the numbers that do not count.

        An episode that did not end has no return, length, outcome, tokens or times.
        A reward whose status is not ok is no reward, also where a number was trained with.
        """
        if not is_counted(self.status):
            return self._replace(**_NOT_COUNTED)
        if self.reward is not None and not is_reward_counted(self.reward_status):
            counts = is_return_counted(self.return_, self.reward, self.reward_status)
            return self._replace(reward=None, return_=self.return_ if counts else None)
        return self


_NOT_COUNTED: dict[str, Any] = {
    "return_": None,
    "reward": None,
    "outcome": "unknown",
    "verdict": None,
    "components": {},
    "component_statuses": {},
    "failed_checks": (),
    "length": None,
    "prompt_tokens": None,
    "completion_tokens": None,
    "call_count": 0,
    "call_seconds": 0.0,
    "time_to_first_token": None,
    "duration": None,
    "cost": None,
    "metrics": {},
}
"""The fields of an episode that does not count, which are partial numbers."""

"""The figures of one episode that studies use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from mttp.codec import summary_fields, templates
from mttp.model.counting import is_counted, is_return_counted, is_reward_counted
from mttp.model.estimates import mean
from mttp.model.gradings import Scored
from mttp.model.nesting import from_json
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

if TYPE_CHECKING:
    from mttp.model.scorings import Reward

__all__ = [
    "NO_REWARD",
    "SummaryFigures",
    "FigureCounts",
    "ScoreFigures",
    "is_model_call",
    "known",
    "mean_known",
    "labels",
    "reward_figures",
    "summed_scores",
]

_OUTCOMES = {"success": True, "failure": False}
_VERDICTS = {"pass": True, "fail": False}
_EXECUTE_TOOL = "execute_tool"
_LONGEST_LABEL = 100


class ScoreFigures(NamedTuple):
    """The scores of one scoring, or of the scorings of several steps."""

    components: Mapping[str, float] = {}
    """Scores by component; summed over steps."""
    component_statuses: Mapping[str, str] = {}
    """Status of the components that are not ok."""
    failed_checks: tuple[str, ...] = ()
    """Names of the checks that failed, sorted."""
    spec: tuple[str, str, str] = ("", "", "")
    """Name, version and digest of the reward spec; empty strings if there is none."""
    graders: tuple[tuple[str, str], ...] = ()
    """Name and version of each grader, sorted."""

    def merged(self, other: ScoreFigures) -> ScoreFigures:
        """These scores with those of further steps."""
        found = {
            name: self.components.get(name, 0.0) + other.components.get(name, 0.0)
            for name in sorted({**self.components, **other.components})
        }
        return ScoreFigures(
            found,
            {**self.component_statuses, **other.component_statuses},
            tuple(sorted({*self.failed_checks, *other.failed_checks})),
            other.spec if other.spec[0] else self.spec,
            tuple(sorted({*self.graders, *other.graders})),
        )


_NO_SCORES = ScoreFigures()


class FigureCounts:
    """Counts the spans of an episode that its figures need; repeated spans must not be added."""

    __slots__ = ("_calls", "_closings", "_others", "steps", "tokens")

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        """Index of each step by span id."""
        self.tokens: tuple[int, int] | None = None
        """Prompt and completion tokens; None if no step has a token block."""
        self._calls: list[tuple[str, int, float | None]] = []
        """Parent, duration in nanoseconds and seconds to the first token of each model call."""
        self._others: set[str] = set()
        """Ids of the spans that are not steps."""
        self._closings: list[tuple[tuple[int, int], Mapping[str, Any]]] = []
        """Start, end and attributes of the ends of other processes' parts."""

    def add(self, kind: str, record: SpanRecord) -> None:
        """Count a span of that kind."""
        found = record.attributes
        if kind == names.STEP:
            self.add_step(record.span_id, found)
            return
        self._others.add(record.span_id)
        if kind == names.STEPS:
            self._add_tokens(found)
        elif kind == summary_fields.CALL:
            if is_model_call(found):
                first = found.get(a.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK)
                self._calls.append((record.parent_id, record.end_time - record.start_time, first))
        elif kind == names.SEGMENT:
            times = record.start_time, record.end_time
            self._closings.append((times, found))

    def add_step(self, span_id: str, attributes: Mapping[str, Any]) -> None:
        """Count a step."""
        self.steps[span_id] = summary_fields.count(attributes, a.STEP_INDEX)
        self._add_tokens(attributes)

    def _add_tokens(self, attributes: Mapping[str, Any]) -> None:
        if a.TOKEN_COUNT in attributes or a.TOKEN_ENCODING in attributes:
            given, sampled = self.tokens or (0, 0)
            more_given, more_sampled = summary_fields.counts(attributes)
            self.tokens = given + more_given, sampled + more_sampled

    def calls(self) -> tuple[int, int]:
        """Number and total duration in nanoseconds of the model calls right below steps."""
        found = [duration for parent, duration, _ in self._calls if parent in self.steps]
        return len(found), sum(found)

    def time_to_first_token(self) -> float | None:
        """Mean seconds to the first token of the model calls right below steps; None if none states it."""
        return mean_known(first for parent, _, first in self._calls if parent in self.steps)

    @property
    def has_unplaced_calls(self) -> bool:
        """Whether the parent of a model call is not known, for example a span of another library."""
        return any(parent not in self.steps and parent not in self._others for parent, _, _ in self._calls)

    def metrics(self, own: Mapping[str, float]) -> dict[str, float]:
        """The metrics of the episode with those of other processes."""
        return self._merged(a.METRIC, own)

    def metadata(self, own: Mapping[str, str]) -> dict[str, str]:
        """The labels of the episode's metadata with those of other processes."""
        return {**labels(self._merged(a.METADATA, {})), **own}

    def _merged(self, prefix: str, own: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _, attributes in sorted(self._closings, key=itemgetter(0)):
            found = templates.decode(prefix, attributes) | found
        return {**found, **own}


class SummaryFigures(NamedTuple):
    """What a study uses of one episode; None where the recording does not state it."""

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
    metrics: Mapping[str, float]
    metadata: Mapping[str, str]
    """The result of `labels` for the user-supplied values."""
    length: int | None
    """Steps; None in `as_counted` of an episode that does not count."""
    prompt_tokens: int | None
    completion_tokens: int | None
    call_count: int
    """Model calls of its steps, without calls of tools."""
    call_nanoseconds: int
    """Duration of these calls together."""
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
    time_to_first_token: float | None
    """Mean seconds to the first token of the model calls of its steps that state it."""
    share: float | None
    """The share with which samplers kept it."""
    reward_scores: ScoreFigures
    """Of the reward of the episode."""
    step_scores: ScoreFigures
    """Of the last scoring of each step."""

    @property
    def success(self) -> bool | None:
        """By the outcome; else by the verdict of the reward."""
        found = _OUTCOMES.get(self.outcome)
        return _VERDICTS.get(self.verdict or "") if found is None else found

    @property
    def is_answered(self) -> bool | None:
        """Whether it was scored; False if policy or grader abstained, None if it failed."""
        if self.reward_status == "abstained":
            return False
        return True if self.success is not None or self.reward is not None else None

    @property
    def scores(self) -> ScoreFigures:
        """Those of the reward of the episode if it has components or a spec; else those of its steps."""
        of_episode = self.reward_scores
        return of_episode if of_episode.components or of_episode.spec[0] else self.step_scores

    @property
    def components(self) -> Mapping[str, float]:
        """Of the reward of the episode; else summed over the rewards of its steps."""
        return self.scores.components

    @property
    def component_statuses(self) -> Mapping[str, str]:
        """Status of the components that are not ok, of the same rewards."""
        return self.scores.component_statuses

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """Names of the checks that failed, of the same rewards."""
        return self.scores.failed_checks

    @property
    def spec(self) -> tuple[str, str, str]:
        """Name, version and digest of the reward spec; empty strings if there is none."""
        return self.scores.spec

    @property
    def graders(self) -> tuple[tuple[str, str], ...]:
        """Name and version of the graders of the reward of the episode, then of those of its steps."""
        return (*self.reward_scores.graders, *self.step_scores.graders)

    @property
    def grader(self) -> tuple[str, str]:
        """The first of them; empty strings if there is none."""
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
        return self.call_nanoseconds / 1e9 / self.call_count if self.call_count else None

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What a reward needs besides the steps, by name."""
        found = {} if self.inputs_json is None else from_json(self.inputs_json)
        return found if isinstance(found, Mapping) else {}

    @property
    def unit(self) -> tuple[str, str] | None:
        """What makes two episodes comparable: environment and task, else environment and seed."""
        if self.task is not None:
            return self.env, self.task
        return None if self.seed is None else (self.env, f"seed {self.seed}")

    def as_counted(self) -> SummaryFigures:
        """
        Return the figures for statistics: without the numbers that do not count.

        An episode that did not end has no return, length, outcome, tokens or times.
        A reward whose status is not ok is no reward, also where a number was trained with.
        """
        if not is_counted(self.status):
            scorer = ScoreFigures(spec=self.scores.spec, graders=self.graders)
            return self._replace(**_NOT_COUNTED, reward_scores=scorer)
        if self.reward is not None and not is_reward_counted(self.reward_status):
            counts = is_return_counted(self.return_, self.reward, self.reward_status)
            return self._replace(reward=None, return_=self.return_ if counts else None)
        return self

    def plain(self) -> tuple[Any, ...]:
        """The fields as plain data."""
        return (*self[:-2], tuple(self.reward_scores), tuple(self.step_scores))

    @classmethod
    def of_plain(cls, values: Sequence[Any]) -> SummaryFigures:
        """The figures from the result of `plain`."""
        return cls._make((*values[:-2], _scores_of_plain(values[-2]), _scores_of_plain(values[-1])))


_NOT_COUNTED: dict[str, Any] = {
    "return_": None,
    "reward": None,
    "outcome": "unknown",
    "verdict": None,
    "length": None,
    "prompt_tokens": None,
    "completion_tokens": None,
    "call_count": 0,
    "call_nanoseconds": 0,
    "duration": None,
    "cost": None,
    "time_to_first_token": None,
    "metrics": {},
    "step_scores": ScoreFigures(),
}
"""The fields of an episode that does not count, which are partial numbers."""


def _scores_of_plain(values: Sequence[Any]) -> ScoreFigures:
    return ScoreFigures._make(values)


def is_model_call(attributes: Mapping[str, Any]) -> bool:
    """Whether a call is one of a model, not of a tool."""
    return attributes.get(a.GEN_AI_OPERATION_NAME) != _EXECUTE_TOOL


def labels(values: Mapping[str, Any]) -> dict[str, str]:
    """The numbers, booleans and short texts as text: the values by which episodes can be sliced."""
    return {
        name: found
        for name, value in values.items()
        if isinstance(value, (str, int, float)) and len(found := str(value)) <= _LONGEST_LABEL
    }


def known(value: float | None) -> float | None:
    """The number; None if it is NaN."""
    return None if value is None or math.isnan(value) else value


def mean_known(values: Iterable[float | None]) -> float | None:
    """The mean of the numbers in order of their size; None without one."""
    return mean(sorted(value for value in values if known(value) is not None))  # type: ignore[type-var]


def reward_figures(reward: Reward | Scored) -> dict[str, Any]:
    """The fields of `SummaryFigures` from the reward of the episode."""
    return {
        "reward": known(reward.value),
        "reward_status": reward.status,
        "verdict": reward.verdict,
        "reward_scores": summed_scores([reward]),
    }


NO_REWARD: dict[str, Any] = {
    "reward": None,
    "reward_status": "missing",
    "verdict": None,
    "reward_scores": _NO_SCORES,
}
"""The result of `reward_figures` for an episode without a reward."""


def _sum(values: Sequence[float]) -> float:
    """Return the sum, which is infinite where the sum of finite numbers overflows."""
    try:
        return math.fsum(values)
    except OverflowError:
        return sum(values)


def summed_scores(scorings: Sequence[Reward | Scored]) -> ScoreFigures:
    """The scores of these scorings together, in order of their steps."""
    if not scorings:
        return _NO_SCORES
    specs = [one.spec for one in scorings if one.spec is not None]
    spec = (specs[-1].name, specs[-1].version or "", specs[-1].sha256 or "") if specs else ("", "", "")
    found = {name for one in scorings for name in one.components}
    return ScoreFigures(
        {name: _sum([one.components.get(name, 0.0) for one in scorings]) for name in sorted(found)},
        {name: status for one in scorings for name, status in one.component_statuses.items()},
        tuple(sorted({check for one in scorings for check in one.failed_checks})),
        spec,
        tuple(
            sorted(
                {
                    (one.grader or "", one.grader_version or "")
                    for one in scorings
                    if one.grader or one.grader_version
                }
            )
        ),
    )

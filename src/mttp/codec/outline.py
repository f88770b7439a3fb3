"""The few scalars of a span that a summary needs, without decoding the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mttp.codec import components, kinds
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = [
    "CALL",
    "OTHER",
    "Ending",
    "Gap",
    "Played",
    "Scored",
    "closing",
    "counts",
    "ending",
    "env",
    "evaluation",
    "gap",
    "grade",
    "indices",
    "is_own",
    "is_root",
    "kind",
    "played",
    "scored",
    "scores_whole",
]

CALL = "call"
OTHER = "other"

_OF_EPISODES = frozenset(
    {names.EPISODE, names.EPISODE_START, names.SEGMENT, names.SEGMENT_START, names.AGENT}
    | {names.STEP, names.STEPS, names.REWARD, names.GRADE}
)


class Ending(NamedTuple):
    """What an episode's root says about the whole."""

    status: str
    outcome: str
    env: str
    spec: str
    """Name and version of the reward spec that paid; empty where none did."""
    return_: float | None
    return_basis: str
    """episode, steps, or empty where nothing was paid."""
    length: int
    span_count: int


class Scored(NamedTuple):
    """What one scoring says."""

    when: tuple[int, int]
    """When it began and ended."""
    parent: str
    """The span that was scored."""
    span: str
    """Its own span."""
    states_total: bool
    """Whether it says what was paid, if only that it can't be known."""
    value: float | None
    spec: str
    scores: dict[str, float]


class Played(NamedTuple):
    """What one step, or a block of them, says."""

    steps: int
    """How many it is."""
    position: int
    """The step's index, of several the last one's."""
    agent: str | None
    """Whose it is."""
    reward: float | None
    """What it paid, or they did."""
    invalid: bool
    """Whether that can't be known."""


class Gap(NamedTuple):
    """What was lost between recorder and recording."""

    spans: int
    episodes: int
    reason: str


def kind(record: SpanRecord) -> str:
    """
    What the span is to an episode: the word that its name begins with, `CALL` or `OTHER`.

    `run`, `group`, `update`, `annotate` or `eval.run` for such a span, and empty for one that is not ours.
    """
    if a.RUN_ID not in record.attributes:
        return names.EVAL_RUN if kinds.is_evaluation(record) else ""
    if a.EPISODE_ID not in record.attributes:
        return _apart(record)
    word = record.name.partition(" ")[0]
    if word in _OF_EPISODES:
        return word
    return CALL if a.GEN_AI_OPERATION_NAME in record.attributes else OTHER


def is_root(name: str) -> bool:
    """Whether a span of that name is an episode's root, if it is ours."""
    return name.partition(" ")[0] == names.EPISODE


def is_own(attributes: Mapping[str, Any]) -> bool:
    """Whether it is a span of an episode that the process recorded which started it."""
    return a.RUN_ID in attributes and a.EPISODE_ID in attributes and a.SEGMENT_ID not in attributes


def _apart(record: SpanRecord) -> str:
    """What a span is that belongs to no episode."""
    if kinds.is_group(record) or kinds.is_update(record) or kinds.is_annotation(record):
        return record.name
    if kinds.is_evaluation(record):
        return names.EVAL_RUN
    return names.RUN if kinds.is_run(record) else ""


def ending(record: SpanRecord) -> Ending:
    """What the episode's root says."""
    found = record.attributes
    return Ending(
        status=str(found.get(a.EPISODE_STATUS, "completed")),
        outcome=str(found.get(a.EPISODE_OUTCOME, "unknown")),
        env=env(record),
        spec=_spec(record),
        return_=_number(record, a.EPISODE_RETURN),
        return_basis=str(found.get(a.EPISODE_RETURN_BASIS, "")),
        length=_count(record, a.EPISODE_LENGTH),
        span_count=_count(record, a.EPISODE_SPAN_COUNT),
    )


def _spec(record: SpanRecord) -> str:
    found = record.attributes
    return " ".join(str(found[key]) for key in (a.SPEC_NAME, a.SPEC_VERSION) if key in found)


def evaluation(record: SpanRecord) -> str:
    """Which evaluation a span of one belongs to."""
    return str(record.attributes.get(a.EVAL_ID, record.trace_id))


def closing(record: SpanRecord) -> int:
    """How many spans a part of an episode has, by its closing span."""
    return _count(record, a.SEGMENT_SPAN_COUNT)


def env(record: SpanRecord) -> str:
    """The environment's id, as root and start marker say it."""
    return str(record.attributes.get(a.ENV_ID, ""))


def played(record: SpanRecord) -> Played:
    """What a step, or a block of them, says."""
    agent = record.attributes.get(a.AGENT_ID)
    whose = None if agent is None else str(agent)
    if steps := _count(record, a.STEPS_COUNT):
        invalid = _count(record, a.STEPS_REWARD_ERRORS) > 0
        return Played(
            steps=steps,
            position=_count(record, a.STEPS_FIRST_INDEX) + steps - 1,
            agent=whose,
            reward=None if invalid else _number(record, a.STEPS_REWARD_SUM),
            invalid=invalid,
        )
    return Played(
        steps=1,
        position=_count(record, a.STEP_INDEX),
        agent=whose,
        reward=_number(record, a.STEP_REWARD),
        invalid=record.attributes.get(a.STEP_REWARD_STATUS) == "error"
        and a.STEP_REWARD not in record.attributes,
    )


def indices(record: SpanRecord) -> range:
    """The indices of a block's steps."""
    first = _count(record, a.STEPS_FIRST_INDEX)
    return range(first, first + _count(record, a.STEPS_COUNT))


def scores_whole(record: SpanRecord) -> bool:
    """Whether a scoring is of the episode, and not of a step or an agent, as far as it says so itself."""
    return a.STEP_INDEX not in record.attributes and a.AGENT_ID not in record.attributes


def scored(record: SpanRecord) -> Scored:
    """What a scoring says."""
    return Scored(
        when=(record.start_time, record.end_time),
        parent=record.parent_id,
        span=record.span_id,
        states_total=a.REWARD_VALUE in record.attributes or record.attributes.get(a.REWARD_STATUS) == "error",
        value=_number(record, a.REWARD_VALUE),
        spec=_spec(record),
        scores=_scores(record),
    )


def counts(attributes: Mapping[str, Any]) -> tuple[int, int]:
    """
    Tokens given and sampled, by a step's token block or a model's own account of a call.

    Those of a grader's calls are none of the policy's.
    """
    if a.GEN_AI_OPERATION_NAME in attributes:
        if a.GRADER_NAME in attributes:
            return 0, 0
        given, sampled = a.GEN_AI_USAGE_INPUT_TOKENS, a.GEN_AI_USAGE_OUTPUT_TOKENS
    else:
        given, sampled = a.TOKEN_PROMPT_COUNT, a.TOKEN_COUNT
    return _number_of(attributes.get(given)), _number_of(attributes.get(sampled))


def _scores(record: SpanRecord) -> dict[str, float]:
    """Each component's score that means something beyond its group."""
    if record.attributes.get(a.GRADER_RELATIVE):
        return {}
    found = components.decode(a.REWARD_SCORE, record.attributes)
    return {name: float(score) for name, score in found.items() if isinstance(score, (int, float))}


def grade(record: SpanRecord) -> dict[str, float]:
    """The score of a component that has a span of its own, if it means something beyond its group."""
    if record.attributes.get(a.GRADER_RELATIVE):
        return {}
    score = _number(record, a.REWARD_VALUE)
    return {} if score is None else {components.name(record.attributes): score}


def gap(record: SpanRecord) -> Gap | None:
    """What a transport says that it lost, where the span is such a note."""
    if record.name != names.GAP or a.RUN_ID not in record.attributes:
        return None
    reason = str(record.attributes.get(a.GAP_REASON, "unknown"))
    return Gap(_count(record, a.GAP_SPANS), _count(record, a.GAP_EPISODES), reason)


def _number(record: SpanRecord, key: str) -> float | None:
    value = record.attributes.get(key)
    return float(value) if isinstance(value, (int, float)) else None


def _count(record: SpanRecord, key: str) -> int:
    return _number_of(record.attributes.get(key))


def _number_of(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0

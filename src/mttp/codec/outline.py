"""The few scalars of a span that a summary needs, without decoding the rest."""

from __future__ import annotations

from typing import NamedTuple

from mttp.codec import annotations as annotation_codec
from mttp.codec import groups, runs, templates, updates
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = [
    "CALL",
    "OTHER",
    "Ending",
    "Gap",
    "counts",
    "ending",
    "env",
    "gap",
    "grade",
    "kind",
    "scores",
    "steps",
]

CALL = "call"
OTHER = "other"

_OF_EPISODES = frozenset(
    {names.EPISODE, names.EPISODE_START, names.STEP, names.STEPS, names.REWARD, names.GRADE}
)


class Ending(NamedTuple):
    """What an episode's root says about the whole."""

    status: str
    outcome: str
    env: str
    spec: str
    """Name and version of the reward spec that paid; empty where none did."""
    return_: float | None
    length: int
    span_count: int


class Gap(NamedTuple):
    """What was lost between recorder and recording."""

    spans: int
    episodes: int
    reason: str


def kind(record: SpanRecord) -> str:
    """
    What the span is to an episode: the word that its name begins with, `CALL` or `OTHER`.

    `run`, `group`, `update` or `annotate` for such a span, and empty for one that is not ours.
    """
    if a.RUN_ID not in record.attributes:
        return ""
    if a.EPISODE_ID not in record.attributes:
        return _apart(record)
    word = record.name.partition(" ")[0]
    if word in _OF_EPISODES:
        return word
    return CALL if a.GEN_AI_OPERATION_NAME in record.attributes else OTHER


def _apart(record: SpanRecord) -> str:
    """What a span is that belongs to no episode."""
    if groups.is_group(record) or updates.is_update(record) or annotation_codec.is_annotation(record):
        return record.name
    return names.RUN if runs.is_run(record) else ""


def ending(record: SpanRecord) -> Ending:
    """What the episode's root says."""
    found = record.attributes
    return Ending(
        status=str(found.get(a.EPISODE_STATUS, "completed")),
        outcome=str(found.get(a.EPISODE_OUTCOME, "unknown")),
        env=env(record),
        spec=" ".join(str(found[key]) for key in (a.SPEC_NAME, a.SPEC_VERSION) if key in found),
        return_=_number(record, a.EPISODE_RETURN),
        length=_count(record, a.EPISODE_LENGTH),
        span_count=_count(record, a.EPISODE_SPAN_COUNT),
    )


def env(record: SpanRecord) -> str:
    """The environment's id, as root and start marker say it."""
    return str(record.attributes.get(a.ENV_ID, ""))


def steps(record: SpanRecord) -> int:
    """How many steps a step's span holds."""
    return _count(record, a.STEPS_COUNT) or 1


def counts(record: SpanRecord) -> tuple[int, int]:
    """Tokens given and sampled, by a step's token block or a model's own account of a call."""
    if a.GEN_AI_OPERATION_NAME in record.attributes:
        return _count(record, a.GEN_AI_USAGE_INPUT_TOKENS), _count(record, a.GEN_AI_USAGE_OUTPUT_TOKENS)
    return _count(record, a.TOKEN_PROMPT_COUNT), _count(record, a.TOKEN_COUNT)


def scores(record: SpanRecord) -> dict[str, float]:
    """The scores of a scoring's components, by name."""
    found = templates.decode(a.REWARD_SCORE, record.attributes)
    return {name: float(score) for name, score in found.items() if isinstance(score, (int, float))}


def grade(record: SpanRecord) -> dict[str, float]:
    """The score of a component that has a span of its own."""
    score = _number(record, a.REWARD_VALUE)
    return {} if score is None else {str(record.attributes.get(a.GRADER_NAME, "")): score}


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
    value = record.attributes.get(key)
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0

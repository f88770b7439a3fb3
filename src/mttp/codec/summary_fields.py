"""The few scalars of a span that a summary needs, without decoding the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from mttp.codec import components, kinds
from mttp.codec.segments import StepFacts
from mttp.model.gradings import Graded, Scored
from mttp.model.scorings import Spec
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = [
    "CALL",
    "OTHER",
    "Children",
    "Gap",
    "Statement",
    "Updated",
    "children",
    "count",
    "counts",
    "evaluation",
    "fault_kind",
    "faults",
    "gap",
    "grade",
    "indices",
    "invalid_rewards",
    "is_own",
    "is_root",
    "kind",
    "members",
    "number",
    "omitted",
    "omitted_name",
    "played",
    "reward",
    "run",
    "scored",
    "spec",
    "statement",
    "updated",
    "with_grades",
]

CALL, OTHER = kinds.CALL, kinds.OTHER
Children: TypeAlias = Mapping[str, Sequence[SpanRecord]]
"""Spans by the span right above them, each in order of start."""
_NO_CHILDREN: Children = {}
_MAX_STEPS = 1000
"""Steps that one block takes at most."""
_FAULTS_OF_STEPS = f"{a.STEPS_COLUMN}.{a.FAULTS}"
_OMISSIONS_OF_STEPS = f"{a.STEPS_COLUMN}.{a.OMISSIONS}"
_DOCUMENTS = (a.RUN_CONFIG_JSON, a.ENV_KWARGS)
"""Attributes of which a part may be missing."""
_AS_ONE = {
    names.RUN_START: names.RUN,
    names.EVAL_RUN_START: names.EVAL_RUN,
    names.EVAL_RESULT: names.EVAL_RUN,
}
_COUNTED_APART = frozenset(
    {names.RUN, names.EVAL_RUN, names.GROUP, names.UPDATE, names.ANNOTATE, names.GRADE}
)


class Statement(NamedTuple):
    """An outcome or a score that was stated apart from the episode."""

    kind: str
    """outcome or score."""
    trace_id: str
    """The trace id of the annotation."""
    episode: str
    """The trace id of the episode that it is about."""
    span: str
    """The span that it is about, of the root or a step; empty where it names none."""
    order: tuple[int, int, str]
    """The highest wins."""
    value: object
    """The outcome or the score that it states."""


class Updated(NamedTuple):
    """What an update says."""

    order: tuple[int, str]
    """Updates are in this order."""
    loss: float | None
    kl: float | None
    entropy: float | None


class Gap(NamedTuple):
    """What was lost between recorder and recording."""

    spans: int
    episodes: int
    reason: str


def kind(record: SpanRecord) -> str:
    """
    What the span is to an episode: its type, `CALL` or `OTHER`.

    `run`, `group`, `update`, `annotate`, `eval.run` or `grade` for such a span, and empty for any other.
    """
    found = kinds.kind(record)
    if a.RUN_ID in record.attributes and a.EPISODE_ID in record.attributes:
        return found
    found = _AS_ONE.get(found, found)
    return found if found in _COUNTED_APART else ""


def is_root(name: str) -> bool:
    """Whether a span of that name is an episode's root, if it is ours."""
    return name.partition(" ")[0] == names.EPISODE


def is_own(attributes: Mapping[str, Any]) -> bool:
    """Whether it is a span of an episode that the process recorded which started it."""
    return a.RUN_ID in attributes and a.EPISODE_ID in attributes and a.SEGMENT_ID not in attributes


def run(record: SpanRecord) -> str:
    """The run's id."""
    return str(record.attributes.get(a.RUN_ID, ""))


def evaluation(record: SpanRecord) -> str:
    """Which evaluation a span of one belongs to."""
    return str(record.attributes.get(a.EVAL_ID, record.trace_id))


def played(record: SpanRecord) -> StepFacts:
    """What a step, or a block of steps, says of what was played and paid."""
    found = record.attributes
    agent = found.get(a.AGENT_ID)
    whose = None if agent is None else str(agent)
    if steps := count(record.attributes, a.STEPS_COUNT):
        is_known = not count(record.attributes, a.STEPS_REWARD_ERRORS)
        reward = number(found, a.STEPS_REWARD_SUM) if is_known else None
        return StepFacts(
            steps, count(record.attributes, a.STEPS_FIRST_INDEX) + steps - 1, whose, reward, is_known
        )
    reward = number(found, a.STEP_REWARD)
    is_known = reward is not None or found.get(a.STEP_REWARD_STATUS) != "error"
    return StepFacts(1, count(record.attributes, a.STEP_INDEX), whose, reward, is_known)


def invalid_rewards(attributes: Mapping[str, Any]) -> int:
    """How many steps, of a step's span or a packed block, have an error instead of a reward."""
    if a.STEPS_REWARD_ERRORS in attributes:
        return count(attributes, a.STEPS_REWARD_ERRORS)
    is_error = attributes.get(a.STEP_REWARD_STATUS) == "error"
    return int(is_error and number(attributes, a.STEP_REWARD) is None)


def indices(record: SpanRecord) -> range:
    """The indices of a block's steps."""
    first = count(record.attributes, a.STEPS_FIRST_INDEX)
    return range(first, first + count(record.attributes, a.STEPS_COUNT))


def spec(attributes: Mapping[str, Any]) -> str:
    """Name and version of the reward spec that the attributes state; empty where they state none."""
    return " ".join(str(attributes[key]) for key in (a.SPEC_NAME, a.SPEC_VERSION) if key in attributes)


def scored(record: SpanRecord) -> tuple[str, str]:
    """What a scoring is about: a step, an agent or an episode, and which."""
    found = record.attributes
    if a.STEP_INDEX in found:
        return "step", record.parent_id
    return ("agent", str(found[a.AGENT_ID])) if a.AGENT_ID in found else ("episode", record.parent_id)


def reward(record: SpanRecord) -> Scored:
    """The scoring that a span holds, without what grades below it say."""
    found = record.attributes
    value = found.get(a.REWARD_VALUE, found.get(a.ANNOTATION_VALUE))
    status = str(found.get(a.REWARD_STATUS, "missing"))
    scores, statuses = components.scores(found)
    return Scored(
        value,
        "ok" if value is not None and status == "missing" else status,
        scores,
        statuses,
        found.get(a.REWARD_ERROR_TYPE),
        found.get(a.REWARD_VERDICT),
        tuple(_listed(found.get(a.REWARD_FAILED_CHECKS))),
        found.get(a.GRADER_NAME),
        found.get(a.GRADER_VERSION),
        found.get(a.GRADER_RELATIVE),
        _spec(found) if a.SPEC_NAME in found else None,
        (),
        record.span_id,
        record.start_time,
        record.end_time,
    )


def _spec(found: Mapping[str, Any]) -> Spec:
    return Spec(name=found[a.SPEC_NAME], version=found.get(a.SPEC_VERSION), sha256=found.get(a.SPEC_SHA256))


def with_grades(scored: Scored, children: Children) -> Scored:
    """The scoring with what grades below it say, which are among the `children`."""
    below = [one for one in children.get(scored.span_id, ()) if kinds.kind(one) == names.GRADE]
    if not below:
        return scored
    scores, statuses = {**scored.components}, {**scored.component_statuses}
    components.add_grades(scores, statuses, (one.attributes for one in below))
    grades = tuple(grade(one, children) for one in below if a.COMPONENT_NAME in one.attributes)
    return scored._replace(components=scores, component_statuses=statuses, grades=grades)


def grade(record: SpanRecord, children: Children = _NO_CHILDREN) -> Graded:
    """The grade that a span holds, its parts among the `children`."""
    found = record.attributes
    return Graded(
        components.name(found),
        found.get(a.REWARD_VALUE),
        str(found.get(a.REWARD_STATUS, "missing")),
        found.get(a.REWARD_ERROR_TYPE),
        found.get(a.REWARD_VERDICT),
        found.get(a.GRADER_RELATIVE),
        tuple(
            grade(one, children)
            for one in children.get(record.span_id, ())
            if a.COMPONENT_NAME in one.attributes and kinds.kind(one) == names.GRADE
        ),
    )


def children(records: Iterable[SpanRecord]) -> Children:
    """Spans by the span right above them, each in order of start."""
    found: dict[str, list[SpanRecord]] = {}
    for record in sorted(records, key=lambda record: (record.start_time, record.end_time)):
        found.setdefault(record.parent_id, []).append(record)
    return found


_STATEMENT_KEYS = {
    "outcome": (None, a.EPISODE_OUTCOME, "outcome", f"{a.METADATA}.outcome"),
    "score": (None, a.REWARD_VALUE, "score", f"{a.METADATA}.score"),
}
"""Keys of statements by kind; under another key nothing is stated of the episode."""


def statement(record: SpanRecord) -> Statement | None:
    """The outcome or score that an annotation states, but for one of a step by its index; else None."""
    found = record.attributes
    kind = str(found.get(a.ANNOTATION_KIND))
    if found.get(a.ANNOTATION_KEY) not in _STATEMENT_KEYS.get(kind, ()) or a.STEP_INDEX in found:
        return None
    return Statement(
        kind=kind,
        trace_id=record.trace_id,
        episode=str(found.get(a.ANNOTATION_TARGET_TRACE_ID, "")),
        span=str(found.get(a.ANNOTATION_TARGET_SPAN_ID, "")),
        order=(count(record.attributes, a.ANNOTATION_REVISION), record.start_time, record.span_id),
        value=found.get(a.ANNOTATION_VALUE),
    )


def members(record: SpanRecord) -> tuple[str, tuple[str, ...]]:
    """Id and trace ids of the episodes of a group."""
    found = record.attributes
    return str(found.get(a.GROUP_ID, "")), tuple(map(str, _listed(found.get(a.GROUP_EPISODES))))


def updated(record: SpanRecord) -> Updated:
    """What an update says."""
    return Updated(
        (record.start_time, record.span_id),
        number(record.attributes, a.UPDATE_LOSS),
        number(record.attributes, a.UPDATE_KL),
        number(record.attributes, a.UPDATE_ENTROPY),
    )


def faults(attributes: Mapping[str, Any]) -> Iterator[str]:
    """The kind of each fault that a span states, of a block of steps those of its steps."""
    yield from map(fault_kind, _listed(attributes.get(a.FAULTS)))
    stated = _listed(attributes.get(_FAULTS_OF_STEPS))
    if stated:
        times = count(attributes, a.STEPS_COUNT) if _is_same_for_all(attributes, a.FAULTS) else 1
        for fault in (fault for listed in stated for fault in _listed(listed)):
            yield from (fault_kind(fault) for _ in range(min(times, _MAX_STEPS)))


def omitted(attributes: Mapping[str, Any]) -> Iterator[str]:
    """The names of what is missing of a span, of a block of steps those of its steps."""
    yield from map(omitted_name, _listed(attributes.get(a.OMISSIONS)))
    stated = _listed(attributes.get(_OMISSIONS_OF_STEPS))
    if stated:
        same = _is_same_for_all(attributes, a.OMISSIONS)
        times = count(attributes, a.STEPS_COUNT) if same else 1
        for said in (said for listed in stated for said in _listed(listed)):
            yield from (omitted_name(said) for _ in range(min(times, _MAX_STEPS)))


def omitted_name(omission: object) -> str:
    """The name of what is missing, of `attribute: reason`; of something within an attribute that of this."""
    name = str(omission).partition(":")[0][:80]
    return next((key for key in _DOCUMENTS if name.startswith(f"{key}.")), name)


def _is_same_for_all(attributes: Mapping[str, Any], listed: str) -> bool:
    """Whether one entry stands for the lists of all steps of a block."""
    try:
        layout = json.loads(attributes.get(a.STEPS_LAYOUT) or "[]")
        return any(key == listed and which == "same" for key, _, _, which in layout)
    except (TypeError, ValueError):
        return False


def _listed(value: object) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, (list, tuple)) else ()


def fault_kind(fault: object) -> str:
    """The kind of a fault, of `kind: detail`."""
    return str(fault).partition(":")[0][:80]


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
    return count(attributes, given), count(attributes, sampled)


def gap(record: SpanRecord) -> Gap | None:
    """What a transport says that it lost, where the span is such a note."""
    if kinds.kind(record) != names.GAP:
        return None
    reason = str(record.attributes.get(a.GAP_REASON, "unknown"))
    return Gap(count(record.attributes, a.GAP_SPANS), count(record.attributes, a.GAP_EPISODES), reason)


def number(attributes: Mapping[str, Any], key: str) -> float | None:
    """The attribute as a float; None where it is no number."""
    value = attributes.get(key)
    return float(value) if isinstance(value, (int, float)) else None


def count(attributes: Mapping[str, Any], key: str) -> int:
    """The attribute as a count; 0 where it is none."""
    value = attributes.get(key)
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0

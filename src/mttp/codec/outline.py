"""The few scalars of a span that a summary needs, without decoding the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mttp.codec import components, kinds
from mttp.gradings import Grading
from mttp.scorings import INVALID_VALUE
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = [
    "CALL",
    "OTHER",
    "Ending",
    "Gap",
    "Graded",
    "Played",
    "Scored",
    "Statement",
    "Updated",
    "closing",
    "counts",
    "ending",
    "env",
    "evaluation",
    "fault_kind",
    "faults",
    "gap",
    "graded",
    "indices",
    "is_own",
    "is_root",
    "kind",
    "omitted",
    "omitted_name",
    "played",
    "run",
    "scored",
    "statement",
    "task",
    "updated",
    "with_grades",
]

CALL, OTHER = kinds.CALL, kinds.OTHER
_SCORE, _SCORE_STATUS = f"{a.REWARD_SCORE}.", f"{a.REWARD_SCORE_STATUS}."
_MAX_STEPS = 1000
"""Steps that one block takes at most."""
_COMPONENT_NAME = f"{a.REWARD_COMPONENT_NAME}."
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


class Ending(NamedTuple):
    """What an episode's root says about the whole."""

    run: str
    """The run's id."""
    status: str
    outcome: str
    env: str
    task: str
    spec: str
    """Name and version of the reward spec that paid; empty where none did."""
    return_: float | None
    return_basis: str
    """episode, steps, or empty where nothing was paid."""
    length: int
    span_count: int
    cost_usd: float | None = None


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
    gradings: tuple[Grading, ...]
    """Its total, and the components that it states itself."""
    agent: str | None = None
    """The agent that was scored, if it was one as a whole."""

    @property
    def scope(self) -> str:
        """What was scored: episode, agent or step; late where it was done apart from the recording."""
        return self.gradings[0].scope


class Graded(NamedTuple):
    """What the span of one component says."""

    parent: str
    """The scoring's span, or the one of the component that it is a part of."""
    span: str
    """Its own span."""
    is_graded: bool
    """Whether a reward spec graded it; else it is a score for which the scoring's span had no room."""
    grading: Grading
    """What it says, as if it were not a part of anything."""


class Statement(NamedTuple):
    """What an annotation states, as far as it changes figures."""

    episode: str
    """The trace id of the episode that it is about."""
    step_span: str
    """The span of the step that it is about, or of the episode's root; may be empty."""
    is_of_step: bool
    """Whether it names the step by its index."""
    order: tuple[int, int, str]
    """The highest wins."""
    outcome: object
    """The outcome that it states."""


class Updated(NamedTuple):
    """What an update says."""

    order: tuple[int, str]
    """Updates are in this order."""
    loss: float | None
    kl: float | None
    entropy: float | None


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


def ending(record: SpanRecord) -> Ending:
    """What the episode's root says."""
    found = record.attributes
    return Ending(
        run=run(record),
        status=str(found.get(a.EPISODE_STATUS, "completed")),
        outcome=str(found.get(a.EPISODE_OUTCOME, "unknown")),
        env=env(record),
        task=task(record),
        spec=_spec(record),
        return_=_number(record, a.EPISODE_RETURN),
        return_basis=str(found.get(a.EPISODE_RETURN_BASIS, "")),
        length=_count(record, a.EPISODE_LENGTH),
        span_count=_count(record, a.EPISODE_SPAN_COUNT),
        cost_usd=_number(record, a.USAGE_COST_USD),
    )


def run(record: SpanRecord) -> str:
    """The run's id."""
    return str(record.attributes.get(a.RUN_ID, ""))


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


def task(record: SpanRecord) -> str:
    """The task's id, as root and start marker say it."""
    return str(record.attributes.get(a.TASK_ID, ""))


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


def scored(record: SpanRecord) -> Scored:
    """What a scoring says."""
    found = record.attributes
    value = _number(record, a.REWARD_VALUE)
    if a.STEP_INDEX in found:
        return _scored(record, "step", value)
    if a.AGENT_ID in found:
        return _scored(record, "agent", value, str(found[a.AGENT_ID]))
    return _scored(record, "episode", value)


def _scored(record: SpanRecord, scope: str, value: float | None, agent: str | None = None) -> Scored:
    found = record.attributes
    status = found.get(a.REWARD_STATUS, "missing")
    if value is not None and status == "missing":
        status = "ok"
    spec = _spec(record)
    grader = spec or str(found.get(a.GRADER_NAME, ""))
    total = _grading(found, scope, grader, "", str(status), value)
    return Scored(
        (record.start_time, record.end_time),
        record.parent_id,
        record.span_id,
        value is not None or status == "error",
        value,
        spec,
        (total, *_components(found, scope, grader)),
        agent,
    )


def _components(found: Mapping[str, Any], scope: str, grader: str) -> list[Grading]:
    """The components that a scoring's own span states."""
    is_relative = bool(found.get(a.GRADER_RELATIVE))
    gradings = []
    for key, score in found.items():
        if key.startswith(_SCORE):
            if isinstance(score, (int, float)):
                name, value = key[len(_SCORE) :], None if is_relative else float(score)
                gradings.append(Grading(scope, grader, _named(found, name), "ok", None, value))
        elif key.startswith(_SCORE_STATUS):
            name, error_type = key[len(_SCORE_STATUS) :], INVALID_VALUE if score == "error" else None
            if _SCORE + name not in found:
                gradings.append(Grading(scope, grader, _named(found, name), str(score), error_type))
    return gradings


def _named(found: Mapping[str, Any], key: str) -> str:
    """The component's name, which its key may not show."""
    return str(found.get(_COMPONENT_NAME + key, key))


def _grading(
    found: Mapping[str, Any], scope: str, grader: str, component: str, status: str, value: float | None
) -> Grading:
    error_type, verdict = found.get(a.REWARD_ERROR_TYPE), found.get(a.REWARD_VERDICT)
    checks = found.get(a.REWARD_FAILED_CHECKS)
    return Grading(
        scope,
        grader,
        component,
        status,
        None if error_type is None else str(error_type),
        None if found.get(a.GRADER_RELATIVE) else value,
        None if verdict is None else str(verdict),
        tuple(map(str, checks)) if isinstance(checks, (list, tuple)) else (),
    )


def graded(record: SpanRecord) -> Graded:
    """What the span of a component says."""
    found = record.attributes
    return Graded(
        parent=record.parent_id,
        span=record.span_id,
        is_graded=a.COMPONENT_NAME in found,
        grading=_grading(
            found,
            "",
            "",
            components.name(found),
            str(found.get(a.REWARD_STATUS, "missing")),
            _number(record, a.REWARD_VALUE),
        ),
    )


def with_grades(scoring: Scored, grades: Sequence[Graded]) -> Scored:
    """
    The scoring with the components that have spans of their own, among `grades`.

    Where a reward spec graded the components, what the scoring's own span says of them is left out.
    """
    if not grades:
        return scoring
    below: dict[str, list[Graded]] = {}
    for one in grades:
        below.setdefault(one.parent, []).append(one)
    mine = below.get(scoring.span, [])
    if not mine:
        return scoring
    total, *stated = scoring.gradings
    if any(one.is_graded for one in mine):
        stated, mine = [], [one for one in mine if one.is_graded]
    found = (part for one in mine for part in _parts(one, below, total, ""))
    return scoring._replace(gradings=(total, *stated, *found))


def _parts(
    graded: Graded, below: Mapping[str, Sequence[Graded]], total: Grading, above: str
) -> Iterator[Grading]:
    """The grading of a component, and those of its parts by their path."""
    grading = graded.grading
    name = f"{above}{grading.component}"
    error_type = grading.error_type
    if not graded.is_graded and grading.status == "error":
        error_type = INVALID_VALUE
    yield grading._replace(scope=total.scope, grader=total.grader, component=name, error_type=error_type)
    if graded.is_graded:
        for part in below.get(graded.span, ()):
            if part.is_graded:
                yield from _parts(part, below, total, f"{name}.")


_OF_OUTCOMES = (None, a.EPISODE_OUTCOME, "outcome", f"{a.METADATA}.outcome")
"""Keys of statements of an outcome; under another key nothing is stated of the episode."""


def statement(record: SpanRecord) -> tuple[Statement | None, Scored | None]:
    """What an annotation states: an outcome, or a score."""
    found = record.attributes
    kind = found.get(a.ANNOTATION_KIND)
    if kind == "score":
        value = _number(record, a.REWARD_VALUE if a.REWARD_VALUE in found else a.ANNOTATION_VALUE)
        return None, _scored(record, "late", value)
    if kind != "outcome" or found.get(a.ANNOTATION_KEY) not in _OF_OUTCOMES:
        return None, None
    return Statement(
        episode=str(found.get(a.ANNOTATION_TARGET_TRACE_ID, "")),
        step_span=str(found.get(a.ANNOTATION_TARGET_SPAN_ID, "")),
        is_of_step=a.STEP_INDEX in found,
        order=(_count(record, a.ANNOTATION_REVISION), record.start_time, record.span_id),
        outcome=found.get(a.ANNOTATION_VALUE),
    ), None


def updated(record: SpanRecord) -> Updated:
    """What an update says."""
    return Updated(
        (record.start_time, record.span_id),
        _number(record, a.UPDATE_LOSS),
        _number(record, a.UPDATE_KL),
        _number(record, a.UPDATE_ENTROPY),
    )


def faults(attributes: Mapping[str, Any]) -> Iterator[str]:
    """The kind of each fault that a span states, of a block of steps those of its steps."""
    yield from map(fault_kind, _listed(attributes.get(a.FAULTS)))
    stated = _listed(attributes.get(_FAULTS_OF_STEPS))
    if stated:
        times = _number_of(attributes.get(a.STEPS_COUNT)) if _is_same_for_all(attributes, a.FAULTS) else 1
        for fault in (fault for listed in stated for fault in _listed(listed)):
            yield from (fault_kind(fault) for _ in range(min(times, _MAX_STEPS)))


def omitted(attributes: Mapping[str, Any]) -> Iterator[str]:
    """The names of what is missing of a span, of a block of steps those of its steps."""
    yield from map(omitted_name, _listed(attributes.get(a.OMISSIONS)))
    stated = _listed(attributes.get(_OMISSIONS_OF_STEPS))
    if stated:
        same = _is_same_for_all(attributes, a.OMISSIONS)
        times = _number_of(attributes.get(a.STEPS_COUNT)) if same else 1
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
    return _number_of(attributes.get(given)), _number_of(attributes.get(sampled))


def gap(record: SpanRecord) -> Gap | None:
    """What a transport says that it lost, where the span is such a note."""
    if kinds.kind(record) != names.GAP:
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

"""Steps: attributes of step spans, and steps from spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mttp.codec import components, content, fields, rewards, tokens
from mttp.codec.calls import EXECUTE_TOOL
from mttp.codec.calls import decode as decode_call
from mttp.codec.plain import Faults, Plain
from mttp.model.declarations import keys, table
from mttp.model.episodes import Reward, Step
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

__all__ = ["FACTS", "KEYS", "decode", "facts", "place", "reward"]

FACTS = {
    field.name: field.attribute
    for field in table(Step)
    if field.declared == "float" and field.attribute != a.STEP_REWARD
}
"""The attributes of a trainer's numbers about a step, by name."""
_FACTS = {**FACTS, **keys(Step, "terminated", "truncated")}
REWARD_KEYS = frozenset({a.STEP_REWARD, a.STEP_REWARD_STATUS, a.STEP_REWARD_RAW})
KEYS = frozenset(
    {*keys(Step).values(), *content.OBSERVATION, *content.ACTION, *tokens.KEYS}
    | {a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, *fields.OF_SPANS.values()}
)
"""All attributes of a step except templates."""
TEMPLATES = (a.METRIC, a.METADATA, *components.OF_STEPS)


def place(step: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the attributes that all spans within a step repeat: index and agent."""
    return {key: step[key] for key in (a.STEP_INDEX, a.AGENT_ID) if key in step}


def reward(value: float | None, status: str, raw: str | None) -> dict[str, Plain]:
    """Return the attributes of a step's reward."""
    if raw is None and value is not None:
        return {a.STEP_REWARD: value, a.STEP_REWARD_STATUS: status}
    attributes = {a.STEP_REWARD: value, a.STEP_REWARD_STATUS: status, a.STEP_REWARD_RAW: raw}
    return {key: item for key, item in attributes.items() if item is not None}


def facts(faults: Faults, **values: Any) -> dict[str, Plain]:
    """Return the attributes of numbers and flags; None values are skipped."""
    return fields.encode(_FACTS, values, faults)


def decode(record: SpanRecord, *, scorings: Sequence[Reward] = (), calls: Sequence[SpanRecord] = ()) -> Step:
    """
    Return the step of a span, with its scorings and calls; what its new messages lack is named at the step.

    Without an observation or action of its own, it has the first messages and the last answer of its calls.
    """
    attributes: Mapping[str, Any] = record.attributes
    observation, action = (content.decode(keys, attributes) for keys in (content.OBSERVATION, content.ACTION))
    called = tuple(map(decode_call, calls))
    models = [call for call in called if call.operation != EXECUTE_TOOL]
    if models and observation is None:
        observation = next((call.arguments for call in models if call.arguments is not None), None)
    if models and action is None:
        action = next((call.result for call in reversed(models) if call.result is not None), None)
    if scoring := components.of_step(attributes):
        scored = replace(record, span_id="", start_time=record.end_time, attributes=scoring)
        scorings = (*scorings, rewards.decode(scored, {}))
    values = fields.of_span(Step, record, KEYS, TEMPLATES)
    for call in calls:
        if a.CALL_HISTORY_RANGES in call.attributes:
            for name, key in (("faults", a.FAULTS), ("omissions", a.OMISSIONS)):
                values[name] = (*values.get(name, ()), *(call.attributes.get(key) or ()))
    return Step(
        observation=observation,
        action=action,
        tokens=tokens.decode(attributes),
        rewards=tuple(scorings),
        calls=called,
        **values,
    )

"""Agents of an episode: attributes of agent spans, and agents from spans, steps and scorings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mttp.codec import components, fields, rewards, segments, templates
from mttp.codec.plain import Faults, Plain
from mttp.model.declarations import keys
from mttp.model.episodes import Agent, Reward, Step
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

__all__ = ["decode", "facts"]

_KEYS = frozenset(
    {*keys(Agent).values(), *rewards.KEYS, a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID}
    | {*fields.OF_SPANS.values()}
)
_TEMPLATES = (a.METRIC, a.METADATA, *components.TEMPLATES)


def facts(given: Mapping[str, Any], faults: Faults) -> dict[str, Plain]:
    """Return the attributes of an agent's fields; None values are skipped."""
    faults += [f"argument_unknown: an agent has no {name}" for name in given if name not in keys(Agent)]
    return fields.encode(keys(Agent), given, faults)


def decode(
    id: str,
    spans: Sequence[SpanRecord],
    *,
    steps: Sequence[tuple[str, Step]],
    scorings: Sequence[segments.Scoring],
) -> Agent:
    """
    Return the agent from its spans, one per process, and its steps and scorings.

    Attributes of the first span take precedence.
    The return is that of the first span, unless other processes recorded steps or scorings of the agent.
    """
    attributes: dict[str, Any] = {}
    for span in reversed(spans):
        attributes |= span.attributes
    values = {"length": len(steps)} | fields.decode(Agent, attributes)
    first = spans[0] if spans else None
    owner = segments.OWNER if first is None else segments.segment(first)
    source, reward = segments.effective_scoring(scorings, owner=owner) or (owner, Reward())
    if {part for part, _ in steps} | {segments.segment(span) for span in spans} > {owner}:
        values["length"] = len(steps)
        values["return_"] = _return(reward, [step for _, step in steps])
    elif segments.states_total(reward) and source != owner:
        values["return_"] = reward.value
    return Agent(
        id=id,
        reward=reward,
        rewards=tuple(reward for _, reward in scorings),
        metrics=templates.decode(a.METRIC, attributes),
        metadata=templates.decode(a.METADATA, attributes),
        error_type=attributes.get(a.ERROR_TYPE),
        error_message=next((span.status_message for span in spans if span.status_message), None),
        faults=tuple(fault for span in spans for fault in span.attributes.get(a.FAULTS) or ()),
        omissions=tuple(omission for span in spans for omission in span.attributes.get(a.OMISSIONS) or ()),
        extra=templates.unknown(attributes, _KEYS, _TEMPLATES),
        span_id="" if first is None else first.span_id,
        start_time=None if first is None else first.start_time,
        end_time=max((span.end_time for span in spans), default=None),
        **values,
    )


def _return(reward: Reward, steps: Sequence[Step]) -> float | None:
    if segments.states_total(reward):
        return reward.value
    total, is_known = segments.reward_sum(steps)
    return total if is_known else None

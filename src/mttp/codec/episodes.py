"""Episodes: attributes of root spans, and episodes from the spans of a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from mttp.codec import (
    agents,
    blocks,
    calls,
    components,
    content,
    evals,
    fields,
    kinds,
    rewards,
    segments,
    shares,
    steps,
    summary_fields,
    templates,
)
from mttp.codec.plain import Faults, Plain, scalar_text, seed, text
from mttp.model.declarations import keys, table
from mttp.model.episodes import Agent, Episode, Reward, Step
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.registry import INT64, known_values

__all__ = [
    "decode",
    "ending",
    "identity",
    "is_episode",
    "lacking",
    "outcome",
    "seed",
    "span_name",
    "telling_name",
    "status",
]

_Types: TypeAlias = Mapping[str, Sequence[SpanRecord]]
"""Spans of one trace by type."""
_SCALARS = {"str": str, "int": int, "float": float, "bool": bool}
_UNCONVERTED = {
    (field.name, _SCALARS[field.declared]): field.attribute
    for field in table(Episode)
    if field.attribute and field.declared in _SCALARS
}
"""The attributes of arguments that need no conversion, by name and type."""
_KEYS = keys(Episode)
_EMPTY = {a.ENV_KWARGS: ("{}", "[]"), a.ENV_SPACES: ("{}", "[]")}
"""Documents that are not recorded."""
KEYS = frozenset(
    {*_KEYS.values(), *content.FINAL_OBSERVATION, *rewards.KEYS, *fields.OF_SPANS.values()}
    | {a.SEGMENT_ID, a.SEGMENT_SPAN_COUNT, a.AGENT_ID, a.STEP_INDEX, *evals.ON_EPISODES}
)
"""All attributes of an episode's root except templates."""
TEMPLATES = (a.METRIC, a.METADATA, *components.TEMPLATES)


def identity(known: Mapping[str, Plain], faults: Faults, given: Mapping[str, Any]) -> dict[str, Plain]:
    """Return the attributes at an episode's start: `known`, and those of the arguments that are not None."""
    attributes = dict(known)
    _add_facts(attributes, given, faults)
    return attributes


def span_name(attributes: Mapping[str, Plain], run: str = "") -> str:
    """
    Return the name of an episode's root from its attributes, else from the run's name.

    It has no task id, because span names should have low cardinality.
    """
    suite, slash, _ = str(attributes.get(a.TASK_ID, "")).partition("/")
    target = attributes.get(a.ENV_ID) or attributes.get(a.EVAL_SUITE_NAME) or (slash and suite) or run
    return f"{names.EPISODE} {target}" if target else names.EPISODE


def telling_name(name: str, attributes: Mapping[str, Plain]) -> str:
    """
    Return a span's name for a list of traces: of an episode with its outcome, of a step with its index.

    The status of an episode that did not complete is its outcome.
    """
    if name == names.STEP and a.STEP_INDEX in attributes:
        return f"{name} {attributes[a.STEP_INDEX]}"
    if a.EPISODE_SPAN_COUNT not in attributes or name.partition(" ")[0] != names.EPISODE:
        return name
    status = attributes.get(a.EPISODE_STATUS)
    outcome = attributes.get(a.EPISODE_OUTCOME) if status == "completed" else status
    return name if outcome in (None, "unknown") else f"{name} {outcome}"


def _add_facts(attributes: dict[str, Plain], arguments: Mapping[str, Any], faults: Faults) -> None:
    for name, value in arguments.items():
        if value is None:
            continue
        kind = type(value)
        key = _UNCONVERTED.get((name, kind))
        if key is not None and (kind is not int or value in INT64):
            attributes[key] = value if kind is not str or value.isascii() else text(value, faults)
        else:
            key = _KEYS[name]
            encoded = fields.encode({name: key}, {name: value}, faults)
            if encoded.get(key) not in _EMPTY.get(key, ()):
                attributes |= encoded


def ending(
    given: Mapping[str, Any], faults: Faults, *, return_basis: str | None, step_count: int, span_count: int
) -> dict[str, Plain]:
    """Return the attributes at an episode's end."""
    attributes: dict[str, Plain] = {a.EPISODE_STEP_COUNT: step_count, a.EPISODE_SPAN_COUNT: span_count}
    if return_basis is not None:
        attributes[a.EPISODE_RETURN_BASIS] = return_basis
    _add_facts(attributes, given, faults)
    return attributes


def outcome(given: object, faults: Faults) -> str:
    """Return the outcome; another text is kept with a fault, any other value becomes unknown with a fault."""
    word = _word(given, faults)
    outcomes = known_values(a.EPISODE_OUTCOME)
    if word not in outcomes and not fields.is_absent(given):
        faults.append(f"outcome_invalid: {scalar_text(given):.80} is not one of {', '.join(outcomes)}")
    return word or "unknown"


def status(given: object, faults: Faults) -> str:
    """Return the status of an end; a value that is no text becomes completed, with a fault."""
    word = _word(given, faults)
    if not word and not fields.is_absent(given):
        faults.append(f"status_invalid: {scalar_text(given):.80}")
    return word or "completed"


def _word(value: object, faults: Faults) -> str | None:
    return text(value, faults) if issubclass(type(value), str) else None


def is_episode(records: Iterable[SpanRecord]) -> bool:
    """Return whether these spans of one trace are an episode, or a part of one."""
    return any(a.EPISODE_ID in record.attributes for record in records)


def lacking(records: Iterable[SpanRecord]) -> str:
    """Describe the spans that an episode lacks; empty if it is complete."""
    return ", ".join(segments.EpisodeParts.of(kinds.by_type(records)).lacking())


def decode(records: Sequence[SpanRecord]) -> Episode:
    """
    Return the episode of one trace's spans, in any order, without duplicates, from any number of processes.

    Without a root it is unfinished, and its identity comes from the start marker or another span.
    """
    types = kinds.by_type(records)
    root = _first(types, names.EPISODE)
    marker = _first(types, names.EPISODE_START)
    start = root or marker
    if start is None:
        within = (record for record in records if a.EPISODE_ID in record.attributes)
        start = min(within, key=lambda record: record.start_time)
    attributes: Mapping[str, Any] = start.attributes
    span_id = root.span_id if root else marker.parent_id if marker else _root_id(types, start)
    children = summary_fields.children(records)
    members = sorted(_steps(types, children), key=lambda member: (member[1].index, member[1].start_time or 0))
    scorings = _scorings(children, span_id)
    closings = sorted(types.get(names.SEGMENT, ()), key=_by_time)
    parts, effective = segments.EpisodeParts.of(types), segments.effective_scoring(scorings)
    values = fields.of_span(Episode, start, KEYS, TEMPLATES)
    if root is None:
        values |= {"status": "unfinished"} | _so_far(segments.Totals(step for _, step in members))
    else:
        other_totals = segments.Totals(step for part, step in members if part != segments.OWNER)
        values |= segments.combined(values, other_totals, effective)
    values |= {
        "metadata": _own(a.METADATA, start, closings),
        "metrics": _own(a.METRIC, start, closings),
        "faults": tuple(
            fault for record in (start, *closings) for fault in record.attributes.get(a.FAULTS) or ()
        ),
        "span_id": span_id,
        "sampling_share": None if root is None else shares.of_state(root.trace_state),
        "end_time": None if root is None else root.end_time,
        "span_count": parts.found if root is None else parts.recorded,
    }
    return Episode(
        final_observation=content.decode(content.FINAL_OBSERVATION, attributes),
        steps=tuple(step for _, step in members),
        agents=tuple(_agents(types, children, members)),
        reward=effective[1] if effective else Reward(),
        rewards=tuple(reward for _, reward in scorings),
        complete=root is not None and not parts.lacking(),
        segments=_segments(records),
        **values,
    )


def _own(prefix: str, start: SpanRecord, closings: Sequence[SpanRecord]) -> dict[str, Any]:
    """Return user-supplied values by name, from the root and from the segments of other processes."""
    values: dict[str, Any] = {}
    for record in (*reversed(closings), start):
        values |= templates.decode(prefix, record.attributes)
    return values


def _agents(
    types: _Types,
    children: summary_fields.Children,
    members: Sequence[tuple[str, Step]],
) -> Iterator[Agent]:
    """Yield the agents in order of start; an agent without a span is derived from its steps."""
    spans: dict[str, list[SpanRecord]] = defaultdict(list)
    played: dict[str, list[tuple[str, Step]]] = defaultdict(list)
    for record in sorted(types.get(names.AGENT, ()), key=_by_time):
        spans[str(record.attributes[a.AGENT_ID])].append(record)
    for part, step in members:
        if step.agent is not None:
            played[step.agent].append((part, step))
    for id_ in {**spans, **played}:
        scorings = [scoring for span in spans[id_] for scoring in _scorings(children, span.span_id)]
        scorings.sort(key=lambda scoring: scoring[1].start_time or 0)
        spans_of_agent = sorted(spans[id_], key=lambda span: segments.segment(span) != segments.OWNER)
        yield agents.decode(id_, spans_of_agent, steps=played[id_], scorings=scorings)


def _so_far(steps: segments.Totals) -> dict[str, Any]:
    """Return the fields of an unfinished episode that its steps determine."""
    return {
        "length": steps.longest,
        "step_count": steps.steps.total(),
        "step_reward_sum": segments.total(steps.rewards),
    }


def _first(types: _Types, name: str) -> SpanRecord | None:
    return next(iter(types.get(name, ())), None)


def _root_id(types: _Types, start: SpanRecord) -> str:
    """Return the root's span id without root and marker: the parent of a span that is its child."""
    below = (
        record for name in (names.SEGMENT, names.SEGMENT_START, names.AGENT) for record in types.get(name, ())
    )
    steps = (record for name in (names.STEP, names.STEPS) for record in types.get(name, ()))
    without_agent = (record for record in steps if a.AGENT_ID not in record.attributes)
    return next((record.parent_id for record in chain(below, without_agent)), start.parent_id)


def _by_time(record: SpanRecord) -> tuple[int, int]:
    return record.start_time, record.end_time


def _segments(records: Iterable[SpanRecord]) -> tuple[str, ...]:
    """Return the ids of other processes' segments, in order of start."""
    of_segments = sorted((record for record in records if a.SEGMENT_ID in record.attributes), key=_by_time)
    return tuple(dict.fromkeys(map(segments.segment, of_segments)))


def _is_reward(record: SpanRecord) -> bool:
    return kinds.kind(record) == names.REWARD


def _steps(types: _Types, children: summary_fields.Children) -> Iterator[tuple[str, Step]]:
    """
    Yield the steps, each with the id of its segment.

    A step may be both in a block and a span, or in several blocks, since each transport makes its own.
    """
    spans = types.get(names.STEP, ())
    columns = types.get(names.STEPS, ())
    known = {_key(segments.segment(record), record.attributes) for record in spans} if columns else ()
    packed: dict[tuple[object, ...], tuple[str, Step]] = {}
    for record in columns:
        part = segments.segment(record)
        for step in blocks.decode(record):
            if (part, step.agent, step.index) not in known:
                key = part, step.agent, step.index, step.start_time
                _, copy = packed.setdefault(key, (part, step))
                if len(step.omissions) < len(copy.omissions):
                    packed[key] = part, step
    yield from packed.values()
    for record in spans:
        mine = children.get(record.span_id, ())
        step = steps.decode(
            record,
            scorings=[rewards.decode(child, children) for child in mine if _is_reward(child)],
            calls=[*calls.below(record.span_id, children)] if mine else (),
        )
        yield segments.segment(record), step


def _key(part: str, step: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """Return a key that is unique among the steps of an episode."""
    return part, step.get(a.AGENT_ID), step.get(a.STEP_INDEX, 0)


def _scorings(children: summary_fields.Children, span_id: str) -> list[segments.Scoring]:
    """Return the scorings of a span in order of start, each with the id of its segment."""
    mine = filter(_is_reward, children.get(span_id, []))
    return [(segments.segment(record), rewards.decode(record, children)) for record in mine]

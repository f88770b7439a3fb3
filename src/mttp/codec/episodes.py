"""One attempt at one episode: a root span's attributes, and the spans of a trace as an episode again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mttp.codec import calls, content, rewards, steps, templates
from mttp.codec.plain import Faults, Plain, from_json, number, text, to_json
from mttp.episodes import Episode, Reward
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = ["decode", "ending", "identity", "is_episode", "seed"]

_TEXTS = {
    "env": a.ENV_ID,
    "env_version": a.ENV_VERSION,
    "env_rng_sha256": a.ENV_RNG_SHA256,
    "task": a.TASK_ID,
    "split": a.TASK_SPLIT,
    "group": a.GROUP_ID,
    "policy": a.POLICY_ID,
    "policy_version_start": a.POLICY_VERSION_START,
    "policy_version_end": a.POLICY_VERSION_END,
    "stop_reason": a.EPISODE_STOP_REASON,
    "timing": a.EPISODE_TIMING,
}
_INTEGERS = {
    "index": a.EPISODE_INDEX,
    "attempt": a.EPISODE_ATTEMPT,
    "env_index": a.ENV_INDEX,
    "policy_update_index": a.POLICY_UPDATE_INDEX,
    "length": a.EPISODE_LENGTH,
    "step_count": a.EPISODE_STEP_COUNT,
    "span_count": a.EPISODE_SPAN_COUNT,
}
_NUMBERS = {
    "discount": a.EPISODE_DISCOUNT,
    "advantage": a.ADVANTAGE,
    "final_value": a.EPISODE_FINAL_VALUE,
    "cost_usd": a.USAGE_COST_USD,
    "return_": a.EPISODE_RETURN,
    "step_reward_sum": a.EPISODE_STEP_REWARD_SUM,
}
_FLAGS = {"terminated": a.EPISODE_TERMINATED, "truncated": a.EPISODE_TRUNCATED}
_JSON = {"env_kwargs": a.ENV_KWARGS, "env_spaces": a.ENV_SPACES, "inputs": a.INPUTS_JSON}
_LISTS = {"env_wrappers": a.ENV_WRAPPERS, "slices": a.TASK_SLICES}
_ENDING = {"status": a.EPISODE_STATUS, "outcome": a.EPISODE_OUTCOME, "return_basis": a.EPISODE_RETURN_BASIS}
KEYS = frozenset(
    {*_TEXTS.values(), *_INTEGERS.values(), *_NUMBERS.values(), *_FLAGS.values(), *_JSON.values()}
    | {*_LISTS.values(), *_ENDING.values(), *content.FINAL_OBSERVATION, *rewards.KEYS}
    | {a.RUN_ID, a.EPISODE_ID, a.ENV_SEED, a.FAULTS, a.OMISSIONS, a.ERROR_TYPE}
)
"""Every attribute of an episode's root, but for the templates."""
TEMPLATES = (a.METRIC, a.METADATA, a.REWARD_SCORE, a.REWARD_SCORE_STATUS, a.REWARD_WEIGHT)


def identity(*, run_id: str, episode_id: str, faults: Faults, **given: Any) -> dict[str, Plain]:
    """What is known when an episode starts; None is not stated."""
    attributes: dict[str, Plain] = {a.RUN_ID: run_id, a.EPISODE_ID: episode_id}
    return attributes | _facts(given, faults)


def _facts(given: Mapping[str, Any], faults: Faults) -> dict[str, Plain]:
    attributes: dict[str, Plain] = {}
    for name, value in given.items():
        try:
            attributes |= {} if value is None else _fact(name, value, faults)
        except Exception as error:  # whatever a foreign object raises when it is looked at
            faults.append(f"{name}_invalid: {error!r}")
    return attributes


def _fact(name: str, value: Any, faults: Faults) -> dict[str, Plain]:
    if name == "seed":
        return {a.ENV_SEED: text(str(value), faults)}
    if name in _TEXTS:
        return {_TEXTS[name]: text(str(value), faults)}
    if name in _INTEGERS:
        return {_INTEGERS[name]: int(value)}
    if name in _FLAGS:
        return {_FLAGS[name]: bool(value)}
    if name in _NUMBERS:
        found = number(value)
        return {} if found is None else {_NUMBERS[name]: found}
    if name in _JSON:
        return {_JSON[name]: to_json(value, faults)} if value or name == "inputs" else {}
    members = [value] if isinstance(value, str) else value
    return {_LISTS[name]: [text(str(item), faults) for item in members]} if members else {}


def ending(
    *, status: str, outcome: str, faults: Faults, return_basis: str | None, **given: Any
) -> dict[str, Plain]:
    """What is known when an episode ends."""
    attributes: dict[str, Plain] = {a.EPISODE_STATUS: status, a.EPISODE_OUTCOME: text(outcome, faults)}
    if return_basis is not None:
        attributes[a.EPISODE_RETURN_BASIS] = return_basis
    return attributes | _facts(given, faults)


def seed(value: object) -> int | str | None:
    """A seed as the vocabulary holds it: an integer wherever it reads as one, else text."""
    if value is None:
        return None
    written = str(value)
    try:
        parsed = int(written)
    except ValueError:
        return text(written, [])
    return parsed if str(parsed) == written else written


def is_episode(records: Iterable[SpanRecord]) -> bool:
    """Whether these spans of one trace are an episode of ours, or part of one."""
    return any(a.EPISODE_ID in record.attributes for record in records)


def decode(records: Sequence[SpanRecord]) -> Episode:
    """
    The episode that the distinct spans of one trace hold, in any order.

    Without its root it is unfinished, and its identity is what the start marker or a step says.
    """
    root = _find(records, names.EPISODE)
    start = root or _find(records, names.EPISODE_START) or _first_of_ours(records)
    found: Mapping[str, Any] = start.attributes
    children = _children(records)
    members = [_step(record, children) for record in records if _is_step(record)]
    members.sort(key=lambda step: step.index)
    scorings = [
        _reward(record, children) for record in children[_episode_span(root, start)] if _is_reward(record)
    ]
    span_count = _ours(records) if root is None else int(found.get(a.EPISODE_SPAN_COUNT, 0))
    values = _values(found)
    if root is None:
        values |= {"status": "unfinished"} | _so_far(members)
    return Episode(
        trace_id=start.trace_id,
        run_id=str(found.get(a.RUN_ID, "")),
        id=str(found.get(a.EPISODE_ID, "")),
        seed=seed(found.get(a.ENV_SEED)),
        metadata=templates.decode(a.METADATA, found),
        metrics=templates.decode(a.METRIC, found),
        final_observation=content.decode(content.FINAL_OBSERVATION, found),
        steps=tuple(members),
        reward=scorings[-1] if scorings else Reward(),
        rewards=tuple(scorings),
        complete=root is not None and _ours(records) >= span_count,
        error_type=found.get(a.ERROR_TYPE),
        error_message=start.status_message or None,
        faults=tuple(found.get(a.FAULTS) or ()),
        omissions=tuple(found.get(a.OMISSIONS) or ()),
        extra=templates.unknown(found, KEYS, TEMPLATES),
        span_id=_episode_span(root, start),
        start_time=start.start_time,
        end_time=None if root is None else root.end_time,
        **values | {"span_count": span_count},
    )


def _values(found: Mapping[str, Any]) -> dict[str, Any]:
    plain_keys = _TEXTS | _INTEGERS | _NUMBERS | _FLAGS | _ENDING
    values = {name: found[key] for name, key in plain_keys.items() if found.get(key) is not None}
    values |= {name: from_json(found[key]) for name, key in _JSON.items() if key in found}
    values["env_wrappers"] = tuple(found.get(a.ENV_WRAPPERS) or ())
    values["slices"] = list(found.get(a.TASK_SLICES) or ())
    return values


def _so_far(members: Sequence[Any]) -> dict[str, Any]:
    """What the steps found say about an episode whose end is missing."""
    paid = [step.reward for step in members if step.reward is not None]
    return {
        "length": len(members),
        "step_count": len(members),
        "step_reward_sum": sum(paid) if paid else None,
    }


def _find(records: Iterable[SpanRecord], name: str) -> SpanRecord | None:
    return next((r for r in records if a.EPISODE_ID in r.attributes and _named(r, name)), None)


def _named(record: SpanRecord, name: str) -> bool:
    return record.name == name or record.name.startswith(f"{name} ")


def _first_of_ours(records: Iterable[SpanRecord]) -> SpanRecord:
    return min((r for r in records if a.EPISODE_ID in r.attributes), key=lambda record: record.start_time)


def _episode_span(root: SpanRecord | None, start: SpanRecord) -> str:
    return start.span_id if root is not None else start.parent_id


def _ours(records: Iterable[SpanRecord]) -> int:
    return sum(1 for record in records if a.RUN_ID in record.attributes)


def _children(records: Iterable[SpanRecord]) -> dict[str, list[SpanRecord]]:
    children: dict[str, list[SpanRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.start_time, record.end_time)):
        children[record.parent_id].append(record)
    return children


def _is_step(record: SpanRecord) -> bool:
    return a.STEP_INDEX in record.attributes and _named(record, names.STEP)


def _is_reward(record: SpanRecord) -> bool:
    return a.REWARD_STATUS in record.attributes and _named(record, names.REWARD)


def _step(record: SpanRecord, children: Mapping[str, list[SpanRecord]]) -> Any:
    mine = children.get(record.span_id, [])
    return steps.decode(
        record,
        scorings=[_reward(child, children) for child in mine if _is_reward(child)],
        calls=[calls.decode(call) for call in calls.below(record.span_id, children)],
    )


def _reward(record: SpanRecord, children: Mapping[str, list[SpanRecord]]) -> Reward:
    grades = [child.attributes for child in children.get(record.span_id, []) if _named(child, names.GRADE)]
    return rewards.decode(
        record.attributes,
        grades=grades,
        span_id=record.span_id,
        start_time=record.start_time,
        end_time=record.end_time,
    )

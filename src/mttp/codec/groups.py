"""Groups of episodes: attributes of their spans, and groups from spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mttp.codec import templates
from mttp.codec.plain import Faults, Plain, text
from mttp.model.episodes import Group
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

__all__ = ["decode", "encode"]

_TEXTS = {
    "id": a.GROUP_ID,
    "run_id": a.RUN_ID,
    "scope": a.GROUP_SCOPE,
    "normalization": a.GROUP_NORMALIZATION,
    "task": a.TASK_ID,
    "env": a.ENV_ID,
}
_NUMBERS = {
    "size": a.GROUP_SIZE,
    "valid_count": a.GROUP_VALID_COUNT,
    "reward_mean": a.GROUP_REWARD_MEAN,
    "reward_std": a.GROUP_REWARD_STD,
    "ddof": a.GROUP_DDOF,
}
_LISTS = {"episodes": a.GROUP_EPISODES, "rewards": a.GROUP_REWARDS, "advantages": a.GROUP_ADVANTAGES}
KEYS = frozenset({*_TEXTS.values(), *_NUMBERS.values(), *_LISTS.values(), a.FAULTS})
"""All attributes of a group except templates."""


def encode(group: Group, faults: Faults) -> dict[str, Plain]:
    """Return the group's attributes, without user-supplied metrics and metadata."""
    attributes: dict[str, Plain] = {
        key: text(value, faults)
        for name, key in _TEXTS.items()
        if (value := getattr(group, name)) is not None
    }
    attributes |= {
        key: value for name, key in _NUMBERS.items() if (value := getattr(group, name)) is not None
    }
    attributes |= {
        key: list(value)
        for name, key in _LISTS.items()
        if (value := getattr(group, name)) or name == "episodes"
    }
    return attributes


def decode(record: SpanRecord) -> Group:
    """Return the group of a span."""
    found: Mapping[str, Any] = record.attributes
    values: dict[str, Any] = {name: tuple(found.get(key) or ()) for name, key in _LISTS.items()}
    return Group(
        **values | {name: found[key] for name, key in (_TEXTS | _NUMBERS).items() if key in found},
        metrics=templates.decode(a.METRIC, found),
        metadata=templates.decode(a.METADATA, found),
        faults=tuple(found.get(a.FAULTS) or ()),
        extra=templates.unknown(found, KEYS, (a.METRIC, a.METADATA)),
        trace_id=record.trace_id,
        span_id=record.span_id,
        start_time=record.start_time,
        end_time=record.end_time,
    )

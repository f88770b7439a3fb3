"""Groups of episodes: attributes of their spans, and groups from spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mttp.codec import fields, templates
from mttp.codec.plain import Faults, Plain
from mttp.model.declarations import keys
from mttp.model.episodes import Group
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

__all__ = ["decode", "encode"]

KEYS = frozenset(keys(Group).values())
"""All attributes of a group except templates."""


def encode(group: Group, faults: Faults) -> dict[str, Plain]:
    """Return the group's attributes, without user-supplied metrics and metadata."""
    return {a.GROUP_EPISODES: [], **fields.encode_value(group, faults)}


def decode(record: SpanRecord) -> Group:
    """Return the group of a span."""
    found: Mapping[str, Any] = record.attributes
    return Group(
        **fields.decode(Group, found),
        metrics=templates.decode(a.METRIC, found),
        metadata=templates.decode(a.METADATA, found),
        extra=templates.unknown(found, KEYS, (a.METRIC, a.METADATA)),
        trace_id=record.trace_id,
        span_id=record.span_id,
        start_time=record.start_time,
        end_time=record.end_time,
    )

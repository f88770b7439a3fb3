"""Groups of episodes: attributes of their spans, and groups from spans."""

from __future__ import annotations

from mttp.codec import fields
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
    return Group(**fields.of_span(Group, record, KEYS, (a.METRIC, a.METADATA)))

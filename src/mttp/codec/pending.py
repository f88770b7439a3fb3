"""
Pending attributes: kept as they were given while an episode runs, and encoded with the span's bytes.

They stand among a span's attributes: token blocks and environment steps under names of their own, a random
generator as the document of its state, and plain data as msgpack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mttp.codec import documents, tokens, transitions
from mttp.codec.generators import digest
from mttp.codec.plain import Plain
from mttp.codec.profiles import Profile, packed
from mttp.semconv import attributes as a

__all__ = ["TOKENS", "TRANSITIONS", "delivered", "encoded", "is_pending"]

TOKENS: Final = "mttp.pending.tokens"
"""The name of a token block, a `tokens.Block`."""
TRANSITIONS: Final = "mttp.pending.transitions"
"""The name of an environment's steps in columns: the arguments of `transitions.attributes`."""

_GROUPS: Final = frozenset({TOKENS, TRANSITIONS})
_LATE: Final = _GROUPS | {a.ENV_RNG_SHA256}


def is_pending(key: str, value: object) -> bool:
    """Whether an attribute is to be encoded."""
    kind = type(value)
    return kind is msgspec.Raw or key in _GROUPS or (key == a.ENV_RNG_SHA256 and kind is bytes)


def encoded(attributes: Mapping[str, Any]) -> Mapping[str, Plain]:
    """Return all attributes, encoded; the mapping itself if none is pending."""
    if _LATE.isdisjoint(attributes) and msgspec.Raw not in map(type, attributes.values()):
        return attributes
    values: dict[str, Plain] = {}
    for key, value in attributes.items():
        if not is_pending(key, value):
            values[key] = value
        elif key == TOKENS:
            values |= tokens.unfold(value)
        elif key == TRANSITIONS:
            values |= transitions.attributes(*value)
        else:
            values[key] = documents.content(value) if type(value) is msgspec.Raw else digest(value)
    return values


def delivered(spans: Sequence[dict[str, Any]], profile: Profile) -> list[dict[str, Plain]]:
    """Return the attributes of each span under a profile, encoded; token blocks are removed from `spans`."""
    if profile is not packed:
        return [profile(encoded(attributes)) for attributes in spans]
    places = [place for place, attributes in enumerate(spans) if TOKENS in attributes]
    folded = tokens.fold_all([spans[place].pop(TOKENS) for place in places])
    delivered_spans = [profile(encoded(attributes)) for attributes in spans]
    for place, block in zip(places, folded, strict=True):
        delivered_spans[place].update(block)
    return delivered_spans

"""
Pending attributes: kept unencoded while an episode runs, and encoded with the span's bytes.

They hold plain data and bytes, which can be sent to a worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mttp.codec import documents, tokens, transitions
from mttp.codec.generators import digest
from mttp.codec.plain import Plain
from mttp.codec.profiles import Profile, packed
from mttp.semconv import attributes as a

__all__ = ["TOKENS", "TRANSITIONS", "Pending", "delivered", "encoded", "names_of", "weight"]

TOKENS: Final = "tokens"
"""The key of a token block, a `tokens.Block`."""
TRANSITIONS: Final = "transitions"
"""The key of an environment's steps in columns: the arguments of `transitions.attributes`."""

Pending: TypeAlias = Mapping[str, Any]
"""
Unencoded values by attribute, or by one of the keys above.

An observation or an action is bytes from `documents`; a random generator is the document of its state.
"""


def _document(key: str) -> Callable[[bytes], dict[str, Plain]]:
    return lambda document: {key: documents.content(document)}


_ENCODERS: Mapping[str, Callable[[Any], dict[str, Plain]]] = {
    TOKENS: tokens.unfold,
    TRANSITIONS: lambda arguments: transitions.attributes(*arguments),
    a.OBSERVATION_VALUE: _document(a.OBSERVATION_VALUE),
    a.ACTION_VALUE: _document(a.ACTION_VALUE),
    a.ENV_RNG_SHA256: lambda document: {a.ENV_RNG_SHA256: digest(document)},
}


def encoded(pending: Pending) -> dict[str, Plain]:
    """Return the encoded attributes."""
    attributes: dict[str, Plain] = {}
    for key, value in pending.items():
        attributes |= _ENCODERS[key](value)
    return attributes


def names_of(pending: Pending) -> Iterator[str]:
    """Yield the names of a step's attributes that are pending."""
    for key in pending:
        if key == TOKENS:
            yield from tokens.KEYS
        else:
            yield key


def weight(pending: Pending) -> int:
    """Return the estimated size of a step's pending attributes in a file, in bytes."""
    size = 0
    for key, given in pending.items():
        if key in _WEIGHED:
            size += len(given) if type(given) is bytes else given[2]
    return size


_WEIGHED = frozenset({TOKENS, a.OBSERVATION_VALUE, a.ACTION_VALUE})


def delivered(
    rows: Sequence[tuple[Mapping[str, Plain], Pending | None]], profile: Profile
) -> list[dict[str, Plain]]:
    """Return all attributes of each span under a profile, including the pending ones."""
    found = [profile(attributes) for attributes, _ in rows]
    blocks: list[tuple[int, tokens.Block]] = []
    for place, (_, pending) in enumerate(rows):
        for key, given in () if pending is None else pending.items():
            if key == TOKENS:
                blocks.append((place, given))
            else:
                found[place].update(profile(_ENCODERS[key](given)))
    if profile is packed:
        folded = tokens.fold_all([block for _, block in blocks])
    else:
        folded = [profile(tokens.unfold(block)) for _, block in blocks]
    for (place, _), attributes in zip(blocks, folded, strict=True):
        found[place].update(attributes)
    return found

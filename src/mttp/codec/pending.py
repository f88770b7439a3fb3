"""
Attributes that are left to the encoder: those of which nearly every step, or environment's episode, has some.

While an episode runs they are kept as they were given, which takes a fraction of the time.
Everything kept so is plain data or bytes, which another process takes as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mttp.codec import documents, tokens, transitions
from mttp.codec.generators import sha256
from mttp.codec.plain import Plain
from mttp.codec.profiles import Profile, packed
from mttp.semconv import attributes as a

__all__ = ["TOKENS", "TRANSITIONS", "Pending", "delivered", "encoded", "names_of", "weight"]

TOKENS: Final = "tokens"
"""The key of a token block, a `tokens.Block`."""
TRANSITIONS: Final = "transitions"
"""The key of an environment's steps in columns: the arguments of `transitions.said`."""

Pending: TypeAlias = Mapping[str, Any]
"""
What attributes are made of, by the attribute's name, or by one of the keys above.

An observation or an action is one of the `documents`; an environment's generator is its state.
"""


def _document(key: str) -> Callable[[bytes], dict[str, Plain]]:
    return lambda document: {key: documents.content(document)}


_ENCODERS: Mapping[str, Callable[[Any], dict[str, Plain]]] = {
    TOKENS: tokens.unfold,
    TRANSITIONS: lambda arguments: transitions.said(*arguments),
    a.OBSERVATION_VALUE: _document(a.OBSERVATION_VALUE),
    a.ACTION_VALUE: _document(a.ACTION_VALUE),
    a.ENV_RNG_SHA256: lambda state: {a.ENV_RNG_SHA256: sha256(state)},
}


def encoded(pending: Pending) -> dict[str, Plain]:
    """The attributes, as they are recorded."""
    found: dict[str, Plain] = {}
    for key, given in pending.items():
        found |= _ENCODERS[key](given)
    return found


def names_of(pending: Pending) -> Iterator[str]:
    """The names of the attributes that become of what is pending of a step."""
    for key in pending:
        if key == TOKENS:
            yield from tokens.KEYS
        else:
            yield key


def weight(pending: Pending) -> int:
    """Roughly what a step's take in a file, in bytes."""
    size = 0
    for key, given in pending.items():
        if key in _WEIGHED:
            size += len(given) if type(given) is bytes else given[2]
    return size


_WEIGHED = frozenset({TOKENS, a.OBSERVATION_VALUE, a.ACTION_VALUE})


def delivered(
    rows: Sequence[tuple[Mapping[str, Plain], Pending | None]], profile: Profile
) -> list[dict[str, Plain]]:
    """All attributes of each span, those that are pending included, as `profile` delivers them."""
    found = [profile(attributes) for attributes, _ in rows]
    blocks: list[tuple[int, tokens.Block]] = []
    for place, (_, pending) in enumerate(rows):
        for key, given in () if pending is None else pending.items():
            if key == TOKENS:
                blocks.append((place, given))
            else:
                found[place].update(profile(_ENCODERS[key](given)))
    if profile is packed:
        made = tokens.fold_all([block for _, block in blocks])
    else:
        made = [profile(tokens.unfold(block)) for _, block in blocks]
    for (place, _), attributes in zip(blocks, made, strict=True):
        found[place].update(attributes)
    return found

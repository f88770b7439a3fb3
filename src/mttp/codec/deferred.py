"""
Attributes that the encoder works out: those that nearly every step, and every environment's episode, has.

While an episode runs they are kept as they were given, which takes a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from mttp.codec import content, episodes, tokens, transitions
from mttp.codec.generators import sha256
from mttp.codec.plain import Plain
from mttp.codec.profiles import Profile, packed
from mttp.semconv import attributes as a

__all__ = ["ENDING", "ENV_EPISODE", "TOKENS", "TRANSITIONS", "Deferred", "delivered", "encoded"]

TOKENS: Final = "tokens"
"""A token block: the one argument is a `tokens.Block`."""
TRANSITIONS: Final = "transitions"
"""Steps of an environment in columns: the arguments of `transitions.said`."""
ENDING: Final = "ending"
"""How an episode ended whose steps alone state rewards: the arguments of `episodes.plain_ending`."""
ENV_EPISODE: Final = "env_episode"
"""What differs between the episodes of one environment: the arguments of `_env_episode`."""

Deferred: TypeAlias = tuple[str, tuple[Any, ...]]
"""A kind of attributes, and the arguments that they are made of."""


def delivered(
    rows: Sequence[tuple[Mapping[str, Plain], Deferred | None]], profile: Profile
) -> list[dict[str, Plain]]:
    """All attributes of each span, those that were deferred included, as `profile` delivers them."""
    found = [profile(attributes) for attributes, _ in rows]
    blocks = [
        (place, deferred[1][0])
        for place, (_, deferred) in enumerate(rows)
        if deferred is not None and deferred[0] == TOKENS
    ]
    if profile is packed:
        made = tokens.fold_all([block for _, block in blocks])
    else:
        made = [profile(tokens.unfold(block)) for _, block in blocks]
    for (place, _), attributes in zip(blocks, made, strict=True):
        found[place].update(attributes)
    for place, (_, deferred) in enumerate(rows):
        if deferred is not None and deferred[0] != TOKENS:
            found[place].update(profile(encoded(deferred)))
    return found


def _env_episode(
    episode_id: str,
    index: int,
    seed: int | None,
    generator: Mapping[str, Any] | str | None,
    outcome: str,
    flags: tuple[bool, bool],
    final: Any,
    length: int,
    form: tuple[str | None, tuple[int, ...], int | None],
    totals: tuple[float | None, float | None, str | None],
) -> dict[str, Plain]:
    """
    What an episode's root says besides what all episodes of its environment do.

    `generator` is the state of the environment's generator at the start, or its digest; `final` is the
    last observation, of an array its bytes; `form` are the `parts` of a `transitions.Form`, and `totals`
    those of a ledger.
    """
    found: dict[str, Plain] = {a.EPISODE_ID: episode_id, a.EPISODE_INDEX: index}
    if seed is not None:
        found[a.ENV_SEED] = str(seed)
    if generator is not None:
        found[a.ENV_RNG_SHA256] = generator if isinstance(generator, str) else sha256(generator)
    facts: dict[str, Any] = {"status": "completed", "outcome": outcome, "length": length}
    facts["terminated"], facts["truncated"] = flags
    facts["return_"], facts["step_reward_sum"], basis = totals
    found |= episodes.ending(facts, [], return_basis=basis, step_count=length, span_count=2)
    dtype, shape, max_bytes = form
    if dtype is not None and final is not None:
        final = np.frombuffer(final, dtype).reshape(shape)
    return found | content.encode(content.FINAL_OBSERVATION, final, [], [], max_bytes=max_bytes)


_ENCODERS: Mapping[str, Callable[..., dict[str, Plain]]] = {
    TOKENS: tokens.unfold,
    TRANSITIONS: transitions.said,
    ENDING: episodes.plain_ending,
    ENV_EPISODE: _env_episode,
}


def encoded(deferred: Deferred) -> dict[str, Plain]:
    """The attributes, as they are recorded."""
    kind, arguments = deferred
    return _ENCODERS[kind](*arguments)

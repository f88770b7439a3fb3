"""
Steps of one owner that follow each other, of which nothing unusual was said: most of all steps.

What they have in common is said once, and what differs in columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeAlias

from mttp.codec import steps, tokens
from mttp.codec.plain import Plain
from mttp.codec.profiles import Profile, of_block
from mttp.semconv import attributes as a

__all__ = ["Columns", "Row", "Said", "attributes", "packed"]

Row: TypeAlias = tuple[int, int, int, int, "float | None", "tokens.Pair | None", Any, bytes]
"""
A step's span id, start and end, its index and reward, and its token block.

Of that the kinds, the bytes of the ids and of their log probabilities, as `tokens.pair` gives them; with the
kinds `tokens.WHOLE` the block itself stands where the ids do.
"""
Said: TypeAlias = tuple[tuple[str, Any], ...]
"""Attributes by name; a type stands for values of that type, which differ from step to step."""
Columns: TypeAlias = Sequence[Sequence[Any]]
"""What each row began with, span ids, starts and ends, then the values of each attribute that differs."""

_TOGETHER = 64
"""So many token blocks are packed together, as long as they are small."""
_SMALL = 32 * 1024
"""Bytes of the log probabilities of a block."""


def attributes(base: Mapping[str, Plain], row: Row, profile: Profile) -> dict[str, Plain]:
    """All attributes of a step whose owner's steps say `base`, as `profile` delivers them."""
    return of_block(profile, steps.plain(base, row[3], row[4]), _block(row))


def packed(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Said, Columns]]:
    """
    What steps say besides what their owner's all do, token blocks packed; alike ones together.

    What stands in front of each row is kept there.
    """
    for start in range(0, len(rows), _TOGETHER):
        some = rows[start : start + _TOGETHER]
        if len(set(map(_kind, some))) == 1:
            yield from _packed(*_kind(some[0]), some)
        else:
            for kind, alike in groupby(some, _kind):
                yield from _packed(*kind, list(alike))


def _kind(row: tuple[Any, ...]) -> tuple[bool, tokens.Pair | None, bool]:
    """Whether it states a reward, what its token block is, and whether that can be packed with others."""
    return row[-4] is not None, row[-3], 0 < len(row[-1]) <= _SMALL


def _packed(
    paid: bool, kinds: tokens.Pair | None, is_small: bool, rows: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[Said, Columns]]:
    *columns, rewards, _, ids, logprobs = zip(*rows, strict=True)
    columns = [*columns, rewards] if paid else columns
    if kinds is None:
        yield _said(paid), columns
    elif is_small:
        counts, means, layouts, data = tokens.fold_pairs(kinds, ids, logprobs)
        yield _said(paid) + _PAIR, [*columns, counts, means, layouts, data]
    else:
        for place, row in enumerate(rows):
            first = [each[place : place + 1] for each in columns]
            block = tokens.fold(_block(row) or ())
            differing = tuple((key, type(value)) for key, value in block.items())
            yield _said(paid) + differing, [*first, *([value] for value in block.values())]


def _block(row: tuple[Any, ...]) -> tokens.Block | None:
    kinds, ids, logprobs = row[-3:]
    return ids or None if kinds is None or kinds == tokens.WHOLE else tokens.paired(kinds, ids, logprobs)


@lru_cache
def _said(paid: bool) -> Said:
    reward: Said = ((a.STEP_REWARD, float), (a.STEP_REWARD_STATUS, "ok")) if paid else ()
    return ((a.STEP_INDEX, int), *reward)


_PAIR: Said = (
    (a.TOKEN_COUNT, int),
    (a.TOKEN_MEAN_LOGPROB, float),
    (a.TOKEN_ENCODING, "packed"),
    (a.TOKEN_LAYOUT, str),
    (a.TOKEN_DATA, bytes),
)
"""What a step says of token ids and their log probabilities."""

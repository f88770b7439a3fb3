"""Digests of row groups of Parquet files: what summaries and studies need of the spans, in few bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from mttp import semconv
from mttp.codec.conformity import Conformity
from mttp.model.gradings import Grading
from mttp.model.spans import Scope, SpanRecord, without_arrays
from mttp.reading.digest import digested
from mttp.reading.episode_figures import SummaryFigures
from mttp.reading.episode_summary import Counts, EpisodeRow, EpisodeSummary, IsOpen, UndecidedScoring
from mttp.reading.lines import Decoded
from mttp.reading.worker import pack, unpack

__all__ = ["VERSION", "GroupDigest", "PlainMisfit", "decode", "encode", "encode_items"]

VERSION = f"5 of {semconv.VERSION}"
"""
Raised with every change of what a digest holds; digests of other versions are not read.

It includes the version of the convention, whose names digests of spans have.
"""


class PlainMisfit(NamedTuple):
    """A value of a wrong type, as `Conformity` reports it."""

    kind: Literal["wrong_type", "deep_value"]
    trace_id: str
    message: str


class PlainSummary(NamedTuple):
    """An `EpisodeSummary` as plain data."""

    row: EpisodeRow
    counts: tuple[list[int], list[int], dict[str, int], dict[str, int]]
    gradings: tuple[Grading, ...]
    undecided: UndecidedScoring | None
    cost_usd: float | None
    is_scored: bool
    basis: str | None
    root: str
    spans: int
    duplicates: int
    invalid_step_rewards: int
    is_rewarded: bool
    has_unplaced_calls: bool
    figures: SummaryFigures | None


_Spans: TypeAlias = "tuple[list[Any], list[Any], list[Any]]"
"""Packed spans, as the result of `pack` for one line."""


class _Plain(NamedTuple):
    summaries: list[PlainSummary]
    scopes: list[tuple[str, str, str, dict[str, Any], dict[str, Any], str]]
    places: list[int]
    """Index of each summary's scope."""
    spans: _Spans
    misfits: list[PlainMisfit]


class GroupDigest(NamedTuple):
    """What is needed of the spans of a row group."""

    summaries: list[EpisodeSummary]
    spans: list[SpanRecord]
    """Spans without arrays that are not part of a summary; they follow the summaries."""
    misfits: list[PlainMisfit]


_DECODER = msgspec.msgpack.Decoder(_Plain)
_FIGURES = msgspec.msgpack.Decoder(SummaryFigures)


def encode(records: Sequence[SpanRecord]) -> bytes:
    """The digest of a row group; empty if it can't be encoded, for example for integers beyond 64 bits."""
    conformity, misfits, kept = Conformity(), [], []
    for record in records:
        found, wrong = conformity.examine(without_arrays(record))
        kept.append(found)
        misfits += [PlainMisfit(one.kind, one.trace_id, one.message) for one in wrong]

    def decoded(_: IsOpen) -> Iterator[Decoded]:
        yield Decoded(kept, [])

    ((items, _),) = digested(decoded, figures=True)
    return encode_items(items or (), misfits)


def encode_items(items: Iterable[SpanRecord | EpisodeSummary], misfits: Iterable[PlainMisfit] = ()) -> bytes:
    """The digest of spans and summaries; empty if it can't be encoded."""
    items = [*items]
    summaries = [item for item in items if isinstance(item, EpisodeSummary)]
    others = [item for item in items if not isinstance(item, EpisodeSummary)]
    scopes = {id(one.scope): one.scope for one in summaries}
    places = {key: place for place, key in enumerate(scopes)}
    (spans,) = pack([Decoded(others, [])])
    plain = _Plain(
        [PlainSummary._make(one.plain()) for one in summaries],
        [_plain_scope(one) for one in scopes.values()],
        [places[id(one.scope)] for one in summaries],
        spans,
        [*misfits],
    )
    try:
        return msgspec.msgpack.encode(plain)
    except (OverflowError, TypeError, ValueError):
        return b""


def encode_figures(figures: SummaryFigures) -> bytes:
    """The figures of an episode as bytes."""
    return msgspec.msgpack.encode(figures)


def decode_figures(data: bytes) -> SummaryFigures:
    """The figures from the result of `encode_figures`; raises ValueError if it is not valid."""
    return _FIGURES.decode(data)


def _plain_scope(scope: Scope) -> Any:
    found = scope.name, scope.version, scope.schema_url
    return (*found, dict(scope.resource), dict(scope.attributes), scope.resource_schema_url)


def decode(data: bytes) -> GroupDigest:
    """The digest from the result of `encode`; raises ValueError if it is not valid."""
    plain = _DECODER.decode(data)
    scopes = [Scope(*values) for values in plain.scopes]
    summaries = [
        EpisodeSummary(one.row, Counts(*one.counts), *one[2:], scopes[place])
        for one, place in zip(plain.summaries, plain.places, strict=True)
    ]
    (line,) = unpack([plain.spans])
    return GroupDigest(summaries, line.spans or [], plain.misfits)

"""Summarizes episodes that are whole in one line, without records of their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mttp.codec import components, summary_fields
from mttp.codec.conformity import is_conforming
from mttp.codec.translating import is_current
from mttp.model.spans import Scope
from mttp.otlp.json_decode import Block, as_record, scalars, span_id
from mttp.otlp.json_schema import ScalarSpan
from mttp.reading.assembly import PartialEpisode
from mttp.reading.episode_summary import EpisodeSummary, IsOpen
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["shortened"]


def shortened(blocks: Iterable[Block], *, is_open: IsOpen, figures: bool) -> list[Any]:
    """
    The spans of a line as records, with one `EpisodeSummary` for each episode that is whole in a block.

    Only the fields of its steps that a summary needs are decoded.
    The spans of an episode that is already open stay records.
    """
    found: list[Any] = []
    begun: set[str] = set()

    def has_begun(trace_id: str) -> bool:
        return trace_id in begun or is_open(trace_id)

    for scope, spans in blocks:
        if is_current(scope):
            items = _of_block(scope, spans, has_begun, figures=figures)
        else:
            items = [as_record(span, scope) for span in spans]
        begun.update(one.trace_id for one in items if not isinstance(one, EpisodeSummary))
        found += items
    return found


def _of_block(scope: Scope, spans: Sequence[ScalarSpan], is_open: IsOpen, *, figures: bool) -> list[Any]:
    traces: dict[str, list[ScalarSpan]] = {}
    for span in spans:
        traces.setdefault((span.trace_id or "").lower(), []).append(span)
    whole = {trace_id: _whole(scope, own, is_open, figures=figures) for trace_id, own in traces.items()}
    found: list[Any] = []
    for span in spans:
        trace_id = (span.trace_id or "").lower()
        ended = whole[trace_id]
        if ended is None:
            found.append(as_record(span, scope))
        elif span is traces[trace_id][-1]:
            found.append(ended)
    return found


def _whole(
    scope: Scope, spans: Sequence[ScalarSpan], is_open: IsOpen, *, figures: bool
) -> EpisodeSummary | None:
    """The summary of the episode if these are all its spans, each once; else None."""
    if not summary_fields.is_root(spans[-1].name or ""):  # the root is written last
        return None
    episode, trace_id = PartialEpisode(figures=figures), ""
    for span in spans:
        record = None if span.name == names.STEP else as_record(span, scope)
        attributes = scalars(span) if record is None else record.attributes
        if not is_conforming(attributes) or not summary_fields.is_own(attributes):
            return None
        kind = names.STEP
        if record is None and (a.SPAN_TYPE in attributes or components.of_step(attributes)):
            record = as_record(span, scope)
        if record is None:
            episode.add_step(span_id(span), attributes)
        else:
            trace_id, kind = record.trace_id, summary_fields.kind(record)
            episode.add(kind, record)
        is_last = span is spans[-1]
        if (kind == names.EPISODE) is not is_last:
            return None
    is_all = not episode.duplicates and episode.parts.found == episode.parts.recorded
    return episode.ended(trace_id, scope) if is_all and not is_open(trace_id) else None

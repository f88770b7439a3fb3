"""Episodes whose spans stand together in a line: each as one value, with no record of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mttp.codec import outline
from mttp.reading.ended import Ended, IsOpen
from mttp.reading.ongoing import Counts, Ongoing
from mttp.semconv import spans as names
from mttp.spans import Scope
from mttp.wire.otlp_json_decode import as_record, scalars, span_id
from mttp.wire.otlp_json_messages import ScalarSpan

__all__ = ["shortened"]


def shortened(scope: Scope, spans: Sequence[ScalarSpan], *, is_open: IsOpen) -> list[Any]:
    """
    The spans as records, with one `Ended` in place of all those of an episode that is whole among them.

    Of its steps nothing is looked at but what a summary has a use for.
    An episode that is open already stays as it is.
    """
    traces: dict[str | None, list[ScalarSpan]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    whole = {trace_id: _whole(scope, own, is_open) for trace_id, own in traces.items()}
    found: list[Any] = []
    for span in spans:
        ended = whole[span.trace_id]
        if ended is None:
            found.append(as_record(span, scope))
        elif span is traces[span.trace_id][-1]:
            found.append(ended)
    return found


def _whole(scope: Scope, spans: Sequence[ScalarSpan], is_open: IsOpen) -> Ended | None:
    """The episode whose spans these are: all of them, each once, and no others; None where it is not so."""
    if not outline.is_root(spans[-1].name or ""):  # which ends last, and is written last
        return None
    episode, counts = Ongoing(), Counts()
    trace_id = ""
    for span in spans:
        if span.name == names.STEP:
            kind, attributes = names.STEP, scalars(span)
            episode.seen.add(span_id(span))
        else:
            record = as_record(span, scope)
            trace_id, kind, attributes = record.trace_id, outline.kind(record), record.attributes
            episode.add(kind, record)
        if not outline.is_own(attributes) or (kind == names.EPISODE and span is not spans[-1]):
            return None
        counts.add(kind, attributes)
    is_whole = episode.ending is not None and len(spans) == len(episode.seen) == episode.ending.span_count
    return episode.ended(trace_id, scope, counts) if is_whole and not is_open(trace_id) else None

"""Ended spans on their way to another process; `unpacking` is what is done there."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from mttp.codec.profiles import full
from mttp.codec.series import Whole, told
from mttp.codec.stretches import Row
from mttp.encoding.play import Plays
from mttp.encoding.stretch import Stretch
from mttp.encoding.unpacking import FORM, Parcel
from mttp.livespan import Arrival, LiveSpan, Several, spans_of
from mttp.readable import record
from mttp.spans import Scope, SpanRecord

__all__ = ["gathered", "pack"]


class _Wholes(NamedTuple):
    """Episodes that are whole, and their spans."""

    scope: Scope
    wholes: list[Whole]
    spans: list[Arrival]

    @property
    def settled(self) -> list[Plays | ReadableSpan]:
        """The episodes together; their spans where that can't be."""
        found = told(self.wholes)
        return [*spans_of(self.spans)] if found is None else [Plays(self.scope, found)]


def gathered(spans: Iterable[ReadableSpan | Several]) -> list[Stretch | Plays | ReadableSpan]:
    """
    The spans in order, those together of which nothing unusual was said.

    These are steps of one owner, and episodes of one environment that were handed on as wholes.
    """
    found: list[Stretch | Plays | ReadableSpan] = []
    for one in _gathered(spans):
        if isinstance(one, _Wholes):
            found += one.settled
        else:
            found.append(one)
    return found


def _gathered(spans: Iterable[ReadableSpan | Several]) -> list[Stretch | _Wholes | ReadableSpan]:
    found: list[Stretch | _Wholes | ReadableSpan] = []
    whose: object = None
    rows: list[Row] = []
    parents: dict[int, tuple[int, int, SpanContext | None]] = {}
    for span in spans:
        # to ask `isinstance` takes longer than the rest
        plain = span.row() if getattr(span, "is_plain", False) else None  # type: ignore[union-attr]
        if plain is None:
            whose = None
            if not isinstance(span, ReadableSpan):
                _join(found, span.scope, span.whole, span)
            elif not getattr(span, "is_whole", False) or not _is_whole(cast(LiveSpan, span), found):
                found.append(span)
            continue
        owner, row = plain
        if owner is not whose:
            whose, rows, live = owner, [], cast(LiveSpan, span)
            trace_id, _, parent_id, *_, flags = live.outline(parents)
            found.append(Stretch(live.scope, trace_id, parent_id, flags, owner.base, rows))
        rows.append(row)
    return found


def _is_whole(root: LiveSpan, found: list[Stretch | _Wholes | ReadableSpan]) -> bool:
    """Put an episode's root together with its steps, which are the last of what was found."""
    whole = root.whole(found[-1]) if found else None
    if whole is None:
        return False
    _join(found, root.scope, whole, cast(LiveSpan, found.pop()), root)
    return True


def _join(found: list[Stretch | _Wholes | ReadableSpan], scope: Scope, whole: Whole, *spans: Arrival) -> None:
    """Put an episode together with those before it, where they are of one kind."""
    last = found[-1] if found else None
    if (
        not isinstance(last, _Wholes)
        or last.scope is not scope
        or last.wholes[0].said is not whole.said
        or last.wholes[0].form != whole.form
    ):
        last = _Wholes(scope, [], [])
        found.append(last)
    last.wholes.append(whole)
    last.spans.extend(spans)


def pack(spans: Iterable[ReadableSpan | Several]) -> bytes:
    """
    The spans as bytes, for a process of the same interpreter, token blocks as they were handed over.

    Raises ValueError for values that bytes can't be made of.
    """
    scopes = _Scopes()
    parents: dict[int, tuple[int, int, SpanContext | None]] = {}
    parcels: list[Parcel] = []
    for one in gathered(spans):
        if isinstance(one, Stretch):
            parcels.append((scopes.place(one.scope), *one[1:]))
        elif isinstance(one, Plays):
            parcels.append((scopes.place(one.scope), *one.episodes))
        elif isinstance(one, LiveSpan):
            parcels.append((scopes.place(one.scope), *one.outline(parents), *_said(one)))
        else:
            parcels.append(_other(scopes, record(one, full)))
    return marshal.dumps((scopes.listed, parcels), FORM)


class _Scopes:
    """The scopes so far, each told once; they are told by identity, which is known for the spans' life."""

    def __init__(self) -> None:
        self.listed: list[Parcel] = []
        self._known: dict[int, tuple[int, Scope]] = {}

    def place(self, scope: Scope) -> int:
        """Where it is in the list."""
        found = self._known.get(id(scope))
        if found is None:
            found = self._known[id(scope)] = (len(self.listed), scope)
            self.listed.append(_scope(scope))
        return found[0]


def _said(span: LiveSpan) -> Parcel:
    """What it has that few have, which attributes are arrays, the others, and its token block."""
    parts = span.unsaid()
    if parts is not None:
        stated, rest = parts
        return None, (), (_travelling(stated), rest), None
    block, whole = span.block, span.unusual()  # in this order: another transport may look meanwhile
    return (None if whole is None else _rest(whole), *_split(dict(span.scalars)), block)


def _other(scopes: _Scopes, whole: SpanRecord) -> Parcel:
    ids = int(whole.trace_id, 16), int(whole.span_id, 16), int(whole.parent_id or "0", 16)
    life = whole.name, whole.kind, whole.start_time, whole.end_time, whole.flags
    return (scopes.place(whole.scope), *ids, *life, _rest(whole), *_split(dict(whole.attributes)), None)


def _rest(whole: SpanRecord) -> Parcel:
    """What few spans have."""
    return (
        whole.status_code,
        whole.status_message,
        [
            (one.name, one.time, _travelling(dict(one.attributes)), one.dropped_attributes)
            for one in whole.events
        ],
        [
            (one.trace_id, one.span_id, _travelling(dict(one.attributes)), one.flags, one.dropped_attributes)
            for one in whole.links
        ],
        whole.trace_state,
        whole.dropped_attributes,
        whole.dropped_events,
        whole.dropped_links,
    )


def _split(attributes: dict[str, Any]) -> tuple[Sequence[str], Mapping[str, Any]]:
    """Which attributes are numpy arrays, and all of them, these as what they are made of."""
    arrays = [key for key, value in attributes.items() if type(value) is np.ndarray]
    if not arrays:
        return (), _travelling(attributes)
    made = {key: _made_of(attributes[key]) for key in arrays}
    return arrays, _travelling({**attributes, **made})


def _made_of(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


_EXACT = frozenset({str, float, int, bool, bytes, type(None)})
_MEMBERS = frozenset({dict, list, tuple})


def _travelling(value: Any) -> Any:
    """The value itself; raises ValueError for what would arrive as something else, as numpy's numbers do."""
    kind = type(value)
    if kind in _MEMBERS:
        for item in value.values() if kind is dict else value:
            if type(item) not in _EXACT:
                _travelling(item)
    elif kind not in _EXACT:
        raise ValueError(f"a {kind.__name__} can't travel")
    return value


def _scope(scope: Scope) -> Parcel:
    return (
        scope.name,
        scope.version,
        scope.schema_url,
        dict(scope.resource),
        dict(scope.attributes),
        scope.resource_schema_url,
    )

"""Ended spans on their way to another process, and out of the parcel there."""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan

from mttp.codec.profiles import Profile, full, of_block
from mttp.livespan import LiveSpan
from mttp.readable import record
from mttp.spans import Link, Scope, SpanEvent, SpanRecord

__all__ = ["OddBlocksError", "pack", "unpack"]

_Parcel: TypeAlias = tuple[Any, ...]


class OddBlocksError(Exception):
    """Token blocks hold something else than numbers, which nobody had looked at."""

    def __init__(self, places: list[int]) -> None:
        super().__init__(f"{len(places)} token blocks hold something else than numbers")
        self.places = places
        """Which of the spans have them."""


def pack(spans: Sequence[ReadableSpan]) -> bytes:
    """
    The spans as bytes, for a process of the same interpreter, token blocks as they were handed over.

    Raises ValueError for values that bytes can't be made of.
    """
    places: dict[int, int] = {}
    scopes: list[_Parcel] = []
    parcels = []
    for span in spans:
        scope, parcel = _live(span) if isinstance(span, LiveSpan) else _other(record(span, full))
        place = places.get(id(scope))
        if place is None:
            place = places[id(scope)] = len(scopes)
            scopes.append(_scope(scope))
        parcels.append((place, *parcel))
    return marshal.dumps((scopes, parcels))


def unpack(data: bytes, profile: Profile) -> list[SpanRecord]:
    """The spans, their attributes as `profile` delivers them; raises OddBlocksError."""
    scopes, parcels = marshal.loads(data)
    known = [Scope(*parts) for parts in scopes]
    records, odd = [], []
    for place, (scope, *parcel, arrays, scalars, block) in enumerate(parcels):
        for key in arrays:
            scalars[key] = _array(*scalars[key])
        attributes = of_block(profile, scalars, block)
        if attributes is None:
            odd.append(place)
        else:
            records.append(_record(known[scope], attributes, *parcel))
    if odd:
        raise OddBlocksError(odd)
    return records


def _live(span: LiveSpan) -> tuple[Scope, _Parcel]:
    unusual = span.unusual()
    rest = None if unusual is None else _rest(unusual)
    return span.scope, (*span.outline(), rest, *_split(span.scalars), span.block)


def _other(whole: SpanRecord) -> tuple[Scope, _Parcel]:
    ids = int(whole.trace_id, 16), int(whole.span_id, 16), int(whole.parent_id or "0", 16)
    life = whole.name, whole.kind, whole.start_time, whole.end_time, whole.flags
    return whole.scope, (*ids, *life, _rest(whole), *_split(dict(whole.attributes)), None)


def _rest(whole: SpanRecord) -> _Parcel:
    """What few spans have."""
    return (
        whole.status_code,
        whole.status_message,
        [(one.name, one.time, dict(one.attributes), one.dropped_attributes) for one in whole.events],
        [
            (one.trace_id, one.span_id, dict(one.attributes), one.flags, one.dropped_attributes)
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
        return (), attributes
    made = {
        key: (attributes[key].dtype.str, attributes[key].shape, attributes[key].tobytes()) for key in arrays
    }
    return arrays, {**attributes, **made}


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    return np.frombuffer(data, dtype).reshape(shape)


def _scope(scope: Scope) -> _Parcel:
    return (
        scope.name,
        scope.version,
        scope.schema_url,
        dict(scope.resource),
        dict(scope.attributes),
        scope.resource_schema_url,
    )


def _record(
    scope: Scope,
    attributes: Mapping[str, Any],
    trace_id: int,
    span_id: int,
    parent_id: int,
    name: str,
    kind: int,
    start_time: int,
    end_time: int,
    flags: int,
    rest: _Parcel | None,
) -> SpanRecord:
    said: dict[str, Any] = {}
    if rest is not None:
        code, message, events, links, state, *dropped = rest
        said = {"status_code": code, "status_message": message, "trace_state": state}
        said |= dict(zip(("dropped_attributes", "dropped_events", "dropped_links"), dropped, strict=True))
        said["events"] = [SpanEvent(*event) for event in events]
        said["links"] = [Link(*link) for link in links]
    return SpanRecord(
        trace_id=f"{trace_id:032x}",
        span_id=f"{span_id:016x}",
        parent_id=f"{parent_id:016x}" if parent_id else "",
        name=name,
        kind=kind,
        start_time=start_time,
        end_time=end_time,
        attributes=attributes,
        flags=flags,
        scope=scope,
        **said,
    )

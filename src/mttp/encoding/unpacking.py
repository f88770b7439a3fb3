"""A parcel of spans as whoever helps takes it: without OpenTelemetry, which would take long to import."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from mttp.codec import episodes, transitions
from mttp.codec.profiles import Profile, of_block
from mttp.codec.series import Series
from mttp.encoding.play import Plays
from mttp.encoding.stretch import Stretch
from mttp.semconv import spans as names
from mttp.spans import Link, Scope, SpanEvent, SpanRecord

__all__ = ["FORM", "Parcel", "unpack"]

FORM: Final = 2
"""The form of marshal that does not look for what comes twice, which takes twice as long as the rest."""

Parcel: TypeAlias = tuple[Any, ...]
"""What is said of a span, or of those together, in a form that travels."""
_OF_STRETCH = len(Stretch._fields) - 1
"""Parts of a parcel that is one, but for its scope."""
_OF_PLAYS = len(Series._fields)
"""Likewise."""


def unpack(data: bytes, profile: Profile) -> Iterator[Stretch | Plays | SpanRecord]:
    """The spans of a parcel, in order; attributes as `profile` delivers them, but for those together."""
    scopes, parcels = marshal.loads(data)
    known = [Scope(*parts) for parts in scopes]
    for scope, *parcel in parcels:
        if len(parcel) == _OF_STRETCH:
            yield Stretch(known[scope], *parcel)
            continue
        if len(parcel) == _OF_PLAYS:
            yield Plays(known[scope], Series(*parcel))
            continue
        *about, arrays, scalars, block = parcel
        if type(scalars) is tuple:
            scalars = _put_in_words(parcel[3], *scalars)
        for key in arrays:
            scalars[key] = _array(*scalars[key])
        yield _record(known[scope], of_block(profile, scalars, block), *about)


def _put_in_words(name: str, stated: Any, rest: Any) -> dict[str, Any]:
    """The attributes of an episode's root, or of steps in columns."""
    known = episodes.unstated(*stated) if type(stated) is tuple else stated
    said = transitions.said if name == names.STEPS else episodes.plain_ending
    return {**known, **said(*rest)}


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    return np.frombuffer(data, dtype).reshape(shape)


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
    rest: Parcel | None,
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

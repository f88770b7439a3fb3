"""Converts arguments of OpenTelemetry's API to types that can be encoded, and prints spans like the SDK."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, TypeVar

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes

from mttp.codec.plain import Faults, nanoseconds, plain, scalar_text, text
from mttp.codec.profiles import arrays
from mttp.model import clock
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.span_fields import flags

__all__ = [
    "CountedEvent",
    "CountedLink",
    "as_tuple",
    "event_fields",
    "frozen",
    "is_context",
    "left_out",
    "link_fields",
    "mended",
    "pairs",
    "printed",
]

_EXACT = frozenset({str, bool, int, float, bytes, type(None)})
_T = TypeVar("_T")
_TRACE_IDS, _SPAN_IDS, _COUNTS = range(2**128), range(2**64), range(2**32)
_INT64 = range(-(2**63), 2**63)


def pairs(what: str, given: object, faults: Faults) -> list[tuple[str, Any]]:
    """
    Return the items of a mapping, with names converted by `str`.

    Items whose name is empty, or has no `str` of its own, are omitted with a fault.
    """
    if given is None:
        return []
    try:
        items = list(given.items())  # type: ignore[attr-defined]  # raises for other types
    except Exception as error:
        raise_interrupt(error)
        faults.append(f"{what}_invalid: {scalar_text(given):.80} is not a mapping")
        return []
    named = [(_name(key, faults), value) for key, value in items]
    return [(name, value) for name, value in named if name]


def _name(key: object, faults: Faults) -> str:
    if isinstance(key, str) and key:
        return text(key, faults)
    try:
        printed = str(key) if key and _prints(type(key)) else ""
    except Exception as error:  # objects of other libraries may raise any error
        raise_interrupt(error)
        printed = ""
    if not printed:
        faults.append(f"attributes_refused: {scalar_text(key):.80} is not a name")
    return text(printed, faults)


def _prints(kind: Any) -> bool:
    return kind.__str__ is not object.__str__ or kind.__repr__ is not object.__repr__


def frozen(attributes: object, faults: Faults) -> dict[str, Any]:
    """Return attributes of an event or a link as plain values, with tuples for sequences."""
    plain_values = {name: plain(value, faults) for name, value in pairs("attributes", attributes, faults)}
    return {name: as_tuple(value) for name, value in arrays(plain_values).items()}


def as_tuple(value: Any) -> Any:
    """Convert lists to tuples, as OpenTelemetry has sequences."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def is_context(context: object) -> bool:
    """Whether it is a span context whose ids can be encoded."""
    return (
        isinstance(context, SpanContext) and context.trace_id in _TRACE_IDS and context.span_id in _SPAN_IDS
    )


def mended(span: ReadableSpan, faults: Faults) -> dict[str, Any]:
    """
    Return the fields of another library's span in the types of OpenTelemetry's API; corrections are faults.

    The SDK does not check its arguments, and exporting invalid ones would raise.
    """
    ended = _time("end", span.end_time, clock.wall(), faults)
    return {
        "name": _string("name", span.name, faults),
        "kind": _one_of(SpanKind, "kind", span.kind, SpanKind.INTERNAL, faults),
        "status": _status(span.status, faults),
        "start_time": _time("start", span.start_time, ended, faults),
        "end_time": ended,
        "attributes": _attributes(span.attributes, faults),
        "events": [_event(event, ended, faults) for event in span.events],
        "links": [_link(link, faults) for link in span.links if _is_link(link, faults)],
    }


def left_out(count: int) -> int:
    """Return a count of dropped items as an unsigned 32-bit integer; the SDK's can be negative."""
    return min(max(count, 0), _COUNTS[-1])


def _wrong(what: str, value: object, faults: Faults) -> None:
    faults.append(f"span_invalid: {what} {scalar_text(value):.80}")


def _string(what: str, value: object, faults: Faults) -> str:
    if not isinstance(value, str):
        _wrong(what, value, faults)
    return text(value, faults)


def _one_of(kind: type[_T], what: str, value: object, otherwise: _T, faults: Faults) -> _T:
    if isinstance(value, kind):
        return value
    _wrong(what, value, faults)
    return otherwise


def _time(what: str, value: object, otherwise: int, faults: Faults) -> int:
    if type(value) is int and 0 <= value < 2**63:
        return value
    _wrong(what, value, faults)
    moment = nanoseconds(value, [])
    return otherwise if moment is None else moment


def _status(status: Status, faults: Faults) -> Status:
    if isinstance(status.status_code, StatusCode):
        return status
    _wrong("status", status.status_code, faults)
    return Status(StatusCode.UNSET)


def _attributes(attributes: object, faults: Faults) -> Mapping[str, Any]:
    """Return attributes of valid types as a copy, others converted."""
    if isinstance(attributes, Mapping) and all(
        type(key) is str and type(value) in _EXACT and (type(value) is not int or value in _INT64)
        for key, value in attributes.items()
    ):
        return dict(attributes)
    return frozen(attributes, faults)


def _event(event: Event, otherwise: int, faults: Faults) -> Event:
    when = _time("event's time", event.timestamp, otherwise, faults)
    return CountedEvent(
        _string("event", event.name, faults),
        _attributes(event.attributes, faults),
        when,
        dropped=left_out(event.dropped_attributes),
    )


def _link(link: Link, faults: Faults) -> Link:
    return CountedLink(
        link.context, _attributes(link.attributes, faults), dropped=left_out(link.dropped_attributes)
    )


def _is_link(link: Link, faults: Faults) -> bool:
    if is_context(link.context):
        return True
    _wrong("link", link.context, faults)
    return False


class CountedEvent(Event):
    """An event with the number of attributes that its library dropped."""

    def __init__(self, name: str, attributes: Mapping[str, Any], timestamp: int, *, dropped: int) -> None:
        super().__init__(name, attributes, timestamp)
        self._dropped = dropped

    @property
    def dropped_attributes(self) -> int:
        """Their number."""
        return self._dropped


class CountedLink(Link):
    """A link with the number of attributes that its library dropped."""

    def __init__(self, context: SpanContext, attributes: Mapping[str, Any], *, dropped: int) -> None:
        super().__init__(context, attributes)
        self._dropped = dropped

    @property
    def dropped_attributes(self) -> int:
        """Their number."""
        return self._dropped


def event_fields(event: Event) -> tuple[Any, ...]:
    """Return an event as the arguments of `SpanEvent`."""
    return event.name, event.timestamp, _listed(event.attributes), event.dropped_attributes


def link_fields(link: Link) -> tuple[Any, ...]:
    """Return a link as the arguments of a record's `Link`."""
    context = link.context
    ids = f"{context.trace_id:032x}", f"{context.span_id:016x}"
    return *ids, _listed(link.attributes), flags(context), link.dropped_attributes


def _listed(attributes: Attributes) -> dict[str, Any]:
    """Return attributes with tuples as lists, as in records that were read."""
    copy = dict(attributes or {})
    return {key: list(value) if type(value) is tuple else value for key, value in copy.items()}


def printed(span: ReadableSpan, indent: int | None) -> str:
    """Return the span as JSON text like the SDK, with bytes as base64."""
    printable = ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_printable(span.attributes),
        events=[Event(e.name, _printable(e.attributes), e.timestamp) for e in span.events],
        links=[Link(link.context, _printable(link.attributes)) for link in span.links],
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
    return str(printable.to_json(indent))


def _printable(value: Any) -> Any:
    """Convert bytes to base64, also in containers."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, (list, tuple)) else value

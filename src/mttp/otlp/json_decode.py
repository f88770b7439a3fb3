"""
Decodes lines of OTLP JSON to span records.

It is as lenient as OTLP/JSON requires: unknown fields are ignored, null is the default, ids are hexadecimal
in either case, int64 is text or a number, enums are numbers or names, and an empty value is None.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from pybase64 import b64decode

from mttp.errors import ReadError
from mttp.model.nesting import MAX_DEPTH
from mttp.model.spans import KEPT_LISTS, Draft, Link, Scope, SpanEvent, SpanRecord, frozen, kept_columns
from mttp.otlp import json_schema as messages
from mttp.otlp.json_arrays import Place, cut, hollowed, numbers
from mttp.otlp.json_nesting import parsed
from mttp.semconv import attributes as a
from mttp.semconv.registry import NO_SCALAR, is_scalar

__all__ = [
    "LineError",
    "decode_attributes",
    "decode_documents",
    "decode_line",
    "decode_spans",
]

_T = TypeVar("_T")


class LineError(ReadError):
    """A line is not OTLP JSON traces; the message says what it is."""

    def __init__(
        self, kind: Literal["broken_line", "not_traces"], message: str, signal: str | None = None
    ) -> None:
        super().__init__(message)
        self.kind: Literal["broken_line", "not_traces"] = kind
        """`broken_line`, or `not_traces` for valid JSON of another kind."""
        self.signal = signal
        """`logs`, `metrics` or `profiles` if the line is OTLP JSON of this kind."""


_EVERYTHING = msgspec.json.Decoder(messages.JsonTraces[messages.JsonSpan])
_SCALARS = msgspec.json.Decoder(messages.JsonTraces[messages.ScalarSpan])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw] | None)
_RESOURCE = msgspec.json.Decoder(messages.JsonResourceHead)
_SCOPE = msgspec.json.Decoder(messages.JsonScopeHead)
_ONE = msgspec.json.Decoder(messages.JsonSpan)
_ONE_OF_SCALARS = msgspec.json.Decoder(messages.ScalarSpan)
_ARRAY = msgspec.json.Decoder(messages.JsonArray)
_MAYBE_ARRAY = msgspec.json.Decoder(messages.JsonArray | None)
_MAYBE_TEXT = msgspec.json.Decoder(str | None)
_ATTRIBUTES = msgspec.json.Decoder(list[messages.JsonKeyValue])
_SCALAR_ATTRIBUTES = msgspec.json.Decoder(list[messages.ScalarKeyValue])

_KINDS = {
    "SPAN_KIND_UNSPECIFIED": 0,
    "SPAN_KIND_INTERNAL": 1,
    "SPAN_KIND_SERVER": 2,
    "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
}
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_NULL = msgspec.Raw(b"null")
_NO_VALUE = messages.ScalarOrText()
_negative_zeros = re.compile(rb'"doubleValue":\s*-0(?=\s*})').sub
_COLUMN = f"{a.STEPS_COLUMN}."
_SHARED = {key: key for name, key in vars(a).items() if name.isupper()}
"""The attributes of the convention, one object each for all spans."""
_HEX = "0123456789abcdefABCDEF"
_INVALID = (ValueError, OverflowError, RecursionError, msgspec.DecodeError)
_OTHER_SIGNALS = {"resourceLogs": "logs", "resourceMetrics": "metrics", "resourceProfiles": "profiles"}


def decode_line(line: bytes, *, arrays: bool = True) -> list[SpanRecord]:
    """
    Return the spans of one line, in the order in which they stand there.

    Without `arrays`, attributes that are arrays, maps, bytes or empty are left out, but for `KEPT_LISTS`
    and `kept_columns`; so are events and links.
    Of one that should be a scalar by the registry, `NO_SCALAR` is the value.
    Of values that are nested deeper than `MAX_DEPTH`, one level more is kept.
    Raises LineError when any part of the line that is not left out is wrong.
    """
    decoder = _EVERYTHING if arrays else _SCALARS
    short, places = cut(line) if arrays else (hollowed(line), [])
    if short is not line:
        with suppress(*_INVALID, LookupError):  # the error is reported for the whole line
            traces = decoder.decode(_signed(short))
            if traces.resource_spans:
                return _records(traces, _Cut(line, places), arrays=arrays)
    traces = _parsed(line, decoder)
    try:
        return _records(traces, _NOTHING_CUT, arrays=arrays)
    except _INVALID as error:
        raise LineError("broken_line", f"not valid OTLP JSON: {error}") from error


def _records(traces: Any, cut_out: _Cut, *, arrays: bool) -> list[SpanRecord]:
    blocks = (
        (_scope(resource_spans, scope_spans, cut_out), scope_spans.spans or ())
        for resource_spans in traces.resource_spans or ()
        for scope_spans in resource_spans.scope_spans or ()
    )
    return [_record(span, scope, cut_out, arrays=arrays) for scope, spans in blocks for span in spans]


def decode_spans(line: bytes, *, arrays: bool = True) -> tuple[list[SpanRecord], list[str]]:
    """
    The good ones among the spans of a line that `decode_line` refuses, and what is wrong with the others.

    Spans of a resource or a scope that is wrong are read without it.
    Raises LineError where nothing of the line can be read.
    """
    decode = _ONE.decode if arrays else _ONE_OF_SCALARS.decode
    records: list[SpanRecord] = []
    reasons: list[str] = []
    position = 0
    for position, (scope, written) in enumerate(_written(line, reasons), start=1):
        try:
            records.append(_record(decode(written), scope, _NOTHING_CUT, arrays=arrays))
        except _INVALID as error:
            reasons.append(f"span {position} of the line is not valid OTLP JSON: {error}")
    if reasons and not position:
        raise LineError("broken_line", reasons[0])
    return records, reasons


def decode_documents(text: bytes, *, arrays: bool = True) -> tuple[list[SpanRecord], list[str]]:
    """
    Return the spans of a document, or of a list of documents, like `decode_line`, and what is wrong.

    Raises LineError where nothing can be read, or it is none of OTLP JSON traces.
    """
    if text[:64].lstrip()[:1] == b"[":
        return _decode_list(text, arrays=arrays)
    try:
        return decode_line(text, arrays=arrays), []
    except LineError as error:
        if error.kind == "broken_line":
            with suppress(LineError):
                return decode_spans(text, arrays=arrays)
        raise


def _decode_list(text: bytes, *, arrays: bool) -> tuple[list[SpanRecord], list[str]]:
    try:
        documents = parsed(_ITEMS.decode, text) or ()
    except _INVALID as error:
        raise LineError("broken_line", f"not JSON: {_position(str(error))}") from error
    spans: list[SpanRecord] = []
    reasons: list[str] = []
    refused: list[LineError] = []
    for number, document in enumerate(documents, start=1):
        try:
            read, wrong = decode_documents(bytes(document), arrays=arrays)
        except LineError as error:
            refused.append(error)
            wrong = [] if error.signal else [str(error)]
        else:
            spans += read
        reasons += (f"document {number} of the list: {reason}" for reason in wrong)
    if documents and len(refused) == len(documents):
        raise next((error for error in refused if error.signal), refused[0])
    return spans, reasons


def decode_attributes(document: str, *, arrays: bool = True) -> dict[str, Any]:
    """Parse the text of a span's attributes, a list of keys with values, like `decode_line`."""
    if arrays:
        return _attributes(parsed(_ATTRIBUTES.decode, document.encode()), _NOTHING_CUT)
    return _scalars(parsed(_SCALAR_ATTRIBUTES.decode, document.encode()))


def _written(line: bytes, reasons: list[str]) -> Iterator[tuple[Scope, msgspec.Raw]]:
    """Yield the spans of a line unchanged; add what is wrong around them to the reasons."""

    def read(parse: Callable[[msgspec.Raw], _T], text: msgspec.Raw, what: str) -> _T | None:
        try:
            return parse(text)
        except _INVALID as error:
            reasons.append(f"{what} of the line is not valid OTLP JSON: {error}")
            return None

    try:
        document = parsed(_FIELDS.decode, _signed(line))
    except _INVALID as error:
        raise LineError("broken_line", f"not valid OTLP JSON: {error}") from error
    blocks = read(_ITEMS.decode, document.get("resourceSpans", _NULL), "resourceSpans")
    for number, block in enumerate(blocks or (), start=1):
        place = f"resourceSpans {number}"
        if (fields := read(_FIELDS.decode, block, place)) is None:
            continue
        resource = read(_resource_of, block, f"the resource of {place}") or Scope()
        scopes = read(_ITEMS.decode, fields.get("scopeSpans", _NULL), f"scopeSpans of {place}")
        for scope_number, scope_block in enumerate(scopes or (), start=1):
            inner = f"scopeSpans {scope_number} of {place}"
            if (fields := read(_FIELDS.decode, scope_block, inner)) is None:
                continue
            scope = read(_scope_of, scope_block, f"the scope of {inner}") or Scope()
            scope = replace(
                scope, resource=resource.resource, resource_schema_url=resource.resource_schema_url
            )
            for span in read(_ITEMS.decode, fields.get("spans", _NULL), f"spans of {inner}") or ():
                yield scope, span


def _resource_of(block: msgspec.Raw) -> Scope:
    return _scope(_RESOURCE.decode(block), messages.JsonScopeHead(), _NOTHING_CUT)


def _scope_of(block: msgspec.Raw) -> Scope:
    return _scope(messages.JsonResourceHead(), _SCOPE.decode(block), _NOTHING_CUT)


def _parsed(line: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        traces = parsed(decoder.decode, _signed(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _explained(_document(line), error) from error
    if traces.resource_spans is msgspec.UNSET:
        document = _document(line)
        if document:  # `{}` is a valid empty message
            raise _no_traces(document)
        return messages.JsonTraces(None)
    return traces


def _signed(text: bytes) -> bytes:
    """Return OTLP JSON in which doubles that Go writes as -0, which would be read as 0, have a point."""
    is_suspect = b'"doubleValue":-0}' in text or b'": ' in text[:64]  # this is faster than the expression
    return _negative_zeros(rb"\g<0>.0", text) if is_suspect else text


def _document(line: bytes) -> Any:
    """Return the line as plain JSON; raises LineError if it is not JSON."""
    try:
        return msgspec.json.decode(line)
    except UnicodeDecodeError as error:
        raise LineError("broken_line", "not JSON: it is not UTF-8 text") from error
    except RecursionError as error:
        raise LineError("broken_line", "not valid OTLP JSON: it is nested too deeply") from error
    except msgspec.DecodeError as error:
        raise LineError("broken_line", f"not JSON: {_position(str(error))}") from error


def _explained(document: Any, error: Exception) -> LineError:
    if isinstance(document, dict) and "resourceSpans" in document:
        return LineError("broken_line", f"not valid OTLP JSON: {error}")
    return _no_traces(document)


def _no_traces(document: Any) -> LineError:
    signals = [
        signal for key, signal in _OTHER_SIGNALS.items() if isinstance(document, dict) and key in document
    ]
    message = f"{_described(document)}, not traces"
    return LineError("not_traces", message, signals[0] if signals else None)


def _position(reason: str) -> str:
    return reason.removeprefix("JSON is malformed: ").replace("Input data was truncated", "it ends too early")


def _described(document: object) -> str:
    """Return what a JSON document is that is not traces."""
    if not isinstance(document, dict):
        kind = {list: "an array", str: "text", bool: "a boolean", type(None): "null"}.get(
            type(document), "a number"
        )
        return f"the line is {kind}"
    for key, signal in _OTHER_SIGNALS.items():
        if key in document:
            return f"the line holds {signal} ({key})"
    shown = ", ".join(repr(key) for key in list(document)[:4]) + (", …" if len(document) > 4 else "")
    return f"the line is an object of {shown}"


def _scope(resource_spans: Any, scope_spans: Any, cut_out: _Cut) -> Scope:
    resource, scope = resource_spans.resource, scope_spans.scope or messages.JsonScope()
    return Scope(
        name=scope.name or "",
        version=scope.version or "",
        schema_url=scope_spans.schema_url or "",
        resource=_attributes(resource.attributes, cut_out) if resource else {},
        attributes=_attributes(scope.attributes, cut_out),
        resource_schema_url=resource_spans.schema_url or "",
    )


def _record(span: Any, scope: Scope, cut_out: _Cut, *, arrays: bool) -> SpanRecord:
    status = span.status
    return frozen(
        Draft(
            trace_id=_repeated_id(span.trace_id, 32, "traceId"),
            span_id=_id(span.span_id, 16, "spanId"),
            parent_id=_parent(span.parent_span_id) if span.parent_span_id else "",
            name=span.name or "",
            kind=span.kind if type(span.kind) is int else _enum(span.kind, _KINDS),
            start_time=_time(span.start_time_unix_nano),
            end_time=_time(span.end_time_unix_nano),
            attributes=_attributes(span.attributes, cut_out) if arrays else _scalars(span.attributes),
            status_code=_enum(status.code, _STATUS_CODES) if status else 0,
            status_message=(status.message or "") if status else "",
            events=_events(span.events, cut_out) if span.events else (),
            links=_links(span.links, cut_out) if span.links else (),
            trace_state=span.trace_state or "",
            flags=int(span.flags or 0),
            dropped_attributes=int(span.dropped_attributes_count or 0),
            dropped_events=int(span.dropped_events_count or 0),
            dropped_links=int(span.dropped_links_count or 0),
            scope=scope,
        )
    )


def _id(text: str | None, digits: int, field: str) -> str:
    if text is None or len(text) != digits or text.strip(_HEX) or not text.strip("0"):
        raise ValueError(f"{field} is {text!r}, expected {digits} hexadecimal digits, not all of them zero")
    return text.lower()


_repeated_id = lru_cache(maxsize=256)(_id)
"""Cached, for ids that many spans of a line share."""


@lru_cache(maxsize=256)
def _parent(text: str) -> str:
    """Return the id of the parent; some writers write zeros for none."""
    return _id(text, 16, "parentSpanId") if text.strip("0") else ""


def _time(value: int | float | str | None) -> int:
    time = int(value or 0)
    if not 0 <= time < 2**63:
        raise ValueError(f"{value!r} is not a time in nanoseconds since 1970")
    return time


def _enum(value: int | str | None, names: Mapping[str, int]) -> int:
    if isinstance(value, str):
        return names[value] if value in names else int(value)
    return value or 0


def _events(events: Sequence[messages.JsonEvent], cut_out: _Cut) -> tuple[SpanEvent, ...]:
    return tuple(
        SpanEvent(
            event.name or "",
            _time(event.time_unix_nano),
            _attributes(event.attributes, cut_out),
            int(event.dropped_attributes_count or 0),
        )
        for event in events
    )


def _links(links: Sequence[messages.JsonLink], cut_out: _Cut) -> tuple[Link, ...]:
    return tuple(
        Link(
            (link.trace_id or "").lower(),
            (link.span_id or "").lower(),
            _attributes(link.attributes, cut_out),
            int(link.flags or 0),
            int(link.dropped_attributes_count or 0),
        )
        for link in links
    )


def _scalars(pairs: Iterable[messages.ScalarKeyValue] | None) -> dict[str, Any]:
    scalars: dict[str, Any] = {}
    columns: dict[str, messages.ScalarOrText] = {}
    for pair in pairs or ():
        value = pair.value
        if value is None:
            value = _NO_VALUE
        if value.string_value is not None:
            scalars[pair.key] = value.string_value
        elif value.double_value is not None:
            scalars[pair.key] = float(value.double_value)
        elif value.int_value is not None:
            scalars[pair.key] = int(value.int_value)
        elif value.bool_value is not None:
            scalars[pair.key] = value.bool_value
        elif pair.key in KEPT_LISTS and (array := _MAYBE_ARRAY.decode(value.array_value or b"null")):
            scalars[pair.key] = _array(array, _NOTHING_CUT, 0)
        elif pair.key.startswith(_COLUMN):
            columns[pair.key] = value
        elif is_scalar(pair.key):
            scalars[pair.key] = NO_SCALAR
    for key in kept_columns(columns) if columns else ():
        if (array := _MAYBE_ARRAY.decode(columns[key].array_value or b"null")) is not None:
            scalars[key] = _array(array, _NOTHING_CUT, 0)
        elif (encoded := _MAYBE_TEXT.decode(columns[key].bytes_value or b"null")) is not None:
            scalars[key] = _bytes(encoded)
    return scalars


class _Cut(NamedTuple):
    """The arrays that were cut out of a line."""

    line: bytes
    places: Sequence[Place]

    def items(self, number: int) -> bytes:
        """Return the text that was cut out."""
        start, end = self.places[number]
        return self.line[start:end]


_NOTHING_CUT = _Cut(b"", ())


def _attributes(
    pairs: Iterable[messages.JsonKeyValue] | None, cut_out: _Cut, depth: int = 0
) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for pair in pairs or ():
        value = pair.value
        text = None if value is None else value.string_value
        key = pair.key
        attributes[_SHARED.get(key, key)] = _plain(value, cut_out, depth) if text is None else text
    return attributes


def _plain(value: messages.JsonValue | None, cut_out: _Cut, depth: int) -> Any:
    """Return a value at that depth of arrays and maps; those beyond the limit become empty."""
    if value is None:
        return None
    if value.string_value is not None:
        return value.string_value
    if value.double_value is not None:
        return float(value.double_value)
    if value.int_value is not None:
        return int(value.int_value)
    if value.bool_value is not None:
        return value.bool_value
    if value.bytes_value is not None:
        return _bytes(value.bytes_value)
    if value.kvlist_value is not None:
        return _attributes(value.kvlist_value.values, cut_out, depth + 1) if depth < MAX_DEPTH else {}
    if value.array_value is None:
        return None
    return _array(value.array_value, cut_out, depth) if depth < MAX_DEPTH else []


def _array(array: messages.JsonArray, cut_out: _Cut, depth: int) -> list[Any]:
    values = array.values or ()
    first = values[0] if values else None
    if first is None or first.place is None or not cut_out.places:
        return [_plain(item, cut_out, depth + 1) for item in values]
    items = cut_out.items(first.place)
    figures = numbers(items)
    if figures is None:
        return _array(_ARRAY.decode(_signed(b'{"values":[%b]}' % items)), _NOTHING_CUT, depth)
    return figures


def _bytes(encoded: str) -> bytes:
    """Decode base64 of either alphabet, with or without padding: JSON of protobuf allows all."""
    with suppress(ValueError):
        return b64decode(encoded, validate=True)
    if not encoded.isascii():
        raise ValueError("bytesValue is not base64")
    encoded = encoded.replace("-", "+").replace("_", "/").rstrip("=")
    return binascii.a2b_base64(encoded + "=" * (-len(encoded) % 4))

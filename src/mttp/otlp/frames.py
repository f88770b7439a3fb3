"""
Ended spans as frames, one `bytes` object each, and their bytes in a file or a request.

This module imports nothing of OpenTelemetry, which would take a third of the start of the encoding process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from mttp.codec import pending
from mttp.codec.profiles import Profile, full, packed, unpacked
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.otlp import json as otlp_json
from mttp.otlp.json import SpanRow, SpanText
from mttp.otlp.json_decode import decode_line
from mttp.otlp.protobuf import encode_span

__all__ = [
    "UNFIT",
    "Fields",
    "Frame",
    "Scopes",
    "encoded",
    "lines",
    "messages",
    "rare_fields",
    "record",
    "joined",
    "split",
]

UNFIT: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""Raised for a span with values that no frame holds, such as text with lone surrogates."""

Fields: TypeAlias = tuple[Any, ...]
"""
Span and parent id (numbers; 0 is none), name, kind, start, end, flags, attributes, what is pending of
these, and `rare_fields`; the last two are None for most.
"""
Scopes: TypeAlias = Mapping[int, Scope]
"""The scopes of frames, by number."""

_HEAD: Final = struct.Struct("<16sBI")
_LAST, _OF_EPISODE, _ENCODED = 1, 2, 4
_ARRAY: Final = 1
"""The code of an array in msgpack."""


class Frame(bytes):
    """An ended span: what a queue asks for at fixed places, then its `Fields` as msgpack, or its JSON."""

    __slots__ = ()

    @classmethod
    def of(cls, trace_id: int, fields: Fields, *, scope: int, is_last: bool, of_episode: bool) -> Frame:
        """Return a frame; raises one of `UNFIT`."""
        marks = _LAST * is_last | _OF_EPISODE * of_episode
        content = bytearray(_HEAD.pack(trace_id.to_bytes(16, "big"), marks, scope))
        _encode_into(fields, content, _HEAD.size)
        return cls(content)

    @property
    def trace_id(self) -> int:
        """Id of its trace."""
        return int.from_bytes(self[:16], "big")

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self)

    @property
    def is_last(self) -> bool:
        """Whether it is the last span of its trace, or of this process's part of the trace."""
        return bool(self[16] & _LAST)

    @property
    def of_episode(self) -> bool:
        """Whether it belongs to an episode."""
        return bool(self[16] & _OF_EPISODE)

    @property
    def is_encoded(self) -> bool:
        """Whether it is the span's JSON by now."""
        return bool(self[16] & _ENCODED)

    @property
    def scope(self) -> int:
        """The number of its scope."""
        return int.from_bytes(self[17 : _HEAD.size], "little")


def _as_ext(value: Any) -> Any:
    """Return an array for msgpack, and a number of numpy's as Python's."""
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return msgspec.msgpack.Ext(_ARRAY, _encode((value.dtype.str, value.shape, value.tobytes())))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a frame holds no {type(value).__name__}")


def _encode(value: object) -> bytes:
    content = bytearray()
    _encode_into(value, content)  # the encoder's `encode` crashes the interpreter when memory runs out
    return bytes(content)


def _as_array(_: int, data: memoryview) -> Any:
    dtype, shape, elements = _decode(data)
    return np.frombuffer(elements, dtype).reshape(shape)


_encode_into = msgspec.msgpack.Encoder(enc_hook=_as_ext).encode_into
_decode = msgspec.msgpack.Decoder(ext_hook=_as_array).decode


def lines(frames: Sequence[Frame], scopes: Scopes) -> bytes:
    """Encode frames as OTLP JSON lines, arrays packed."""
    return b"".join(otlp_json.lines_of(_texts(frames, scopes)))


def _texts(frames: Sequence[Frame], scopes: Scopes) -> Iterator[SpanText]:
    """Yield spans as JSON; those of frames that are JSON already come first."""
    waiting: list[Frame] = []
    for frame in frames:
        if frame.is_encoded:
            yield SpanText(scopes[frame.scope], frame.trace_id, frame[_HEAD.size :])
        else:
            waiting.append(frame)
    rows = _rows(waiting, scopes, packed)
    for row, text in zip(rows, otlp_json.texts(rows), strict=True):
        yield SpanText(row.scope, row.trace_id, text)


def encoded(frames: Sequence[Frame], scopes: Scopes) -> Sequence[Frame]:
    """Return frames as JSON, arrays packed."""
    waiting = [frame for frame in frames if not frame.is_encoded]
    texts = iter(otlp_json.texts(_rows(waiting, scopes, packed)))
    return [frame if frame.is_encoded else _with_text(frame, next(texts)) for frame in frames]


def _with_text(frame: Frame, text: bytes) -> Frame:
    return Frame(b"%b%c%b%b" % (frame[:16], frame[16] | _ENCODED, frame[17 : _HEAD.size], text))


def messages(frames: Sequence[Frame], scopes: Scopes) -> list[bytes]:
    """Encode each frame as an OTLP protobuf message."""
    return [encode_span(_record(row)) for row in _rows(frames, scopes, full)]


def record(frame: Frame, scope: Scope, profile: Profile) -> SpanRecord:
    """Return a frame as a record."""
    if frame.is_encoded:
        (line,) = otlp_json.lines_of([SpanText(scope, frame.trace_id, frame[_HEAD.size :])])
        (decoded,) = decode_line(line)
        return replace(decoded, attributes=profile(unpacked(decoded.attributes)))
    (row,) = _rows([frame], {frame.scope: scope}, profile)
    return _record(row)


def _rows(frames: Sequence[Frame], scopes: Scopes, profile: Profile) -> list[SpanRow]:
    fields = [_decode(memoryview(frame)[_HEAD.size :]) for frame in frames]
    attributes = pending.delivered([(each[7], each[8]) for each in fields], profile)
    return [
        SpanRow._make((scopes[frame.scope], frame.trace_id, *each[:7], values, _rest(each[9])))
        for frame, each, values in zip(frames, fields, attributes, strict=True)
    ]


def _record(row: SpanRow) -> SpanRecord:
    known: dict[str, Any] = {}
    if row.rest is not None:
        known = row.rest._asdict()
    return SpanRecord(
        trace_id=f"{row.trace_id:032x}",
        span_id=f"{row.span_id:016x}",
        parent_id=f"{row.parent_id:016x}" if row.parent_id else "",
        name=row.name,
        kind=row.kind,
        start_time=row.start_time,
        end_time=row.end_time,
        attributes=row.attributes,
        flags=row.flags,
        scope=row.scope,
        **known,
    )


def rare_fields(rest: otlp_json.RareFields) -> Fields:
    """Return events, links, status and what few spans have as plain data."""
    events = [(each.name, each.time, dict(each.attributes), each.dropped_attributes) for each in rest.events]
    links = [
        (each.trace_id, each.span_id, dict(each.attributes), each.flags, each.dropped_attributes)
        for each in rest.links
    ]
    return events, links, *rest[2:]


def _rest(fields: Sequence[Any] | None) -> otlp_json.RareFields | None:
    if fields is None:
        return None
    events, links, *others = fields
    return otlp_json.RareFields(
        [SpanEvent(*event) for event in events], [Link(*link) for link in links], *others
    )


# Between processes.


def joined(frames: Sequence[Frame], scopes: Scopes) -> bytes:
    """Return frames and their scopes as one message; raises one of `UNFIT`."""
    numbers = dict.fromkeys(frame.scope for frame in frames)
    known = {number: _parts(scopes[number]) for number in numbers}
    return _encode((known, list(map(len, frames)), b"".join(frames)))


def split(message: bytes) -> tuple[list[Frame], dict[int, Scope]]:
    """Return the frames and scopes of a message."""
    scopes, lengths, content = _decode(message)
    frames, start = [], 0
    for length in lengths:
        frames.append(Frame(content[start : start + length]))
        start += length
    return frames, {number: Scope(*parts) for number, parts in scopes.items()}


def _parts(scope: Scope) -> Fields:
    return (
        scope.name,
        scope.version,
        scope.schema_url,
        dict(scope.resource),
        dict(scope.attributes),
        scope.resource_schema_url,
    )

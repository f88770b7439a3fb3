"""
Ended spans as frames, one `bytes` object each, and their bytes in a file or a request.

This module imports nothing of OpenTelemetry, which would take a third of the start of the encoding process.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from mttp.codec import kinds, pending
from mttp.codec.profiles import Profile, full, packed, unpacked
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.otlp import json as otlp_json
from mttp.otlp.json import NOTHING_RARE, Fields, SpanText, fields_of
from mttp.otlp.json_decode import decode_line
from mttp.otlp.protobuf import encode_fields, encode_span
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = [
    "IF_TAKEN",
    "LINES",
    "MESSAGES",
    "NEVER",
    "SCOPES",
    "WHEREVER",
    "Fields",
    "Frame",
    "Scopes",
    "answer",
    "changed",
    "encoded",
    "framed",
    "joined",
    "lines",
    "messages",
    "number_of",
    "record",
    "split",
]

Scopes: TypeAlias = Mapping[int, Scope]
"""The scopes of frames, by number."""

SCOPES: Final[WeakValueDictionary[int, Scope]] = WeakValueDictionary()
"""
The scopes of this process's frames, by number; a scope disappears when nothing refers to it.

The transports that keep frames after an export, memory and the spool, refer to the scopes of these frames.
"""
_numbers = count(1)
_recent: deque[Scope] = deque(maxlen=4096)
"""The latest scopes, which are kept for the frames of an export."""


def number_of(scope: Scope) -> int:
    """Return a new number that stands for a scope in frames, as long as the scope is kept."""
    number = next(_numbers)
    SCOPES[number] = scope
    _recent.append(scope)
    return number


_HEAD: Final = struct.Struct("<16sBI")
_LAST, _OF_EPISODE, _ENCODED, _SAMPLED = 1, 2, 4, 8
NEVER, IF_TAKEN, WHEREVER = 0, 16, 32
"""Whether steps may be in columns: never, where the transport takes columns, or always."""
_ROWS: Final = 64
_ARRAY: Final = 1
"""The code of an array in msgpack."""
_UNFIT: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""Raised for values that msgpack does not hold, such as text with lone surrogates."""


class Frame(bytes):
    """
    An ended span: what a queue asks for at fixed places, then its `Fields` as msgpack.

    Of a span with values that msgpack does not hold, and of one that a caller has encoded, it has the JSON.
    """

    __slots__ = ()

    @classmethod
    def of(
        cls,
        trace_id: int,
        fields: Fields,
        *,
        scope: int,
        is_last: bool,
        of_episode: bool,
        is_sampled: bool = True,
        columns: int = NEVER,
        has_rows: bool = False,
    ) -> Frame:
        """Return a frame of a span; `has_rows` of a batch of steps."""
        marks = _LAST * is_last | _OF_EPISODE * of_episode | _SAMPLED * is_sampled | columns
        marks |= _ROWS * has_rows
        head = _HEAD.pack(trace_id.to_bytes(16, "big"), marks, scope)
        return cls(_content(head, trace_id, fields))

    @property
    def trace_id(self) -> int:
        """Id of its trace."""
        return int.from_bytes(self[:16], "big")

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
        """Whether it is the span's JSON."""
        return bool(self[16] & _ENCODED)

    @property
    def is_sampled(self) -> bool:
        """Whether its trace is sampled."""
        return bool(self[16] & _SAMPLED)

    @property
    def has_rows(self) -> bool:
        """Whether it is a batch of steps in columns."""
        return bool(self[16] & _ROWS)

    @property
    def columns(self) -> int:
        """Whether its step or steps may be in columns."""
        return self[16] & (IF_TAKEN | WHEREVER)

    @property
    def scope(self) -> int:
        """The number of its scope."""
        return int.from_bytes(self[17 : _HEAD.size], "little")


def _content(head: bytes, trace_id: int, fields: Fields) -> bytes | bytearray:
    content = bytearray(head)
    try:
        _encode_into(fields, content, _HEAD.size)
    except _UNFIT:
        attributes = packed(pending.encoded(fields[7]))
        return _as_json(head, otlp_json.text(trace_id, (*fields[:7], attributes, fields[8])))
    return content


def _as_json(head: bytes, text: bytes) -> bytes:
    return b"%b%c%b%b" % (head[:16], head[16] | _ENCODED, head[17 : _HEAD.size], text)


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


# Frames and records.


def record(frame: Frame, profile: Profile = full, scopes: Scopes = SCOPES) -> SpanRecord:
    """Return a frame as a record, with attributes converted by `profile`."""
    scope = scopes[frame.scope]
    if frame.is_encoded:
        text = scope, frame.trace_id, frame[_HEAD.size :]
        ((decoded,),) = map(decode_line, otlp_json.lines_of([text]))
        return replace(decoded, attributes=profile(unpacked(decoded.attributes)), scope=scope)
    span_id, parent_id, name, kind, start, end, flags, attributes, rare = _fields(frame)
    (values,) = pending.delivered([attributes], profile)
    events, links, code, message, state, *dropped = rare or NOTHING_RARE
    return SpanRecord(
        trace_id=frame[:16].hex(),
        span_id=f"{span_id:016x}",
        parent_id=f"{parent_id:016x}" if parent_id else "",
        name=name,
        kind=kind,
        start_time=start,
        end_time=end,
        attributes=values,
        status_code=code,
        status_message=message,
        events=events and [SpanEvent(*event) for event in events],
        links=links and [Link(*link) for link in links],
        trace_state=state,
        flags=flags,
        dropped_attributes=dropped[0],
        dropped_events=dropped[1],
        dropped_links=dropped[2],
        scope=scope,
    )


def framed(record: SpanRecord, scope: int, *, is_sampled: bool = True, columns: int = NEVER) -> Frame:
    """Return a record as a frame; raises ValueError for an id that is not hexadecimal."""
    is_root = not record.parent_id
    return Frame.of(
        int(record.trace_id or "0", 16),
        fields_of(record),
        scope=scope,
        is_last=is_root or kinds.of(record.name, record.attributes, is_root=False) == names.SEGMENT,
        of_episode=a.EPISODE_ID in record.attributes,
        is_sampled=is_sampled,
        columns=columns,
    )


def changed(frame: Frame, record: SpanRecord) -> Frame:
    """Return a frame with the fields of a record, and what queues ask for as in `frame`."""
    marks = frame[16] & ~_ENCODED
    head = b"%b%c%b" % (frame[:16], marks, frame[17 : _HEAD.size])
    return Frame(_content(head, frame.trace_id, fields_of(record)))


def _fields(frame: Frame) -> Fields:
    fields: Fields = _decode(memoryview(frame)[_HEAD.size :])
    return fields


# Frames as bytes.


def lines(frames: Sequence[Frame], scopes: Scopes = SCOPES) -> bytes:
    """Encode frames as OTLP JSON lines, arrays packed."""
    return b"".join(otlp_json.lines_of(_texts(frames, scopes)))


_PIECE = 2**17
"""Bytes of frames that are encoded at once: they stay in the processor's cache."""


def _texts(frames: Sequence[Frame], scopes: Scopes) -> Iterator[SpanText]:
    for piece in _pieces(frames):
        texts = _written(frame for frame in piece if not frame.is_encoded)
        for frame in piece:
            text = frame[_HEAD.size :] if frame.is_encoded else next(texts)
            yield scopes[frame.scope], frame[:16], text


def _written(frames: Iterable[Frame]) -> Iterator[bytes]:
    """Yield each span as JSON, arrays packed; token blocks of all are packed together."""
    spans = [(frame.trace_id, _fields(frame)) for frame in frames]
    attributes = pending.delivered([fields[7] for _, fields in spans], packed)
    for (trace_id, fields), values in zip(spans, attributes, strict=True):
        yield otlp_json.text(trace_id, (*fields[:7], values, fields[8]))


def _pieces(frames: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    start = size = 0
    for place, frame in enumerate(frames, 1):
        size += len(frame)
        if size >= _PIECE:
            yield frames[start:place]
            start, size = place, 0
    if start < len(frames):
        yield frames[start:]


def encoded(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return frames as JSON, arrays packed, but for steps that may become columns."""
    chosen = [not frame.is_encoded and (frame.has_rows or not frame.columns) for frame in frames]
    texts = _written(frame for frame, is_chosen in zip(frames, chosen, strict=True) if is_chosen)
    return [
        Frame(_as_json(frame, next(texts))) if is_chosen else frame
        for frame, is_chosen in zip(frames, chosen, strict=True)
    ]


def messages(frames: Sequence[Frame], scopes: Scopes = SCOPES) -> list[bytes]:
    """Encode each frame as an OTLP protobuf message."""
    return [_message(frame, scopes) for frame in frames]


def _message(frame: Frame, scopes: Scopes) -> bytes:
    if frame.is_encoded:
        return encode_span(record(frame, full, scopes))
    fields = _fields(frame)
    return encode_fields(frame[:16], (*fields[:7], pending.encoded(fields[7]), fields[8]))


# Between processes.


def joined(frames: Sequence[Frame], scopes: Scopes = SCOPES) -> bytes:
    """Return frames and their scopes as one message."""
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


LINES, MESSAGES = 1, 2
"""What an encoding process makes of frames: OTLP JSON lines, or the OTLP protobuf message of each span."""


def answer(work: int, message: bytes) -> bytes:
    """Encode joined frames in an encoding process."""
    frames_and_scopes = split(message)
    return lines(*frames_and_scopes) if work == LINES else _encode(messages(*frames_and_scopes))

"""The envelope of messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from mttp.errors import ChecksumError, EncodeError, EnvelopeError, PayloadError
from mttp.mist.messages.canonical import compact, encode
from mttp.mist.messages.decoding import decode, fold
from mttp.mist.messages.payloads import PAYLOADS, Int64, Payload
from mttp.mist.messages.syntax import JsonDocument, JsonFault
from mttp.mist.messages.versions import VERSION
from mttp.model import clock, ids

MAX_SIZE = 10_485_760
"""Maximum bytes of a message."""

_REQUIRED = ("version", "id", "source", "type")
_INT64 = range(-(2**63), 2**63)
_UINT32 = range(2**32)
_HEAD = re.compile(
    "".join(
        rf'{mark}"{name}":"(?P<{name}>[ !#-\[\]-~]+)"' for name, mark in zip(_REQUIRED, "{,,,", strict=True)
    )
    + r',"timestamp_ns":(?P<timestamp_ns>0|[1-8][0-9]{,18}|9[0-9]{,17}),"payload":[ \t\n\r]*'
).match
_TAIL = re.compile(r'(?:,"checksum":([1-3][0-9]{,9}|[4-9][0-9]{,8}))?\}[ \t\n\r]*\Z').match
"""The usual text before and after the payload, for fast parsing."""


class Message(BaseModel):
    """
    One message, with its payload as encoded JSON.

    Unknown fields are kept, and written after the known ones.
    """

    model_config = ConfigDict(frozen=True, strict=True, use_attribute_docstrings=True)

    version: str = VERSION
    """The version of the protocol."""
    id: str
    """Id of the message, by default 32 hexadecimal digits."""
    source: str
    """The program that sends it."""
    type: str
    """Type of the message, a key of `PAYLOADS`; other tools may use further types."""
    timestamp_ns: Int64 = 0
    """Time of creation, in nanoseconds since the Unix epoch."""
    payload: Annotated[bytes, WithJsonSchema({})] = b""
    """The payload as JSON; `decode` returns it as a value."""
    checksum: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """CRC-32 of the payload; 0 if it was not computed."""
    unknown: Annotated[tuple[tuple[str, bytes], ...], Field(exclude=True)] = ()
    """Unknown fields of the envelope: names and JSON."""

    @classmethod
    def new(
        cls,
        source: str,
        payload: Payload,
        *,
        timestamp_ns: int | None = None,
        id: str | None = None,
        checksum: bool = False,
    ) -> Message:
        """
        Create a message with `payload`; the default for `timestamp_ns` is now, for `id` a random id.

        Raises EncodeError if JSON can't represent the payload, and EnvelopeError if the message is invalid.
        """
        if not getattr(payload, "TYPE", ""):
            known = ", ".join(payload.__name__ for payload in PAYLOADS.values())
            raise EncodeError(f"{payload!r:.80} is not a payload; payloads of mttp.mist.messages are {known}")
        raw = encode(payload.to_wire())
        message = cls(
            id=f"{ids.trace_id():032x}" if id is None else id,
            source=source,
            type=payload.TYPE,
            timestamp_ns=clock.wall() if timestamp_ns is None else timestamp_ns,
            payload=raw,
            checksum=crc32(raw) if checksum else 0,
        )
        message.validate()
        return message

    @classmethod
    def from_bytes(cls, raw: bytes) -> Message:
        """
        Parse a message, without verifying its checksum and version.

        Raises EnvelopeError with the position if the message is invalid.
        """
        if len(raw) > MAX_SIZE:
            raise EnvelopeError(f"too large: {len(raw):,} bytes, at most {MAX_SIZE:,} are allowed")
        document = JsonDocument(raw)
        try:
            message = cls(**_fields(document))
        except JsonFault as fault:
            raise EnvelopeError(fault.reason, position=document.position(fault.at)) from fault
        message.validate()
        return message

    def to_bytes(self) -> bytes:
        """
        Encode the message in one line, without a line end, as the reference implementation does.

        A valid checksum is recomputed if the payload has to be reformatted; an invalid one is kept.
        """
        payload = compact(self.payload) or b"null"
        known = {name: getattr(self, name) for name in (*_REQUIRED, "timestamp_ns")}
        parts = [encode(known)[:-1], b',"payload":', payload]
        if checksum := self._checksum_of(payload):
            parts.append(b',"checksum":%d' % checksum)
        parts += [b",%s:%s" % (encode(name), compact(raw)) for name, raw in self.unknown]
        return b"".join([*parts, b"}"])

    def decode(self) -> Payload:
        """Return the payload as a value; raises PayloadError if it does not match the type."""
        payload = PAYLOADS.get(self.type)
        if payload is None:
            raise PayloadError(
                f"{self.type!r:.80} is not a known type; known types are {', '.join(PAYLOADS)}"
            )
        return decode(payload, self.payload)

    def verify_checksum(self) -> None:
        """Raise ChecksumError if the message has a checksum that is not that of its payload."""
        if self.checksum and self.checksum != crc32(self.payload):
            raise ChecksumError(
                f"the checksum is {self.checksum}, that of the payload is {crc32(self.payload)}: "
                "the payload was changed"
            )

    def validate(self) -> None:  # type: ignore[override]  # pydantic's is deprecated
        """Raise EnvelopeError if a required field is missing, or the payload is too large."""
        for name in _REQUIRED:
            if not getattr(self, name):
                raise EnvelopeError(f"{name} is missing")
        if len(self.payload) > MAX_SIZE:
            raise EnvelopeError(f"too large: a payload of {len(self.payload):,} bytes")

    def _checksum_of(self, payload: bytes) -> int:
        """Return the checksum to write with the reformatted payload."""
        checksum = self.checksum
        return crc32(payload) if checksum and checksum == crc32(self.payload) else checksum


def _fields(document: JsonDocument) -> dict[str, Any]:
    """Parse the fields of the envelope; raises JsonFault if it is invalid."""
    if (head := _HEAD(document.text)) and (
        tail := _TAIL(document.text, payload_end := document.skip(head.end(), depth=1))
    ):
        fields: dict[str, Any] = head.groupdict() | {"payload": document.raw(head.end(), payload_end)}
        return fields | {"timestamp_ns": int(head["timestamp_ns"]), "checksum": int(tail[1] or 0)}
    return _members(document)


def _members(document: JsonDocument) -> dict[str, Any]:
    start = document.start()
    if document.kind(start) == "null":
        return dict.fromkeys(_REQUIRED, "")
    if document.kind(start) != "an object":
        raise JsonFault(f"{document.kind(start)}, expected an object", start)
    fields: dict[str, Any] = dict.fromkeys(_REQUIRED, "")
    unknown: dict[str, bytes] = {}
    for key, at, end in document.members(start):
        name = key if key in _READERS else fold(key)
        if name not in _READERS:
            unknown[key] = document.raw(at, end)
        elif name == "payload" or document.kind(at) != "null":
            fields[name] = _READERS[name](document, name, at, end)
    if unknown:
        fields["unknown"] = tuple(unknown.items())
    return fields


def _text(document: JsonDocument, name: str, at: int, _: int) -> str:
    if document.kind(at) != "a string":
        raise JsonFault(f"{name} is {document.kind(at)}, expected a string", at)
    return str(document.value(at))


def _integer(allowed: range) -> _Reader:
    def read(document: JsonDocument, name: str, at: int, end: int) -> int:
        text = document.text[at:end]
        sign = 1 if allowed.start < 0 and text.startswith("-") else 0
        if not text[sign:].isdecimal() or len(text) > 20 or int(text) not in allowed:
            bounds = f"an integer from {allowed.start} to {allowed.stop - 1}"
            raise JsonFault(
                f"{name} is {text[:40]}, expected {bounds}, written without fraction and exponent", at
            )
        return int(text)

    return read


_Reader = Callable[[JsonDocument, str, int, int], Any]
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(_REQUIRED, _text),
    "timestamp_ns": _integer(_INT64),
    "payload": lambda document, _, at, end: document.raw(at, end),
    "checksum": _integer(_UINT32),
}

"""Messages: what is read, what is refused, and what is written."""

from __future__ import annotations

import re
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import LINES, REFERENCE, messages

import mttp
from mttp.errors import ChecksumError, DecodeError, EncodeError, EnvelopeError, MttpError, PayloadError
from mttp.mist.messages import MAX_SIZE, EvalRun, HealthPing, Message, TraceSpan

PING = HealthPing(from_="here")


def envelope(**members: str | None) -> bytes:
    """A message as text, member by member; one that is None is left out."""
    parts = {"version": '"1"', "id": '"i"', "source": '"s"', "type": '"health.ping"', "timestamp_ns": "1"}
    parts |= {"payload": '{"from":"here"}'} | members
    return (
        "{" + ",".join(f'"{name}":{text}' for name, text in parts.items() if text is not None) + "}"
    ).encode()


def refused(raw: bytes) -> EnvelopeError:
    """Why it is no message."""
    with pytest.raises(EnvelopeError) as caught:
        Message.from_bytes(raw)
    return caught.value


# As the others


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_of_the_reference_is_read_verified_and_written_alike(line: bytes):
    """
    Also when it is built again from its fields.
    """
    message = Message.from_bytes(line)
    message.verify_checksum()
    anew = Message.new(
        message.source, message.decode(), timestamp_ns=message.timestamp_ns, id=message.id, checksum=True
    )

    assert line == message.to_bytes()
    assert line == anew.to_bytes()


@pytest.mark.parametrize("case", REFERENCE, ids=range(len(REFERENCE)))
def test_what_the_reference_accepts_is_accepted_and_nothing_else(case: dict[str, object]):
    """
    Envelope, checksum and payload; the payload is kept to the byte.
    """
    raw = str(case["raw"]).encode("latin-1")
    if not case["accepted"]:
        refused(raw)
        return
    message = Message.from_bytes(raw)

    assert str(case["payload"]).encode("latin-1") == message.payload
    assert case["checksum_holds"] == holds(message)
    assert case["payload_accepted"] == says_something(message)


@pytest.mark.parametrize(
    "case", [case for case in REFERENCE if case["accepted"]], ids=lambda case: str(case["raw"])[:40]
)
def test_what_is_written_is_what_the_reference_writes(case: dict[str, object]):
    """
    But for fields that it drops and checksums that it leaves wrong.
    """
    message = Message.from_bytes(str(case["raw"]).encode("latin-1"))
    known = message.model_copy(update={"unknown": ()})
    expected = str(case["rewritten"]).encode("latin-1")
    if holds(message) and message.checksum:
        expected = re.sub(rb'"checksum":\d+}$', b"", expected)
        assert known.to_bytes().startswith(expected)
        Message.from_bytes(known.to_bytes()).verify_checksum()
    else:
        assert expected == known.to_bytes()


def holds(message: Message) -> bool:
    """Whether the checksum is that of the payload, or none is stated."""
    try:
        message.verify_checksum()
    except ChecksumError:
        return False
    return True


def says_something(message: Message) -> bool:
    """Whether the payload is one of its type."""
    try:
        message.decode()
    except PayloadError:
        return False
    return True


# New messages


def test_a_new_message_has_what_every_message_must():
    """
    An id of its own, the time, and a checksum where one is wanted.
    """
    one, other = Message.new("me", PING), Message.new("me", PING, checksum=True)

    assert ("1", "me", "health.ping", b'{"from":"here"}') == (one.version, one.source, one.type, one.payload)
    assert re.fullmatch("[0-9a-f]{32}", one.id)
    assert one.id != other.id
    assert 0 < one.timestamp_ns <= other.timestamp_ns
    assert (0, crc32(one.payload)) == (one.checksum, other.checksum)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", object(), {1: 2}, b"bytes", {"a": {1}}]
)
def test_what_json_can_not_hold_is_refused(value: object):
    """
    When the message is built, not when it is read.
    """
    with pytest.raises(EncodeError):
        Message.new("me", TraceSpan(attrs={"x": value}))


def test_only_payloads_are_carried():
    """
    A dict has no type.
    """
    with pytest.raises(EncodeError, match=r"\{'suite': 'x'\} is not a payload; .*EvalRun"):
        Message.new("me", {"suite": "x"})  # type: ignore[arg-type]


def test_a_message_from_nobody_is_not_made():
    """
    A message without a source is refused, because receivers reject it.
    """
    with pytest.raises(EnvelopeError, match="source is missing"):
        Message.new("", PING)


@given(messages)
def test_what_is_written_is_read(message: Message):
    """
    Whole, in one line, with its payload and a checksum that holds.
    """
    line = message.to_bytes()
    read = Message.from_bytes(line)
    read.verify_checksum()

    assert message == read
    assert line == read.to_bytes()
    assert b"\n" not in line
    assert message.decode() == read.decode()


# Reading


@pytest.mark.parametrize(
    ("raw", "position", "reason"),
    [
        (b"", 0, "the end where a value should begin"),
        (b"\xef\xbb\xbf{}", 0, "byte order mark"),
        (b"[]", 0, "an array, expected an object"),
        (b'{"version":"1"', 14, "the end where ',' or '}' should be"),
        (b'{"version":\xc3\xbc}', 11, "where a value should begin"),
        ('{"a":"üü","b":nope}'.encode(), 16, "'nope}' where a value should begin"),
        (envelope() + b"{}", len(envelope()), "after the end of the value"),
        (envelope(payload="NaN"), envelope().index(b'{"from'), "'NaN}' where a value should begin"),
        (envelope(timestamp_ns="1.0"), envelope().index(b'1,"payload'), "timestamp_ns is 1.0"),
        (envelope(checksum="-1"), len(envelope()) - 1 + len(',"checksum":'), "checksum is -1"),
        (envelope(id="5"), 20, "id is a number, expected a string"),
        (envelope(source=None), None, "source is missing"),
        (envelope(version='""'), None, "version is missing"),
    ],
)
def test_a_refusal_says_where_and_why(raw: bytes, position: int | None, reason: str):
    """
    The byte, counted from 0, and what stands there.
    """
    error = refused(raw)

    assert position == error.position
    assert reason in error.reason
    assert isinstance(error, (DecodeError, MttpError, ValueError))


def test_the_largest_message_passes_and_one_more_byte_does_not():
    """
    10,485,760 bytes.
    """
    room = MAX_SIZE - len(envelope(payload='""'))
    message = Message.from_bytes(envelope(payload=f'"{"x" * room}"'))

    assert MAX_SIZE == len(message.to_bytes())
    assert "10,485,761 bytes" in refused(envelope(payload=f'"{"x" * (room + 1)}"')).reason


def test_a_payload_is_no_larger_than_a_message():
    """
    However it came about.
    """
    message = Message(id="i", source="s", type="t", payload=b"x" * (MAX_SIZE + 1))
    with pytest.raises(EnvelopeError, match="too large"):
        message.validate()


@pytest.mark.parametrize(("depth", "accepted"), [(1_000, True), (9_999, True), (10_000, False)])
def test_payloads_nest_as_deep_as_the_reference_allows(depth: int, accepted: bool):
    """
    10,000 levels, that of the envelope included.
    """
    raw = envelope(payload="[" * depth + "]" * depth)
    if accepted:
        assert raw == Message.from_bytes(raw).to_bytes()
    else:
        assert "nested deeper than 10,000" in refused(raw).reason


@pytest.mark.parametrize("depth", [*range(150, 1_100, 50), 3_000, 9_990])
def test_a_payload_of_any_depth_is_decoded_or_refused(depth: int):
    """
    Wherever in it Python gives up.
    """
    payload = '{"attrs":{"x":' + "[" * depth + "]" * depth + "}}"
    message = Message.from_bytes(envelope(type='"trace.span"', payload=payload))
    try:
        outcome = type(message.decode()).__name__
    except PayloadError as error:
        outcome = "deep" if "deep" in error.reason else error.reason

    assert outcome in ("TraceSpan", "deep")


def test_a_payload_too_deep_for_python_is_relayed_and_not_decoded():
    """
    The refusal says so.
    """
    attrs = '{"attrs":{"x":' + "[" * 5_000 + "]" * 5_000 + "}}"
    raw = envelope(type='"trace.span"', payload=attrs)
    message = Message.from_bytes(raw)

    assert raw == message.to_bytes()
    with pytest.raises(PayloadError, match="too deep"):
        message.decode()


def test_a_type_that_nobody_knows_is_relayed_and_not_decoded():
    """
    It may be one of a later version.
    """
    raw = envelope(type='"episode.done"')
    message = Message.from_bytes(raw)

    assert raw == message.to_bytes()
    with pytest.raises(
        PayloadError, match=r"'episode.done' is not a known type; known types are data.entities"
    ):
        message.decode()


# Checksums and relays


def test_a_wrong_checksum_is_an_error_when_it_is_asked_for():
    """
    Reading alone does not check; the error has both numbers.
    """
    message = Message.from_bytes(envelope(checksum="5"))
    with pytest.raises(
        ChecksumError, match=f"the checksum is 5, that of the payload is {crc32(message.payload)}"
    ):
        message.verify_checksum()


@pytest.mark.parametrize("stated", ["0", "null", None])
def test_no_checksum_is_not_checked(stated: str | None):
    """
    Zero and null say that there is none.
    """
    message = Message.from_bytes(envelope(checksum=stated))
    message.verify_checksum()

    assert b"checksum" not in message.to_bytes()


def test_a_checksum_that_held_holds_after_the_relay():
    """
    Though spaces and characters of the payload were written otherwise.
    """
    payload = '{ "from" : "<a> & \u2028" }'
    message = Message.from_bytes(envelope(payload=payload, checksum=str(crc32(payload.encode()))))
    message.verify_checksum()
    relayed = Message.from_bytes(message.to_bytes())
    relayed.verify_checksum()

    assert rb'{"from":"\u003ca\u003e \u0026 \u2028"}' == relayed.payload
    assert message.decode() == relayed.decode()


def test_a_checksum_that_did_not_hold_stays_wrong():
    """
    A relay must not hide what happened before it.
    """
    relayed = Message.from_bytes(
        Message.from_bytes(envelope(payload='{ "from":"x"}', checksum="5")).to_bytes()
    )

    assert 5 == relayed.checksum
    assert not holds(relayed)


def test_unknown_fields_are_relayed():
    """
    After those that are known, spelled as they came.
    """
    raw = envelope(trace='{"a": [1.0, 1e3]}', reply_to='"x"')
    message = Message.from_bytes(raw)

    assert (("trace", b'{"a": [1.0, 1e3]}'), ("reply_to", b'"x"')) == message.unknown
    assert envelope(trace='{"a":[1.0,1e3]}', reply_to='"x"') == message.to_bytes()
    assert message.unknown[1:] == Message.from_bytes(message.to_bytes()).unknown[1:]


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_flipped_bit_is_refused_or_does_no_harm(line: bytes):
    """
    Whatever still is a message with a checksum that holds has the payload that was sent.
    """
    sent = Message.from_bytes(line)
    survivors = 0
    for place in range(len(line)):
        for bit in range(8):
            broken = bytearray(line)
            broken[place] ^= 1 << bit
            try:
                read = Message.from_bytes(bytes(broken))
                read.verify_checksum()
            except DecodeError:
                continue
            survivors += 1
            if read.checksum:
                assert sent.payload == read.payload
            else:
                assert b',"checksum":%d}' % sent.checksum not in bytes(broken)

    assert survivors


@given(st.binary(max_size=40))
def test_noise_is_refused(noise: bytes):
    """
    With the error for it, and no other.
    """
    refused(noise)


# The package


def test_messages_are_part_of_the_package():
    """
    They load when they are used.
    """
    assert mttp.mist.messages.EvalRun is EvalRun

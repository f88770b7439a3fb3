"""Files of messages are recordings: their spans are read, and what is none is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading.traces import episode, run
from vectors import LINES

import mttp
from mttp.errors import ReadError
from mttp.mist import span_messages
from mttp.mist.messages import Message, TraceSpan
from mttp.model.spans import SpanRecord
from mttp.otlp.json import encode_records
from mttp.pages.summary import document

SPANS = [*run(), *episode(0), *episode(1)]
ENCODED = [message.to_bytes() for span in SPANS for message in span_messages.envelop(span)]
OTHER = {
    "trace_id": "0af7651916cd43dd8448eb211c80319c" * 2,
    "span_id": "00000000000000001111111111111111",
    "operation": "infermux.infer",
    "start_ns": 5,
    "end_ns": 7,
    "status": "ok",
}


def file(*lines: bytes, end: bytes = b"\n") -> str:
    """A file of these lines."""
    Path("messages.jsonl").write_bytes(b"\n".join(lines) + end)
    return "messages.jsonl"


def problems(source: str) -> list[tuple[str, int | None]]:
    """Kind and line of what is wrong."""
    return [(problem.kind, problem.line) for problem in mttp.read(source).problems]


def test_spans_that_came_as_messages_are_the_same_spans() -> None:
    """
    Spans from messages equal those from OTLP JSON, with and without arrays.
    """
    Path("otlp.jsonl").write_bytes(b"".join(encode_records(SPANS)))

    assert SPANS == list(mttp.scan(file(*ENCODED), arrays=True))
    for arrays in (True, False):
        expected = list(mttp.scan("otlp.jsonl", arrays=arrays))
        assert expected == list(mttp.scan("messages.jsonl", arrays=arrays))
    assert mttp.read("otlp.jsonl").episodes == mttp.read("messages.jsonl").episodes
    shown = [document(mttp.summarize(path)) | {"sources": []} for path in ("otlp.jsonl", "messages.jsonl")]
    assert shown[0] == shown[1]


def test_one_file_may_hold_both() -> None:
    """
    The format is detected per line.
    """
    otlp = b"".join(encode_records(SPANS[: len(run()) + 1])).splitlines()

    assert 2 == len(mttp.read(file(*otlp, *ENCODED)))
    assert [] == problems("messages.jsonl")


def test_other_tools_spans_are_foreign_spans() -> None:
    """
    They are scanned with the sender as their service, and are not episodes.
    """
    sent = Message(id="i", source="infermux", type="trace.span", payload=json.dumps(OTHER).encode())
    (found,) = mttp.scan(file(sent.to_bytes()))

    assert ("infermux.infer", "1111111111111111", 1) == (found.name, found.span_id, found.status_code)
    assert {"service.name": "infermux"} == found.scope.resource
    assert (0, []) == (len(mttp.read("messages.jsonl")), problems("messages.jsonl"))


def test_a_message_may_be_written_in_any_way() -> None:
    """
    Names in another case, fields in another order, with spaces.
    """
    first = json.loads(ENCODED[0])
    del first["checksum"]
    changed = json.dumps({name.title(): first[name] for name in reversed(first)}).encode()

    assert SPANS == list(mttp.scan(file(changed, *ENCODED[1:]), arrays=True))


def test_messages_that_are_no_spans_are_counted_by_type() -> None:
    """
    One problem for each type, with its first line; the spans are read.
    """
    ping, alert = LINES["health_ping"], LINES["trace_alert"]
    recording = mttp.read(file(ping, *ENCODED, ping, alert))

    assert 2 == len(recording)
    assert ["other_message", "other_message"] == [problem.kind for problem in recording.problems]
    assert [
        "messages.jsonl:1: 2 health.ping messages are not spans and were left out",
        f"messages.jsonl:{len(ENCODED) + 3}: 1 trace.alert message is not a span and was left out",
    ] == list(map(str, recording.problems))
    with pytest.raises(ReadError, match="messages are not spans"):
        mttp.read("messages.jsonl", strict=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda line: line.replace(b'"version":"1"', b'"version":"2"'),
            "version '2' of the protocol is too new",
        ),
        (lambda line: line.replace(b'"status":"unset"', b'"status":"ok"'), "the payload was changed"),
        (lambda line: line.replace(b'"source":"test"', b'"source":""'), "source is missing"),
        (lambda line: line[:-9], "byte"),
    ],
)
def test_a_message_that_may_not_be_trusted_is_a_problem(change: object, said: str) -> None:
    """
    With its line and what is wrong; the others are read.
    """
    (problem,) = mttp.read(file(ENCODED[0], change(ENCODED[0]), *ENCODED[1:])).problems  # type: ignore[operator]

    assert ("broken_message", 2) == (problem.kind, problem.line)
    assert said in problem.message


def test_a_payload_that_is_no_span_is_a_problem() -> None:
    """
    The payload is validated for every message type.
    """
    wrong = Message(id="i", source="s", type="trace.span", payload=b'{"start_ns":1.5}').to_bytes()
    early = Message.new("s", TraceSpan(start_ns=-1)).to_bytes()

    assert [("broken_message", 1), ("broken_message", 2)] == problems(file(wrong, early))


def test_a_last_line_may_be_cut_short() -> None:
    """
    This happens if the process is killed while writing.
    """
    assert [("truncated_line", len(ENCODED) + 1)] == problems(file(*ENCODED, ENCODED[0][:99], end=b""))


def test_other_json_is_still_no_recording() -> None:
    """
    A message has what every message must have.
    """
    with pytest.raises(ReadError, match="this is not a recording"):
        mttp.read(file(b'{"type":"x","payload":{}}'))


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, len(ENCODED[0]) - 1), st.integers(1, 255))
def test_a_flipped_byte_changes_no_span(place: int, bits: int) -> None:
    """
    The result is either the original span, or no span and a problem.
    """
    changed = bytearray(ENCODED[0])
    changed[place] ^= bits
    scan = mttp.scan(file(bytes(changed), ENCODED[1]), arrays=True)
    found = list(scan)

    assert SPANS[1] == found[-1]
    assert found[:-1] in ([SPANS[0]], [])
    assert bool(scan.problems) == (len(found) == 1)


def test_a_span_says_the_same_id_each_time() -> None:
    """
    The id is different for every span, so that a receiver can drop duplicates.
    """
    ids = [id for span in SPANS for _, id in span_messages.messages(span)]

    assert ids == [id for span in SPANS for _, id in span_messages.messages(span)]
    assert len(SPANS) == len(set(ids))
    assert {32} == {len(id or "") for id in ids}


def test_the_source_is_the_service() -> None:
    """
    Unless another is given; without either it is this package.
    """
    (of_service,) = span_messages.envelop(SPANS[0])
    (given,) = span_messages.envelop(SPANS[0], source="trainer", timestamp_ns=5)
    (of_nobody,) = span_messages.envelop(SpanRecord(trace_id="1" * 32, span_id="1" * 16, name="x"))

    assert ["test", "trainer", "mttp"] == [each.source for each in (of_service, given, of_nobody)]
    assert 5 == given.timestamp_ns


def test_only_some_messages_say_spans() -> None:
    """
    Messages of other types return None instead of an empty list.
    """
    assert SPANS[:1] == span_messages.records(span_messages.envelop(SPANS[0])[0])
    assert None is span_messages.records(Message.from_bytes(LINES["health_ping"]))

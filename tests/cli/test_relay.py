"""`mttp message relay`, and `mttp convert` to messages and from them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from mist import Mist, hang_up
from polling import eventually
from specimen import EVERYTHING
from typer.testing import CliRunner
from vectors import LINES

import mttp
from mttp.cli.app import app
from mttp.mist.messages import MAX_SIZE, Message
from mttp.model.spans import SpanRecord
from mttp.otlp.json import encode_records

GOOD = b"".join(line + b"\n" for line in LINES.values())
FORMATS = {"otlp": "out.jsonl", "messages": "out.mttp.jsonl", "parquet": "out.parquet"}


def invoke(*arguments: str, code: int = 0) -> Any:
    """The command's result, which exits so."""
    result = CliRunner().invoke(app, list(arguments), prog_name="mttp")

    assert code == result.exit_code, result.output
    return result


def relay(*arguments: str, code: int = 0) -> Any:
    """What became of the messages, as a document, and what was said besides."""
    result = invoke("message", "relay", *arguments, "--json", code=code)
    return json.loads(result.stdout), result.stderr


def started(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "mttp", "message", "relay", *arguments]
    return subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True)


@pytest.fixture
def messages() -> str:
    """A file of one message of each type."""
    Path("messages.jsonl").write_bytes(GOOD)
    return "messages.jsonl"


@pytest.fixture
def recorded() -> list[SpanRecord]:
    """The spans of a file `a.jsonl` that holds everything that can be said."""
    with mttp.configure("file://a.jsonl") as session:
        session.record(EVERYTHING)
    return list(mttp.scan("a.jsonl", arrays=True))


def said(spans: Iterable[SpanRecord]) -> list[str]:
    """All that spans say, NaN and types of numbers included; attributes may stand in any order."""
    return [repr(replace(span, attributes=sorted(span.attributes.items()))) for span in spans]


# relay


def test_messages_arrive_as_they_were(messages: str) -> None:
    """
    Byte for byte, whatever they say; a file's end is the end.
    """
    document, said = relay(messages, "mttp+file://out.jsonl")

    assert GOOD == Path("out.jsonl").read_bytes()
    assert (9, {}, {}, "") == (document["relayed"], document["bad"], document["lost"], said)
    assert 2 == document["types"]["trace.span"]


def test_what_nobody_here_knows_is_passed_on() -> None:
    """
    Unknown types and fields, and payloads written by others, whose checksums still hold after that.
    """
    raw = b'{ "version": "1", "id": "i", "source": "s", "type": "later", "x_hop": [1.0, "<"],'
    raw += b'"payload": {"b": 1.0, "a": 1e3, "big": 12345678901234567890}, "checksum": %d}\n'
    from zlib import crc32

    payload = b'{"b": 1.0, "a": 1e3, "big": 12345678901234567890}'
    Path("in.jsonl").write_bytes(raw % crc32(payload))
    relay("in.jsonl", "once.jsonl")
    relay("once.jsonl", "twice.jsonl")
    (message,) = mttp.mist.receive("mttp+file://twice.jsonl")

    assert b'{"b":1.0,"a":1e3,"big":12345678901234567890}' == message.payload
    assert (("x_hop", b'[1.0,"\\u003c"]'),) == message.unknown
    assert "later" == message.type
    assert Path("once.jsonl").read_bytes() == Path("twice.jsonl").read_bytes()


def test_a_bad_line_is_reported_and_the_rest_goes_on(messages: str) -> None:
    """
    The exit code says that not everything was passed on.
    """
    Path("bad.jsonl").write_bytes(b"{}\n" + GOOD.replace(b"915934159", b"915934158"))
    document, said = relay("bad.jsonl", "out.jsonl", code=1)

    assert (8, {"envelope": 1, "checksum": 1}) == (document["relayed"], document["bad"])
    assert "bad.jsonl:1: envelope: version is missing\n" in said
    assert "checksum: the checksum is 915934158" in said


def test_a_receiver_takes_what_it_knows(messages: str) -> None:
    """
    What it turns down is named and counted; what may pass is tried again.
    """
    with Mist() as mist:
        mist.answers = [(503, "0"), hang_up]
        document, said = relay(messages, mist.address, code=1)

    assert (2, {"http_400": 7}) == (document["relayed"], document["lost"])
    assert 2 == len(mist.spans)
    assert f"health.ping {Message.from_bytes(LINES['health_ping']).id} of mist-cli: 400 Bad Request\n" in said


def test_a_receiver_that_is_not_there_ends_it(messages: str) -> None:
    """
    After its patience; the file has the rest.
    """
    with Mist() as mist:
        pass
    document, said = relay(messages, mist.address, "--max-retry-seconds", "0", code=1)

    assert (0, {"connection": 1}) == (document["relayed"], document["lost"])
    assert "gave up" in said


def test_a_message_that_the_receiver_could_not_read_is_not_sent() -> None:
    """
    The stack's listeners stop at a megabyte.
    """
    large = Message(id="i", source="s", type="later", payload=b'"%b"' % (b"x" * (1 << 20)))
    Path("in.jsonl").write_bytes(large.to_bytes() + b"\n" + LINES["trace_span_root"] + b"\n")
    with Mist() as mist:
        document, said = relay("in.jsonl", mist.address, code=1)

    assert (1, {"too_large": 1}) == (document["relayed"], document["lost"])
    assert "a later message has 1,048,658 bytes, at most 1,048,576 are allowed" in said


def test_standard_input_and_output() -> None:
    """
    By a dash; the figures go where no messages do.
    """
    process = started("-", "-")
    out, said = process.communicate(GOOD.decode(), timeout=60)

    assert (GOOD.decode(), 0) == (out, process.returncode)
    assert said.startswith("relayed 9 messages\n  data.entities 1\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_listener_goes_on_until_it_is_interrupted(number: int) -> None:
    """
    And passes on what it has taken.
    """
    process = started("mttp+http://127.0.0.1:0", "out.jsonl")
    assert process.stderr is not None
    address = process.stderr.readline().split()[-1]
    with mttp.configure(address) as session:
        for _ in range(20):
            with mttp.episode():
                pass
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=60)

    assert (0, "relayed 21 messages") == (process.returncode, out.splitlines()[0])
    assert (20, []) == (len(mttp.read("out.jsonl")), mttp.read("out.jsonl").problems)
    assert 21 == session.stats.delivered


def test_a_file_may_be_followed() -> None:
    """
    What is appended is passed on, until it is interrupted.
    """
    process = started("in.jsonl", "out.jsonl", "--follow")
    Path("in.jsonl").write_bytes(GOOD)

    def passed_on() -> int:
        return Path("out.jsonl").read_bytes().count(b"\n") if Path("out.jsonl").exists() else 0

    assert eventually(lambda: passed_on() == 9)
    with Path("in.jsonl").open("ab") as file:
        file.write(GOOD)
    assert eventually(lambda: passed_on() == 18)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)

    assert 0 == process.returncode


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.jsonl", "out.jsonl"], "nowhere.jsonl does not exist"),
        (["messages.jsonl", "ftp://x"], "can't send messages to 'ftp://x'"),
        (["ftp://x", "out.jsonl"], "can't receive at 'ftp://x'"),
        (["mttp+http://127.0.0.1:0", "out.jsonl", "--follow"], "unknown option 'follow'"),
        (["chan://a", "out.jsonl"], "chan://a: a channel works within one process"),
    ],
)
def test_wrong_usage_is_reported_in_a_sentence(messages: str, arguments: list[str], said: str) -> None:
    """
    And ends with 2.
    """
    assert said in invoke("message", "relay", *arguments, code=2).stderr


# convert


@pytest.mark.parametrize("way", list(permutations(FORMATS)), ids="-".join)
def test_every_way_around_loses_nothing(recorded: list[SpanRecord], way: tuple[str, ...]) -> None:
    """
    From OTLP through all formats, in any order, and back.
    """
    source = "a.jsonl"
    for place, name in enumerate((*way, "otlp")):
        target = f"{place}-{FORMATS[name]}"
        assert f"wrote {len(recorded)} spans" in invoke("convert", source, target).stdout
        source = target

    assert said(recorded) == said(mttp.scan(source, arrays=True))
    assert mttp.read("a.jsonl").episodes == mttp.read(source).episodes


@pytest.mark.parametrize("name", ["b.mttp.jsonl", "b.mttp.jsonl.gz", "b.mttp.jsonl.zst"])
def test_the_name_says_that_messages_are_wanted(recorded: list[SpanRecord], name: str) -> None:
    """
    Compressed as the name says; each is trusted, and the same whenever it is written.
    """
    invoke("convert", "a.jsonl", name)
    first = [message.to_bytes() for message in mttp.mist.receive(f"mttp+file://{name}", strict=True)]
    invoke("convert", name, "again.mttp.jsonl")

    assert len(recorded) == len(first)
    assert first == Path("again.mttp.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("format", FORMATS)
def test_the_format_may_be_reported(recorded: list[SpanRecord], format: str) -> None:
    """
    Whatever the name.
    """
    invoke("convert", "a.jsonl", "b.jsonl", "--to", format)

    assert said(recorded) == said(mttp.scan("b.jsonl", arrays=True))
    begins = {"otlp": b'{"resourceSpans"', "messages": b'{"version":"1"', "parquet": b"PAR1"}[format]
    assert Path("b.jsonl").read_bytes().startswith(begins)


def test_what_a_format_can_not_hold_is_named_and_counted(messages: str) -> None:
    """
    Messages that are no spans; it is a problem of the recording.
    """
    result = invoke("convert", messages, "out.parquet")
    invoke("convert", messages, "out.jsonl", "--strict", code=1)

    assert "wrote 4 spans to out.parquet" in result.stdout
    assert 5 == len(result.stderr.splitlines())
    assert "1 infer.request message is not a span and was left out\n" in result.stderr


def test_a_span_that_no_message_can_hold_is_named() -> None:
    """
    And the others are written.
    """
    huge = SpanRecord(trace_id="1" * 32, span_id="1" * 16, name="huge", attributes={"x": "x" * MAX_SIZE})
    small = SpanRecord(trace_id="1" * 32, span_id="2" * 16, name="small")
    Path("in.jsonl").write_bytes(b"".join(encode_records([huge, small])))
    result = invoke("convert", "in.jsonl", "out.mttp.jsonl")
    invoke("convert", "in.jsonl", "out.mttp.jsonl", "--overwrite", "--strict", code=1)

    assert "wrote 1 span to out.mttp.jsonl" in result.stdout
    assert "span 'huge': too large" in result.stderr
    assert ["small"] == [span.name for span in mttp.scan("out.mttp.jsonl")]

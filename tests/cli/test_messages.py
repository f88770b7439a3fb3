"""`mttp message check` and `mttp schema`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from vectors import LINES

import mttp
from mttp.cli.app import app
from mttp.mist.messages import PAYLOADS, Message, TraceSpan
from mttp.mist.messages.schemas import schema

GOOD = b"".join(line + b"\n" for line in LINES.values())
BAD = (
    LINES["eval_run"].replace(b'"1"', b'"2"', 1) + b"\n{\n" + LINES["eval_run"].replace(b"t1", b"t9") + b"\n"
)
UNKNOWN = Message(id="i", source="s", type="later", payload=b"{}").to_bytes() + b"\n"
MISTYPED = Message(id="i", source="s", type="eval.result", payload=b'{"score":"1"}').to_bytes() + b"\n"


def invoke(*arguments: str, code: int = 0) -> Any:
    """The command's result, which exits so."""
    result = CliRunner().invoke(app, list(arguments), prog_name="mttp")

    assert code == result.exit_code, result.output
    return result


def lines(content: bytes) -> str:
    """A file of messages."""
    Path("messages.jsonl").write_bytes(content)
    return "messages.jsonl"


def test_good_messages_are_counted():
    """
    By type, and how many prove what they carry.
    """
    plain = Message.new("s", TraceSpan(trace_id="t")).to_bytes() + b"\n"
    printed = invoke("message", "check", lines(GOOD + plain)).stdout.splitlines()

    assert "0 errors, 10 good messages" == printed[0]
    assert "  trace.span 3" in printed
    assert "9 messages with a valid checksum" == printed[-1]


def test_each_bad_line_is_one_error():
    """
    With its place and what is wrong; the lines after it are checked all the same.
    """
    result = invoke("message", "check", lines(BAD + UNKNOWN + MISTYPED + GOOD), code=1)
    found = [line.split(": ")[:2] for line in result.stdout.splitlines()[:5]]

    assert [
        ["messages.jsonl:1", "version"],
        ["messages.jsonl:2", "envelope"],
        ["messages.jsonl:3", "checksum"],
        ["messages.jsonl:4", "payload"],
        ["messages.jsonl:5", "payload"],
    ] == found
    assert "5 errors, 9 good messages" in result.stdout


def test_one_json_document():
    """
    And nothing else, with the byte where there is one.
    """
    document = json.loads(invoke("message", "check", lines(MISTYPED + GOOD + BAD), "--json", code=1).stdout)

    assert ("messages.jsonl", 9, 9, 2) == (
        document["source"],
        document["messages"],
        document["with_checksum"],
        document["types"]["trace.span"],
    )
    assert [(1, 9, "payload"), (11, None, "version"), (12, 1, "envelope"), (13, None, "checksum")] == [
        (error["line"], error["byte"], error["kind"]) for error in document["errors"]
    ]


def test_lines_that_the_others_could_not_read_are_pointed_out():
    """
    They are messages all the same.
    """
    long = Message.new("s", TraceSpan(operation="x" * (1 << 20))).to_bytes() + b"\n"

    assert "1 line too long for the reference readers" in invoke("message", "check", lines(long)).stdout


def test_standard_input():
    """
    As it comes in.
    """
    command = [sys.executable, "-m", "mttp", "message", "check", "-"]
    done = subprocess.run(command, input=GOOD + b"{\n", capture_output=True, check=False)

    assert 1 == done.returncode
    assert done.stdout.startswith(b"-:10: envelope: byte 1: ")


def test_a_file_that_is_not_there():
    """
    Is an input that can't be read.
    """
    result = invoke("message", "check", "nowhere.jsonl", code=2)

    assert "mttp: nowhere.jsonl: No such file or directory\n" == result.stderr


@pytest.mark.parametrize("name", [*PAYLOADS, None])
def test_schema(name: str | None):
    """
    Of each payload, and of a message.
    """
    assert schema(name) == json.loads(invoke("schema", *[name] * (name is not None)).stdout)


def test_a_schema_of_nothing():
    """
    The error lists the types.
    """
    result = invoke("schema", "trace.spam", code=2)

    assert "mttp: 'trace.spam' is not a message type; the types are data.entities, " in result.stderr


@pytest.mark.parametrize("name", ["a.mttp.jsonl", "a.mttp.jsonl.gz", "a.mttp.jsonl.zst"])
def test_converting_to_messages_makes_a_private_file(name: str) -> None:
    """
    As the transports do; one that is replaced keeps its permissions.
    """
    with mttp.configure("file://recording.jsonl"), mttp.episode():
        pass
    invoke("convert", "recording.jsonl", name)
    made = Path(name).stat().st_mode & 0o777
    Path(name).chmod(0o640)
    invoke("convert", "--overwrite", "recording.jsonl", name)

    assert (0o600, 0o640) == (made, Path(name).stat().st_mode & 0o777)

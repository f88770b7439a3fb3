"""Spans as messages in files and on standard output."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from otlp import DELIVERED, outcome, span
from programs import told
from projection import project
from specimen import EVERYTHING

import mttp
from mttp import transports
from mttp.codec.withholding import Withholding
from mttp.errors import SendError, TransportError
from mttp.mist.messages import LONGEST_LINE, MAX_SIZE, HealthPing, Message, TraceSpan, read_lines
from mttp.testing import assert_same

SPANS = [span(1), span(2), span(3, trace=2)]


class Output(io.TextIOWrapper):
    """Standard output that is looked at."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    @property
    def messages(self) -> list[Message]:
        """What was written."""
        return [line.get() for line in read_lines(io.BytesIO(self.buffer.getvalue()))]  # type: ignore[attr-defined]


def output_of(monkeypatch: pytest.MonkeyPatch) -> Output:
    """Standard output, for the rest of a test."""
    made = Output()
    monkeypatch.setattr(sys, "stdout", made)
    return made


def operations(path: str) -> list[str]:
    """What the messages of a file are about."""
    with mttp.mist.receive(f"mttp+file://{path}", strict=True) as receiver:
        return [message.decode().operation for message in receiver]


@pytest.mark.parametrize("name", ["a.mttp.jsonl", "a.jsonl.gz", "a.jsonl.zst", "runs/"])
def test_a_file_is_what_any_file_of_a_recording_is(name: str) -> None:
    """
    Compressed or not, one or a directory of them; appended to; and read back from the session, too.
    """
    for number in range(2):
        with mttp.configure(f"mttp+file://{name}") as session, mttp.episode(env=f"toy-{number}"):
            pass
    again = mttp.read(session)

    assert ["episode toy-0", "episode toy-1", "run", "run"] == sorted(operations(name))
    assert ["toy-0", "toy-1"] == [episode.env for episode in mttp.read(name)]
    assert "toy-1" in {episode.env for episode in again}
    assert {} == dict(session.stats.lost)
    assert session.transports[0].address.startswith(f"mttp+file://{Path.cwd()}/")


def test_a_file_goes_on_in_parts() -> None:
    """
    As other recordings do.
    """
    with mttp.configure("mttp+file://a.jsonl?max_bytes=2KB") as session:
        for _ in range(8):
            with mttp.episode():
                pass
            session.flush()

    assert Path("a.1.jsonl").exists()
    assert (8, []) == (len(mttp.read("a.jsonl")), mttp.read("a.jsonl").problems)
    assert 8 == operations("a.jsonl").count("episode")


def test_a_killed_process_leaves_what_was_written() -> None:
    """
    And the next writer starts on a line of its own.
    """
    with mttp.configure("mttp+file://a.jsonl"), mttp.episode():
        pass
    whole = Path("a.jsonl").read_bytes()
    Path("a.jsonl").write_bytes(whole + whole[:50])
    with mttp.configure("mttp+file://a.jsonl"), mttp.episode():
        pass
    recording = mttp.read("a.jsonl")

    assert (2, ["broken_message"]) == (len(recording), [problem.kind for problem in recording.problems])


def test_a_long_line_is_written_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """
    Once: it is read here, the stack's own readers stop there.
    """
    transport = transports.open("mttp+file://a.jsonl")
    with caplog.at_level(logging.WARNING, "mttp"):
        transport.export([span(1, text="x" * LONGEST_LINE), span(2, text="x" * LONGEST_LINE)])
    transport.shutdown()

    assert ["span 1", "span 2"] == operations("a.jsonl")
    (said,) = caplog.messages
    assert "the stack's own readers accept 1,048,575" in said


def test_a_span_that_no_message_can_hold_is_written_without_what_is_too_long() -> None:
    """
    A message has at most 10,485,760 bytes; what is missing is reported.
    """
    transport = transports.open("mttp+file://a.jsonl")
    assert DELIVERED == outcome(transport, [span(1, text="x" * MAX_SIZE), span(2)])
    transport.shutdown()

    first, second = mttp.scan("a.jsonl", arrays=True)
    assert ("span 1", "span 2") == (first.name, second.name)
    assert ["text: the span is larger than a message may be"] == first.attributes["mttp.omissions"]


def test_a_file_that_can_not_be_written_is_an_error_at_once() -> None:
    """
    As for any other.
    """
    Path("taken").write_text("")
    with pytest.raises(TransportError, match=r"mttp\+file://taken/a\.jsonl': can't write"):
        transports.open("mttp+file://taken/a.jsonl")


def test_after_the_end_nothing_is_written() -> None:
    """
    Closing twice is allowed; exported spans are kept by the pipeline, and sending is an error.
    """
    transport, sender = transports.open("mttp+file://a.jsonl"), mttp.mist.dial("mttp+file://b.jsonl")
    for each in (transport, sender):
        getattr(each, "shutdown", getattr(each, "close", None))()
        getattr(each, "shutdown", getattr(each, "close", None))()

    assert 3 == outcome(transport, SPANS).kept
    with pytest.raises(SendError, match=r"b\.jsonl is closed"):
        sender.send(Message.new("me", HealthPing()))
    assert (b"", b"") == (Path("a.jsonl").read_bytes(), Path("b.jsonl").read_bytes())


def test_standard_output_has_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And stays open for others.
    """
    output = output_of(monkeypatch)
    with mttp.configure("mttp+stdio://") as session, mttp.episode():
        pass

    assert ["episode", "run"] == [message.decode().operation for message in output.messages]
    assert not output.closed
    assert None is session.transports[0].address


def test_standard_output_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Takes no more.
    """
    output = output_of(monkeypatch)
    transport = transports.open("mttp+stdio://")
    transport.shutdown()
    transport.shutdown()

    assert 3 == outcome(transport, SPANS).kept
    assert b"" == output.buffer.getvalue()  # type: ignore[attr-defined]


def test_standard_output_that_takes_no_bytes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As where it was replaced by something that holds text.
    """
    monkeypatch.setattr(sys, "stdout", io.StringIO())

    with pytest.raises(TransportError, match="stream without a binary buffer"):
        transports.open("mttp+stdio://")
    with pytest.raises(TransportError, match="has no path, but 'a' was given"):
        transports.open("mttp+stdio://a")


def test_from_one_program_to_another() -> None:
    """
    Over a pipe, each at its own end of it.
    """
    found = told(
        """
        import subprocess, sys
        write = "import mttp\\nwith mttp.configure('mttp+stdio://'), mttp.episode(env='piped'): pass"
        read = "import mttp, json\\nwith mttp.mist.receive('mttp+stdio://') as all:"
        read += "print(json.dumps([message.decode().operation for message in all]))"
        with subprocess.Popen([sys.executable, "-c", write], stdout=subprocess.PIPE) as writing:
            subprocess.run([sys.executable, "-c", read], stdin=writing.stdout, check=True)
        """
    )

    assert ["episode piped", "run"] == found


@pytest.mark.parametrize("kind", ["file", "chan", "http"])
def test_the_same_code_records_the_same_on_all_of_them(kind: str) -> None:
    """
    An episode that uses everything, as memory has it, but for what stays at home over HTTP.
    """
    with mttp.mist.receive("mttp+http://127.0.0.1:0") as inbox:
        address = {"file": "mttp+file://a.jsonl", "chan": "chan://all", "http": inbox.address}[kind]
        with mttp.configure(["memory://", mttp.Route(address, content=True)]) as session:
            session.record(EVERYTHING)
        inbox.close()
        source: Any = {
            "file": lambda: "a.jsonl",
            "chan": lambda: mttp.mist.receive("chan://all"),
            "http": lambda: inbox,
        }[kind]()
        found = mttp.read(source)
    (expected,) = mttp.read(session)
    limits = Withholding(content=True, max_elements=4096, max_episode_bytes=2**20)

    assert_same(project(expected, limits if kind == "http" else Withholding()), found.episodes[0])
    assert [] == found.problems
    assert {} == dict(session.stats.lost)


def test_processes_that_are_started_from_here_write_to_the_same_file() -> None:
    """
    Under the same source, in the directory that it was, whatever directory they work in.
    """
    found = told(
        """
        import json, os, subprocess, sys, mttp
        code = "import mttp\\nwith mttp.episode(env='child'): pass"
        with mttp.configure("mttp+file://runs/?source=a%2Cb&suffix=.jsonl.gz"):
            subprocess.run([sys.executable, "-c", code], check=True, cwd="/", stderr=-3)
            with mttp.episode(env="parent"):
                pass
        with mttp.mist.receive("mttp+file://runs/") as receiver:
            sources = sorted({message.source for message in receiver})
        print(json.dumps([sources, sorted(episode.env for episode in mttp.read("runs/"))]))
        """
    )

    assert [["a,b"], ["child", "parent"]] == found


def test_several_addresses_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A plus in a scheme is no reason not to tell them apart.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", "memory://, mttp+file://a.jsonl,mttp+file://b.jsonl.gz")
    with mttp.configure(), mttp.episode():
        pass

    assert [1, 1] == [len(mttp.read(path)) for path in ("a.jsonl", "b.jsonl.gz")]
    assert b"trace.span" in gzip.decompress(Path("b.jsonl.gz").read_bytes())
    assert {TraceSpan.TYPE} == {json.loads(line)["type"] for line in Path("a.jsonl").read_text().splitlines()}


@pytest.mark.parametrize(
    ("address", "pattern"),
    [
        ("mttp+file://a.mttp.jsonl", "a.mttp.jsonl"),
        ("mttp+file://a.mttp.jsonl.gz", "a.mttp.jsonl.gz"),
        ("mttp+file://runs/", "runs/*"),
        ("mttp+file://a.jsonl?max_bytes=1000", "a*.jsonl"),
    ],
)
def test_files_of_messages_are_their_owner_s_alone(address: str, pattern: str) -> None:
    """
    Those that are made, with all their parts; recordings have the usual permissions.
    """
    with mttp.configure(address):
        for _ in range(3):
            with mttp.episode():
                pass
    with mttp.configure("file://recording.jsonl"), mttp.episode():
        pass

    assert {0o600} == {path.stat().st_mode & 0o777 for path in Path().glob(pattern)}
    assert 0o044 & ~_umask() == Path("recording.jsonl").stat().st_mode & 0o077


def test_a_file_of_messages_that_is_there_keeps_its_permissions() -> None:
    """
    The caller has decided.
    """
    path = Path("a.mttp.jsonl")
    path.touch()
    path.chmod(0o640)
    with mttp.configure("mttp+file://a.mttp.jsonl"), mttp.episode():
        pass

    assert 0o640 == path.stat().st_mode & 0o777


def test_messages_that_are_sent_to_a_file_are_private() -> None:
    """
    Single ones, too.
    """
    with mttp.mist.dial("mttp+file://sent.jsonl") as sender:
        sender.send(Message.new("me", HealthPing()))

    assert 0o600 == Path("sent.jsonl").stat().st_mode & 0o777


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

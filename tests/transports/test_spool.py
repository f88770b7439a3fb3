"""A spool: what a receiver does not accept waits on disk, and is sent later by whichever process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from polling import SECONDS, eventually
from specimen import EVERYTHING

import mttp
from mttp.cli import main
from mttp.errors import TransportError
from mttp.model.values import differences
from mttp.otlp.encoding import encoder
from mttp.recording import configuration
from mttp.testing import Behaviour, OtlpReceiver
from mttp.transports.otlp import OtlpTransport
from mttp.transports.pipeline import export_retry, pipeline
from mttp.transports.spool import folder as spool_folder
from mttp.transports.spool import folders
from mttp.transports.spool import spool as spools

DOWN = Behaviour(status=503)
UP = Behaviour()


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """One that is down at first."""
    with OtlpReceiver() as opened:
        opened.behave(DOWN, forever=True)
        yield opened


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that processes have left are looked for each time."""
    monkeypatch.setattr(spools, "LOOK_SECONDS", 0.0)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def up(receiver: OtlpReceiver) -> None:
    receiver.behave(UP, forever=True)


def address(receiver: OtlpReceiver, spool: Path, **options: object) -> str:
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"{receiver.http_address}?spool={spool}{more}"


def record(episodes: int, *, first: int = 0, text: str = "seen") -> None:
    for number in range(first, first + episodes):
        with mttp.episode(env="toy", task=f"task/{number}") as episode, episode.step() as step:
            step.observation(text)
            step.tokens([1, 2, 3], logprobs=[-0.1, -0.2, float("nan")])
            step.reward(number)


def waiting(spool: Path) -> list[tuple[str, str]]:
    """Trace id and span id of each span in the files, read without mttp."""
    found = []
    for path in sorted(spool.rglob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    found += [(span["traceId"], span["spanId"]) for span in scope["spans"]]
    return found


def got(receiver: OtlpReceiver) -> list[tuple[str, str]]:
    return [(span.trace_id, span.span_id) for span in receiver.records()]


def holds(stats: Any) -> bool:
    counters = stats.as_dict()
    return bool(
        counters["recorded"] == counters["delivered"] + counters["pending"] + sum(counters["lost"].values())
    )


@contextmanager
def running(code: str, where: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has `record`, and the address as `address`."""
    head = """
        import json, os, sys, time
        import mttp
        from mttp.transports.spool import spool as spools
        spools.LOOK_SECONDS = 0.0
        address = sys.argv[1]

        def record(episodes):
            for number in range(episodes):
                with mttp.episode(env="toy", task=f"task/{number}") as episode, episode.step() as step:
                    step.reward(number)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code), where],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        try:
            yield program
            program.wait(SECONDS)
        finally:
            program.kill()


def run(code: str, where: str) -> str:
    """What such a program prints."""
    with running(code, where) as program:
        assert program.stdout is not None
        printed = program.stdout.read()
    assert 0 == program.returncode
    return printed


# One process.


def test_what_a_receiver_does_not_accept_waits_on_disk_and_arrives_in_order(
    receiver: OtlpReceiver, spool: Path
) -> None:
    with mttp.configure(address(receiver, spool)) as session:
        record(20)
        assert not session.flush(5)
        assert eventually(lambda: session.stats.spooled == session.stats.recorded)
        assert session.stats.recorded == session.stats.pending == len(waiting(spool))
        written = waiting(spool)
        record(20, first=20)
        up(receiver)
        assert session.flush(SECONDS)
        assert 0 == session.stats.spooled == session.stats.pending
        record(2, first=40)

    arrived = got(receiver)
    assert arrived[: len(written)] == written
    assert len(arrived) == len(set(arrived)) == session.stats.delivered == session.stats.recorded
    assert [f"task/{number}" for number in range(42)] == [one.task for one in mttp.read(receiver)]
    assert [] == list(spool.iterdir())


def test_a_healthy_receiver_leaves_no_file(receiver: OtlpReceiver, spool: Path) -> None:
    up(receiver)
    with mttp.configure(address(receiver, spool)) as session:
        record(3)
        assert session.flush()
        assert [] == list(spool.iterdir())
    assert 3 == len(mttp.read(receiver))


@pytest.mark.parametrize("profile", ["collector", "phoenix", "strict"])
@pytest.mark.parametrize("content", [False, True])
def test_what_went_by_the_disk_equals_what_was_sent_at_once(
    profile: str, content: bool, receiver: OtlpReceiver, spool: Path
) -> None:
    with OtlpReceiver() as direct:
        routes = [
            mttp.Route(address(receiver, spool), profile=profile, content=content),
            mttp.Route(direct.http_address, profile=profile, content=content),
        ]
        with mttp.configure(routes) as session:
            session.record(EVERYTHING)
            record(3)
            assert eventually(lambda: session.stats.spooled > 0)
            up(receiver)
        assert {} == dict(session.stats.lost)
        by_id = {(span.trace_id, span.span_id): span for span in direct.records()}
        for span in receiver.records():
            assert [] == differences(by_id.pop((span.trace_id, span.span_id)), span)
        assert {} == by_id


def test_without_content_none_is_in_the_spool_and_no_header(receiver: OtlpReceiver, spool: Path) -> None:
    headers = {"authorization": "Bearer topsecret-value"}
    with mttp.configure(mttp.Route(address(receiver, spool), headers=headers)):
        record(3, text="a text that stays here")
    files = b"".join(path.read_bytes() for path in spool.rglob("*") if path.is_file())
    assert b"task/2" in files
    assert b"stays here" not in files
    assert b"topsecret" not in files


def test_the_spool_is_readable_by_its_owner_only(receiver: OtlpReceiver, spool: Path) -> None:
    with mttp.configure(address(receiver, spool)):
        record(1)
    assert {0} == {path.stat().st_mode & 0o077 for path in (spool, *spool.rglob("*"))}


def test_spans_that_wait_can_be_read(receiver: OtlpReceiver, spool: Path) -> None:
    with mttp.configure(address(receiver, spool)):
        record(3)
    read = mttp.read(spool)
    assert ["task/0", "task/1", "task/2"] == [episode.task for episode in read]
    assert [0, 1, 2] == [sum(step.reward or 0 for step in episode.steps) for episode in read]


def test_a_closed_session_says_how_many_spans_wait(
    receiver: OtlpReceiver, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = mttp.configure(address(receiver, spool))
    record(3)
    assert not session.close()
    assert session.stats.recorded == session.stats.spooled == session.stats.pending == len(waiting(spool))
    assert {} == session.stats.lost
    (line,) = [text for text in caplog.messages if "spans recorded" in text]
    assert f"{session.stats.spooled} wait in the spool, which `mttp push` sends" in line
    assert " lost" not in line


def test_beyond_the_limit_spans_wait_in_memory_and_are_counted_when_they_are_lost(
    receiver: OtlpReceiver, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = mttp.configure(address(receiver, spool, spool_bytes=20_000))
    for first in range(0, 60, 2):
        record(2, first=first)
        session.flush(1)
        assert holds(session.stats)
    size = sum(path.stat().st_size for path in spool.rglob("*.jsonl"))
    assert 0 < size <= 20_000
    assert session.stats.pending > session.stats.spooled == len(waiting(spool))
    session.close()
    assert holds(session.stats)
    assert {"spool_full"} == set(session.stats.lost)
    assert session.stats.pending == session.stats.spooled == len(waiting(spool))
    assert any("spool_bytes=20000" in text for text in caplog.messages)


def test_with_space_in_memory_nothing_is_lost_at_the_limit(receiver: OtlpReceiver, spool: Path) -> None:
    with mttp.configure(address(receiver, spool, spool_bytes=20_000)) as session:
        for first in range(0, 60, 10):
            record(10, first=first)
            session.flush(0.5)
        up(receiver)
        assert session.flush(SECONDS)
    assert session.stats.recorded == session.stats.delivered == len(set(got(receiver)))


@pytest.mark.parametrize("refused", [b"resourceSpans", b'"to"'])
def test_a_disk_that_is_full_loses_nothing_while_memory_lasts(
    refused: bytes, receiver: OtlpReceiver, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Neither the lines of the spans nor the file that names the receiver can be written.
    """
    real = os.write

    def full(fd: int, data: Any) -> int:
        if refused in bytes(data[:40]):
            real(fd, data[:30])  # the disk takes a part of it
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(spool_folder.os, "write", full)
    with mttp.configure(address(receiver, spool)) as session:
        record(10)
        session.flush(1)
        assert 0 == session.stats.spooled
        assert 0 == sum(path.stat().st_size for path in spool.rglob("*.jsonl"))
        assert len(list(spool.iterdir())) == (refused == b"resourceSpans")
        monkeypatch.setattr(spool_folder.os, "write", real)
        record(10, first=10)
        assert eventually(lambda: session.stats.spooled == session.stats.recorded)
        up(receiver)
    assert {} == session.stats.lost
    assert session.stats.recorded == session.stats.delivered == len(set(got(receiver)))
    assert 20 == len(mttp.read(receiver))


def test_without_memory_for_the_lines_spans_wait(
    receiver: OtlpReceiver, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> bytes:
        raise MemoryError

    with mttp.configure(address(receiver, spool)) as session:
        with monkeypatch.context() as patch:
            patch.setattr(encoder, "lines", fails)
            record(5)
            session.flush(1)
            assert 0 == session.stats.spooled
        record(5, first=5)
        assert eventually(lambda: session.stats.spooled == session.stats.recorded)
        up(receiver)
    assert {} == session.stats.lost
    assert 10 == len(mttp.read(receiver))


def test_a_span_that_can_not_be_encoded_is_lost_alone(
    receiver: OtlpReceiver, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = encoder.lines

    def lines(spans: Any) -> bytes:
        if any(b"task/2" in span and span.is_last for span in spans):
            raise ValueError("no span")
        return bytes(real(spans))

    monkeypatch.setattr(encoder, "lines", lines)
    session = mttp.configure(address(receiver, spool))
    record(5)
    session.flush(1)
    assert {"invalid": 1} == dict(session.stats.lost)
    up(receiver)
    session.close()
    assert holds(session.stats)
    assert session.stats.delivered == session.stats.recorded - 1 == len(set(got(receiver)))


def test_a_deleted_spool_is_counted_and_made_again(receiver: OtlpReceiver, spool: Path) -> None:
    import shutil

    session = mttp.configure(address(receiver, spool))
    record(5)
    assert eventually(lambda: session.stats.spooled == session.stats.recorded)
    gone = session.stats.spooled
    shutil.rmtree(spool)
    record(5, first=5)
    assert eventually(lambda: session.stats.lost["spool_damaged"] == gone)
    assert holds(session.stats)
    up(receiver)
    session.close()
    assert {"spool_damaged": gone} == dict(session.stats.lost)
    assert 0 == session.stats.pending
    assert len(set(got(receiver))) == session.stats.delivered


def test_a_damaged_line_costs_its_spans_only(receiver: OtlpReceiver, spool: Path) -> None:
    receiver.behave(Behaviour(status=503, retry_after=3600), forever=True)  # nothing is read before the close
    session = mttp.configure(address(receiver, spool))
    for first in (0, 5):
        record(5, first=first)
        assert eventually(lambda: session.stats.spooled == session.stats.recorded)
    (path,) = spool.rglob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = len(json.loads(lines[-1])["resourceSpans"][0]["scopeSpans"][0]["spans"])
    path.write_bytes(b"".join(lines[:-1]) + b"#" * (len(lines[-1]) - 1) + b"\n")
    up(receiver)
    session.close()
    assert {"spool_damaged": damaged} == dict(session.stats.lost)
    assert 0 == session.stats.pending
    assert session.stats.delivered == len(set(got(receiver)))


@pytest.mark.parametrize(
    ("behaviour", "cause"), [(Behaviour(status=400), "http_400"), (Behaviour(rejected=2), "partial_success")]
)
def test_spans_of_the_spool_that_are_rejected_are_counted_and_logged_with_a_reason(
    behaviour: Behaviour,
    cause: str,
    receiver: OtlpReceiver,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(export_retry, "LOG_SECONDS", 0.0)
    session = mttp.configure(address(receiver, spool))
    record(5)
    assert eventually(lambda: session.stats.spooled == session.stats.recorded)
    receiver.behave(behaviour, UP, forever=True)
    session.close()
    assert {cause} == set(session.stats.lost)
    reasons = [text for text in caplog.messages if "were rejected by" in text]
    assert "400 Bad Request" in reasons[0] or reasons[0].endswith("it rejected spans without a reason")
    assert 0 == session.stats.pending == session.stats.spooled
    assert holds(session.stats)
    assert session.stats.delivered == len(set(got(receiver)))


def test_the_receivers_delay_is_kept(receiver: OtlpReceiver, spool: Path) -> None:
    receiver.behave(Behaviour(status=429, retry_after=3600), forever=True)
    with mttp.configure(address(receiver, spool), close_timeout=1) as session:
        record(5)
        assert not session.flush(2)
        asked = len(receiver.requests)
        record(5, first=5)
        assert eventually(lambda: session.stats.spooled == session.stats.recorded)
        assert asked == len(receiver.requests)


def test_what_waits_behind_a_receiver_that_hangs_is_on_disk_at_the_end(
    receiver: OtlpReceiver, spool: Path
) -> None:
    receiver.behave(Behaviour(hang=True), forever=True)
    session = mttp.configure(address(receiver, spool, timeout=20), close_timeout=1)
    record(5)
    assert receiver.wait(1)
    record(5, first=5)
    assert not session.close()
    assert {} == session.stats.lost
    assert session.stats.recorded == session.stats.spooled == len(set(waiting(spool)))
    receiver.release()


def test_a_large_backlog_does_not_hold_up_new_spans(
    receiver: OtlpReceiver, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_folder, "FILE_BYTES", 50_000)
    with mttp.configure(address(receiver, spool)) as session:
        for first in range(0, 400, 20):
            record(20, first=first)
            session.flush(0.2)
        assert eventually(lambda: session.stats.spooled == session.stats.recorded)
        assert len(list(spool.rglob("*.jsonl"))) > 3
        up(receiver)
        assert session.flush(SECONDS)
    assert [f"task/{number}" for number in range(400)] == [one.task for one in mttp.read(receiver)]


# Several processes.


def test_another_process_sends_what_an_ended_one_left(receiver: OtlpReceiver, spool: Path) -> None:
    where = address(receiver, spool)
    run("with mttp.configure(address): record(5)", where)
    left = waiting(spool)
    up(receiver)
    with mttp.configure(where) as session:
        record(1)
    assert len(left) == session.stats.forwarded["delivered"]
    assert session.stats.recorded == session.stats.delivered
    arrived = got(receiver)
    assert set(left) < set(arrived)
    assert len(arrived) == len(set(arrived)) == len(left) + session.stats.delivered
    assert [] == list(spool.iterdir())


def test_spans_of_ended_processes_are_sent_while_new_ones_keep_coming(
    receiver: OtlpReceiver, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A process that always has spans of its own sends those of ended processes too.
    """
    where = address(receiver, spool)
    run("with mttp.configure(address): record(5)", where)
    left = len(waiting(spool))
    export = OtlpTransport.export

    def while_recording(self: OtlpTransport, spans: Any) -> Any:
        recording = Thread(target=record, args=(1,))
        recording.start()
        recording.join()
        return export(self, spans)

    monkeypatch.setattr(OtlpTransport, "export", while_recording)
    monkeypatch.setattr(pipeline, "DISK_SECONDS", 0.0)
    up(receiver)
    with mttp.configure(where) as session:
        record(1)
        assert eventually(lambda: session.stats.forwarded["delivered"] == left)
        monkeypatch.undo()


def test_a_backlog_is_sent_without_pauses(
    receiver: OtlpReceiver, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    While the receiver accepts spans of the disk, the next ones are sent at once.
    """
    monkeypatch.setattr(OtlpTransport, "segment_bytes", 2_000)
    monkeypatch.setattr(pipeline, "DISK_SECONDS", 0.0)
    with mttp.configure(address(receiver, spool)) as session:
        record(100)
        assert eventually(lambda: session.stats.spooled > 200)
        monkeypatch.setattr(pipeline, "INTERVAL", 2 * SECONDS)
        up(receiver)
        record(1)
        assert eventually(lambda: session.stats.delivered == session.stats.recorded)


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "time.sleep(60)"])
def test_what_a_killed_process_had_written_is_sent(end: str, receiver: OtlpReceiver, spool: Path) -> None:
    code = f"""
        session = mttp.configure(address)
        record(5)
        while session.stats.spooled < session.stats.recorded:
            time.sleep(0.01)
        print(session.stats.spooled, flush=True)
        {end}
    """
    with running(code, address(receiver, spool)) as program:
        assert program.stdout is not None
        spooled = int(program.stdout.readline())
        if "sleep" in end:
            with mttp.configure(address(receiver, spool)) as session:
                record(1)
            assert {} == session.stats.forwarded  # its owner lives
            program.send_signal(signal.SIGKILL)
    left = waiting(spool)
    assert spooled <= len(left)
    up(receiver)
    with mttp.configure(address(receiver, spool)) as session:
        record(1)
    assert len(left) == session.stats.forwarded["delivered"]
    assert set(left) < set(got(receiver))
    assert [] == list(spool.iterdir())


def test_a_torn_line_of_a_killed_process_costs_that_line_only(receiver: OtlpReceiver, spool: Path) -> None:
    run("with mttp.configure(address): record(5)", address(receiver, spool))
    (path,) = spool.rglob("*.jsonl")
    left = waiting(spool)
    with path.open("ab") as file:
        file.write(b'{"resourceSpans":[{"resource"')
    up(receiver)
    with mttp.configure(address(receiver, spool)) as session:
        record(1)
    assert len(left) == session.stats.forwarded["delivered"]
    assert [] == list(spool.iterdir())


def test_spans_for_another_receiver_are_left_alone(receiver: OtlpReceiver, spool: Path) -> None:
    run("with mttp.configure(address): record(5)", address(receiver, spool))
    left = waiting(spool)
    with OtlpReceiver() as other:
        with mttp.configure(address(other, spool)) as session:
            record(1)
        assert {} == session.stats.forwarded
        assert not set(left) & set(got(other))
    assert left == waiting(spool)


def test_rejected_spans_of_an_ended_process_are_not_those_of_this_session(
    receiver: OtlpReceiver, spool: Path
) -> None:
    run("with mttp.configure(address): record(5)", address(receiver, spool))
    left = waiting(spool)
    up(receiver)
    session = mttp.configure(address(receiver, spool))
    receiver.behave(Behaviour(status=400), UP, forever=True)
    with session:
        pass
    counted = session.stats.forwarded + session.stats.lost
    assert len(left) + session.stats.recorded == counted.total() + session.stats.delivered
    assert holds(session.stats)
    assert [] == list(spool.iterdir())


def test_a_forked_child_has_its_own_folder(receiver: OtlpReceiver, spool: Path) -> None:
    code = """
        session = mttp.configure(address)
        record(5)
        session.flush(2)
        child = os.fork()
        if not child:
            record(5)
            session.close()
            os._exit(0)
        os.waitpid(child, 0)
        record(5)
        session.close()
        print(json.dumps(session.stats.as_dict()))
    """
    parent = json.loads(run(code, address(receiver, spool)).splitlines()[-1])
    left = waiting(spool)
    assert 2 == len(folders(spool))
    assert len(left) == len(set(left))
    assert parent["spooled"] == parent["recorded"]
    up(receiver)
    with mttp.configure(address(receiver, spool)) as session:
        pass
    assert len(left) == session.stats.forwarded["delivered"]
    assert 15 == len(mttp.read(receiver))


def test_processes_at_the_same_time_send_each_span_once(receiver: OtlpReceiver, spool: Path) -> None:
    code = "with mttp.configure(address): record(20)"
    for is_up in (False, True):
        if is_up:
            up(receiver)
        left = waiting(spool)
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(running(code, address(receiver, spool)))
    arrived = got(receiver)
    assert set(left) <= set(arrived)
    assert len(arrived) == len(set(arrived))
    assert 120 == len(mttp.read(receiver))
    assert [] == list(spool.iterdir())


def test_damaged_spans_of_an_ended_process_are_counted(receiver: OtlpReceiver, spool: Path) -> None:
    """
    Those of a damaged line, and of a line that its process did not finish.
    """
    run("with mttp.configure(address): record(5)", address(receiver, spool))
    left = waiting(spool)
    (path,) = spool.rglob("*.jsonl")
    line = path.read_bytes()
    path.write_bytes(b"{" + line + line + line[:-9])
    up(receiver)
    with mttp.configure(address(receiver, spool)) as session:
        pass
    assert {"delivered": len(left), "spool_damaged": 2 * len(left)} == dict(session.stats.forwarded)
    assert set(left) < set(got(receiver))
    assert [] == list(spool.iterdir())


@pytest.mark.parametrize("whose", ["its own", "of an ended process"])
def test_a_file_that_can_not_be_read_now_is_sent_later(
    whose: str, receiver: OtlpReceiver, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    For example, because too many files are open.
    """

    def refused(*_: object) -> None:
        raise OSError(24, "Too many open files")

    if whose != "its own":
        run("with mttp.configure(address): record(5)", address(receiver, spool))
        up(receiver)
    with mttp.configure(address(receiver, spool)) as session:
        with monkeypatch.context() as patch:
            patch.setattr(spool_folder.SpoolFolder, "_read", refused)
            record(5, first=5)
            assert eventually(
                lambda: session.stats.recorded == session.stats.spooled + session.stats.delivered
            )
            up(receiver)
            session.flush(1)
            left = waiting(spool)
            assert left
        record(1, first=10)
    assert {} == session.stats.lost
    assert session.stats.recorded == session.stats.delivered
    assert set(left) < set(got(receiver))
    assert [] == list(spool.iterdir())


def test_what_others_put_into_a_folder_stays_and_nothing_is_sent_twice(
    receiver: OtlpReceiver, spool: Path
) -> None:
    run("with mttp.configure(address): record(5)", address(receiver, spool))
    left = waiting(spool)
    (folder,) = spool.iterdir()
    for name in ("a", "z", "000002.jsonl"):
        (folder / name).mkdir()
    os.mkfifo(folder / "000000.jsonl")  # opening it would wait for a writer
    (folder / "notes.txt").write_text("mine")
    up(receiver)
    for _ in range(2):
        with mttp.configure(address(receiver, spool)):
            pass
    arrived = got(receiver)
    assert len(arrived) == len(set(arrived)) == len(left) + 2  # and the spans of two runs
    assert {"a", "z", "000000.jsonl", "000002.jsonl", "notes.txt"} == {one.name for one in folder.iterdir()}


# Set-up.


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("spool=", "expected the path of a directory"),
        ("spool=/dev/null/x", "Not a directory"),
        ("spool=/tmp&spool_bytes=0", "spool_bytes"),
        ("spool=/tmp&spool_bytes=many", "spool_bytes"),
        ("spol=/tmp", "did you mean 'spool'"),
    ],
)
def test_a_wrong_option_is_an_error_at_once(query: str, said: str) -> None:
    with pytest.raises(TransportError, match=said):
        mttp.configure(f"http://localhost:4318?{query}")


def test_child_processes_inherit_the_spool(receiver: OtlpReceiver, tmp_path: Path) -> None:
    os.chdir(tmp_path)
    with mttp.configure(f"{receiver.http_address}?spool=relative&spool_bytes=5MB") as session:
        (transport,) = session.transports
        inherited = transport.address
    up(receiver)
    assert f"spool={tmp_path}/relative".replace("/", "%2F") in inherited
    configuration.forget()
    with mttp.configure(inherited) as session:
        record(1)
    assert 1 == len(mttp.read(receiver))


# mttp push.


def pushed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    with pytest.raises(SystemExit) as ended:
        main(["push", *map(str, arguments), "--json"])
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("named", [True, False])
def test_push_sends_a_spool_by_hand(
    named: bool, receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mttp.configure(mttp.Route(address(receiver, spool), content=True)):
        record(5)
    configuration.forget()
    left = waiting(spool)
    up(receiver)
    code, document = pushed(capsys, spool, *(["--to", receiver.http_address] if named else []))
    assert (0, len(left), 6) == (code, document["spans"], document["traces"])
    assert left == got(receiver)
    assert "seen" == mttp.read(receiver).episodes[0].steps[0].observation
    assert [] == list(spool.iterdir())


def test_a_dry_run_sends_and_deletes_nothing(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mttp.configure(address(receiver, spool)):
        record(5)
    configuration.forget()
    left = waiting(spool)
    code, document = pushed(capsys, spool, "--dry-run")
    assert (0, len(left)) == (code, document["spans"])
    assert document["bytes"] > 1000
    assert left == waiting(spool)
    assert [] == got(receiver)


def test_a_push_that_fails_leaves_the_spool(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mttp.configure(address(receiver, spool)):
        record(5)
    configuration.forget()
    left = waiting(spool)
    with pytest.raises(SystemExit) as ended:
        main(["push", str(spool), "--max-retry-seconds", "0"])
    assert 2 == ended.value.code
    assert "503" in capsys.readouterr().err
    assert left == waiting(spool)


def test_spans_of_a_running_process_are_left_to_it(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mttp.configure(address(receiver, spool)) as session:
        record(5)
        assert eventually(lambda: session.stats.spooled == session.stats.recorded)
        code, document = pushed(capsys, spool)
        assert (0, 0) == (code, document["spans"])
        assert ["not sent: 1 folder in use by running processes, which send the spans"] == document["notes"]
        up(receiver)
    assert session.stats.delivered == session.stats.recorded


def test_spans_for_several_receivers_need_a_name(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with OtlpReceiver() as other:
        other.behave(DOWN, forever=True)
        for each in (receiver, other):
            with mttp.configure(address(each, spool)):
                record(2)
            configuration.forget()
        with pytest.raises(SystemExit) as ended:
            main(["push", str(spool)])
        assert 2 == ended.value.code
        said = " ".join(capsys.readouterr().err.split())
        assert "--to" in said
        up(other)
        code, document = pushed(capsys, spool, "--to", other.http_address)
        assert 0 == code
        assert ["not sent: 1 folder for another receiver"] == document["notes"]
        assert Counter(got(other)).total() == document["spans"]
        assert [] == got(receiver)


def test_options_of_the_address_do_not_hide_which_receiver_is_meant(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with OtlpReceiver() as other:
        other.behave(DOWN, forever=True)
        for each in (receiver, other):
            with mttp.configure(address(each, spool, profile="tempo")):
                record(2)
            configuration.forget()
        up(receiver)
        code, document = pushed(capsys, spool, "--to", f"{receiver.http_address}/?timeout=5", "--dry-run")
        assert (0, "tempo") == (code, document["profile"])
        code, document = pushed(capsys, spool, "--to", f"{receiver.http_address}?profile=strict")
        assert (0, "strict") == (code, document["profile"])
        assert Counter(got(receiver)).total() == document["spans"] > 0
        assert [] == got(other)


def test_a_push_of_damaged_lines_counts_their_spans(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mttp.configure(address(receiver, spool)):
        record(5)
    configuration.forget()
    left = waiting(spool)
    (path,) = spool.rglob("*.jsonl")
    path.write_bytes(path.read_bytes() + b"#" + path.read_bytes())
    up(receiver)
    code, document = pushed(capsys, spool)
    assert (1, {"spool_damaged": len(left)}) == (code, document["lost"])
    assert left == got(receiver)


def test_a_push_stops_at_a_file_that_can_not_be_read(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with mttp.configure(address(receiver, spool)):
        record(5)
    configuration.forget()
    left = waiting(spool)
    up(receiver)

    def refused(*_: object) -> None:
        raise OSError(5, "Input/output error", "000001.jsonl")

    monkeypatch.setattr(spool_folder.SpoolFolder, "_read", refused)
    with pytest.raises(SystemExit) as ended:
        main(["push", str(spool)])
    assert 2 == ended.value.code
    assert "Input/output error" in capsys.readouterr().err
    assert left == waiting(spool)


def test_a_spool_in_which_nothing_waits_is_pushed(spool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spool.mkdir()
    code, document = pushed(capsys, spool)
    assert (0, 0) == (code, document["spans"])
    with pytest.raises(SystemExit) as ended:
        main(["push", str(spool / "missing")])
    assert 2 == ended.value.code
    assert "does not exist" in capsys.readouterr().err


def test_a_spool_is_pushed_alone(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mttp.configure(address(receiver, spool)):
        record(1)
    configuration.forget()
    left = waiting(spool)
    up(receiver)
    with pytest.raises(SystemExit) as ended:
        main(["push", str(spool), str(spool), "--to", receiver.http_address])
    assert 2 == ended.value.code
    assert "one spool" in " ".join(capsys.readouterr().err.split())
    assert left == waiting(spool)
    assert [] == got(receiver)


def test_an_empty_folder_is_pushed_and_deleted(
    receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    As a process leaves it that is killed before its first span.
    """
    folder = spool / "1-host-1-a"
    folder.mkdir(parents=True)
    (folder / "owner").write_text(
        json.dumps({"to": f"{receiver.http_address}/v1/traces", "profile": "collector"})
    )
    code, document = pushed(capsys, spool)
    assert (0, 0) == (code, document["spans"])
    assert [] == list(spool.iterdir())


@pytest.mark.parametrize("option", ["--content", "--token-ids", "--now", "--restart"])
def test_a_spool_has_no_options_of_recordings(
    option: str, receiver: OtlpReceiver, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mttp.configure(address(receiver, spool)):
        record(1)
    with pytest.raises(SystemExit) as ended:
        main(["push", str(spool), option])
    assert 2 == ended.value.code
    assert option in capsys.readouterr().err


def test_a_recording_needs_a_receiver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mttp.configure(f"file://{tmp_path}/a.jsonl"):
        record(1)
    with pytest.raises(SystemExit) as ended:
        main(["push", str(tmp_path / "a.jsonl")])
    assert 2 == ended.value.code
    assert "--to" in capsys.readouterr().err

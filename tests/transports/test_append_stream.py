"""A target that is no regular file gets each span once, as fast as its reader reads."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from exporters import numbered as span

import mttp
from mttp.otlp.json_decode import decode_line
from mttp.transports.file import FileTransport
from mttp.transports.partial_export import PartialExport

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such targets here")

PROGRAM = """
import sys, time, mttp
print("before", flush=True)
session = mttp.configure("file://{target}")
with mttp.episode(env="e") as episode, episode.step() as step:
    step.reward(1.0)
session.flush()
print("after", flush=True)
{then}
closed = session.close(3)
print(closed, session.stats.delivered, session.stats.lost.total(), file=sys.stderr)
"""


def program(target: str = "/dev/stdout", then: str = "") -> list[str]:
    """The command of a program that records to a stream, and prints."""
    return [sys.executable, "-c", PROGRAM.replace("{target}", target).replace("{then}", then)]


def names(content: bytes) -> Counter[str]:
    """How often each span stands in the lines."""
    lines = [line for line in content.splitlines() if line.startswith(b"{")]
    return Counter(record.span_id for line in lines for record in decode_line(line))


@pytest.fixture
def pipe(tmp_path: Path) -> tuple[Path, int]:
    """A named pipe, and the descriptor of its reader."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path, os.open(path, os.O_RDONLY | os.O_NONBLOCK)


@pytest.mark.parametrize("target", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("is_file", [False, True], ids=["pipe", "file"])
def test_standard_output_has_each_span_once_among_what_the_program_prints(
    target: str, is_file: bool, tmp_path: Path
) -> None:
    """
    In a file its position is that of the program, which overwrites nothing, and is not overwritten.
    """
    if target == "link":
        target = str(tmp_path / "link")
        Path(target).symlink_to("/dev/stdout")
    if is_file:
        with Path("out").open("wb") as file:
            done = subprocess.run(program(target), stdout=file, stderr=subprocess.PIPE, timeout=60)
        content = Path("out").read_bytes()
    else:
        done = subprocess.run(program(target), capture_output=True, timeout=60)
        content = done.stdout

    assert {1} == set(names(content).values())
    assert f"True {len(names(content))} 0" == done.stderr.decode().strip()
    assert [b"before", b"after"] == [line for line in content.splitlines() if line.isalpha()]
    Path("a.jsonl").write_bytes(b"".join(ln for ln in content.splitlines(True) if ln.startswith(b"{")))
    assert 1.0 == mttp.read("a.jsonl").episodes[0].return_


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_recording_is_read_from_a_pipe(name: str, tmp_path: Path) -> None:
    """
    Compressed if its name says so.
    """
    path = tmp_path / name
    os.mkfifo(path)
    found: list[mttp.Recording] = []
    reader = threading.Thread(target=lambda: found.append(mttp.read(path)))
    reader.start()
    with mttp.configure(f"file://{path}"):
        for number in range(20):
            with mttp.episode(env=str(number)) as episode, episode.step() as step:
                step.reward(1.0)
    reader.join()

    assert list(map(str, range(20))) == [episode.env for episode in found[0].episodes]
    assert [] == found[0].problems


def test_a_slow_reader_gets_everything_once(pipe: tuple[Path, int]) -> None:
    """
    A pipe takes a part of a segment at a time, and writing goes on where it stopped.
    """
    path, reader = pipe
    fcntl.fcntl(reader, getattr(fcntl, "F_SETPIPE_SZ", 1031), 4096)
    transport = FileTransport(path)
    content = b""

    def read() -> None:
        nonlocal content
        while b"span 2" not in content or not content.endswith(b"\n"):
            with suppress(BlockingIOError):
                content += os.read(reader, 1000)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(3):
        transport.export([span(number, size=20_000)])
    thread.join()
    transport.shutdown()
    os.close(reader)

    assert [1, 1, 1] == [content.count(b'"span %d"' % number) for number in range(3)]
    assert 3 == len([decode_line(line) for line in content.splitlines()])


def test_a_reader_that_leaves_costs_what_it_did_not_read(pipe: tuple[Path, int]) -> None:
    """
    Which is counted once; a later reader gets what follows.
    """
    path, reader = pipe
    transport = FileTransport(path)
    os.close(reader)
    for _ in range(2):
        with pytest.raises(OSError, match=r"Broken pipe|no reader"):
            transport.export([span(0)])
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    transport.export([span(0)])

    assert 1 == os.read(reader, 1 << 16).count(b'"span 0"')
    transport.shutdown()
    os.close(reader)


def test_a_session_whose_reader_leaves_ends_in_time(pipe: tuple[Path, int]) -> None:
    """
    Each span is delivered or lost, and no exception reaches the program.
    """
    path, reader = pipe
    session = mttp.configure(f"file://{path}")
    with mttp.episode(env="a"):
        pass
    assert session.flush()
    os.close(reader)
    with mttp.episode(env="b"):
        pass

    assert not session.close(5)
    stats = session.stats
    assert (stats.recorded, 0) == (stats.delivered + stats.lost.total(), stats.pending)
    assert 0 < stats.lost.total()


def test_a_reader_that_reads_nothing_holds_no_close_up(pipe: tuple[Path, int]) -> None:
    """
    What the pipe does not take in time is lost; the thread that waits for the reader ends with the stream.
    """
    path, reader = pipe
    session = mttp.configure(f"file://{path}")
    with mttp.episode(env="a") as episode, episode.step() as step:
        step.observation("x" * 1_000_000)

    assert not session.close(1)
    assert 0 < session.stats.lost.total()
    assert 0 == session.stats.pending
    os.close(reader)


def test_a_cut_segment_is_never_written_again(pipe: tuple[Path, int]) -> None:
    """
    A part of it was read already: its spans are lost, and counted as such.
    """
    path, reader = pipe
    transport = FileTransport(path)

    def stop() -> None:
        select.select([reader], [], [])
        transport._closing.set()

    threading.Thread(target=stop).start()
    with pytest.raises(PartialExport, match="within a line") as refused:
        transport.export([span(0, size=1_000_000)])
    (lost,) = refused.value.rejections

    assert ("write_failed", 1) == (lost.cause, lost.spans)
    assert () == refused.value.kept
    os.close(reader)


def test_a_pipe_without_a_reader_waits_for_one(tmp_path: Path) -> None:
    """
    Which may start later than the program.
    """
    path = tmp_path / "pipe"
    os.mkfifo(path)
    session = mttp.configure(f"file://{path}")
    with mttp.episode(env="a"):
        pass
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    assert session.flush()
    assert b'"a"' in os.read(reader, 1 << 16)
    assert session.close()
    os.close(reader)


def test_a_device_takes_everything() -> None:
    """
    Nothing is sought in it.
    """
    with mttp.configure("file:///dev/null") as session, mttp.episode(env="a"):
        pass

    assert (0, 0) == (session.stats.lost.total(), session.stats.pending)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Before anything is recorded.
    """
    import socket

    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")

        with pytest.raises(mttp.errors.TransportError, match="it is a socket or a disk"):
            mttp.configure("file://socket")

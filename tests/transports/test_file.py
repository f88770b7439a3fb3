"""A file holds what was recorded: appended, rotated, compressed, shared, whatever the disk does."""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from exporters import numbered as span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

import mttp
from mttp.errors import MissingExtra
from mttp.otlp import streams
from mttp.otlp.json_decode import decode_line
from mttp.otlp.streams import StreamLine, read_lines
from mttp.transports import file
from mttp.transports.file import FileTransport

COMPRESSED = ("a.jsonl.gz", "a.jsonl.zst")
NAMES = ("a.jsonl", *COMPRESSED)


def written(*paths: Path) -> list[int]:
    """The numbers of the spans that the files hold, in order; every line must be whole."""
    found = [item for path in paths for item in read_lines(path)]
    assert [] == [item for item in found if not isinstance(item, StreamLine) or not item.ended]
    return [
        int(record.name.split()[1]) for item in found for record in decode_line(item.content, arrays=True)
    ]


def parts(path: Path) -> list[Path]:
    """The file and its parts, in order."""
    stem = path.name.partition(".")[0]
    others = [other for other in path.parent.iterdir() if other != path and other.name.startswith(f"{stem}.")]
    return [path, *sorted(others, key=lambda other: int(other.name.split(".")[1]))]


@pytest.fixture
def opened() -> Iterator[Callable[..., FileTransport]]:
    """Makes transports, and closes them in the end."""
    made: list[FileTransport] = []

    def make(*args: Any, **options: Any) -> FileTransport:
        made.append(FileTransport(*args, **options))
        return made[-1]

    yield make
    for transport in made:
        transport.shutdown()


class Disk:
    """A disk that takes so many bytes more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free: int | None = None
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        """As `os.write` does: partly where not all fits, and then not at all."""
        if self.free is None:
            return self._write(fd, data)
        if not self.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = self._write(fd, data[: self.free])
        self.free -= count
        return count


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk, with space for everything so far."""
    return Disk(monkeypatch)


# Appending.


@pytest.mark.parametrize("name", NAMES)
def test_what_was_exported_can_be_read_while_the_writer_lives(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    Each segment is complete in the file when the export returns, compressed or not.
    """
    transport = opened(tmp_path / name)

    seen = []
    for number in range(3):
        transport.export([span(number)])
        seen.append(written(tmp_path / name))

    assert [[0], [0, 1], [0, 1, 2]] == seen


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_there_is_appended_to(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    A run that starts again appends to the same file.
    """
    for number in range(3):
        transport = opened(tmp_path / name)
        transport.export([span(number)])
        transport.shutdown()

    assert [0, 1, 2] == written(tmp_path / name)
    assert [tmp_path / name] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "decompress"),
    [("a.jsonl.gz", gzip.decompress), ("a.jsonl.zst", lambda data: decompressed(data))],
)
def test_a_compressed_file_is_what_other_tools_expect(
    name: str, decompress: Callable[[bytes], bytes], tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    gzip members and zstd frames, one after another, read by the library of each format.
    """
    transport = opened(tmp_path / name)
    for number in range(5):
        transport.export([span(number)])

    content = decompress((tmp_path / name).read_bytes())

    assert 5 == len([json.loads(line) for line in content.splitlines()])


def decompressed(data: bytes) -> bytes:
    """All frames of a zstd file."""
    return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


def test_a_compressed_file_is_smaller(tmp_path: Path, opened: Callable[..., FileTransport]) -> None:
    """
    That is what it is for.
    """
    sizes = {}
    for name in NAMES:
        opened(tmp_path / name).export([span(number) for number in range(200)])
        sizes[name] = (tmp_path / name).stat().st_size

    assert all(sizes[name] * 5 < sizes["a.jsonl"] for name in COMPRESSED)


def test_after_a_torn_line_recording_goes_on_on_a_new_one(
    tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    What a crash left behind costs that line, and not the next one.
    """
    path = tmp_path / "a.jsonl"
    opened(path).export([span(0)])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])

    opened(path).export([span(1)])

    first, torn, last = path.read_bytes().splitlines(keepends=True)
    assert (whole, whole[:50] + b"\n") == (first, torn)
    assert "span 1" == decode_line(last, arrays=True)[0].name


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_cut_stream_is_never_appended_to(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    What stands behind a cut can't be read: the next part is used.
    """
    path = tmp_path / name
    transport = opened(path)
    transport.export([span(0)])
    transport.export([span(1)])
    path.write_bytes(path.read_bytes()[:-3])
    cut = path.read_bytes()

    opened(path).export([span(2)])

    first, second = parts(path)
    assert cut == first.read_bytes()
    assert [2] == written(second)


@pytest.mark.parametrize("name", NAMES)
def test_what_another_writer_tears_costs_no_line_of_this_one(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    A writer that shares the file dies within a line while this one has the file open.
    """
    path = tmp_path / name
    transport = opened(path)
    transport.export([span(0)])
    start = path.stat().st_size
    opened(path).export([span(1)])
    whole = path.read_bytes()
    path.write_bytes(whole[: start + (len(whole) - start) // 2])

    transport.export([span(2)])
    transport.export([span(3)])

    numbers = [
        int(record.name.split()[1])
        for part in parts(path)
        for item in read_lines(part)
        if isinstance(item, StreamLine) and item.content.endswith(b"}")
        for record in decode_line(item.content, arrays=True)
    ]
    assert [0, 2, 3] == numbers


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_whole_frame_of_another_writer_is_appended_to(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    Several writers take turns in one file, and none of them needs another part.
    """
    one, other = opened(tmp_path / name), opened(tmp_path / name)
    for number in range(0, 6, 2):
        one.export([span(number)])
        other.export([span(number + 1)])

    assert list(range(6)) == written(tmp_path / name)


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("left", [b"", b"not a frame"])
def test_a_compressed_file_that_is_replaced_meanwhile_is_not_appended_to(
    name: str, left: bytes, tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    Cut shorter than it was, or with something else at its end: the next part is used.
    """
    path = tmp_path / name
    transport = opened(path)
    transport.export([span(0)])
    with path.open("r+b") as file:
        content = file.read()
        file.seek(0)
        file.truncate()
        file.write(content + left if left else content[:-3])

    transport.export([span(1)])

    assert [1] == written(parts(path)[1])


def test_a_file_that_another_process_keeps_locked_is_left_for_the_next_part(
    tmp_path: Path, opened: Callable[..., FileTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A process that hangs or is stopped while it holds the lock costs no lines of others.
    """
    monkeypatch.setattr("mttp.transports.file.LOCK_SECONDS", 0.2)
    path = tmp_path / "a.jsonl"
    transport = opened(path)
    transport.export([span(0)])
    script = f"""
import fcntl, time
file = open({str(path)!r}, "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        transport.export([span(1)])
    finally:
        holder.kill()
        holder.communicate()

    assert [[0], [1]] == [written(part) for part in parts(path)]


def test_a_bit_that_flips_in_a_zstd_file_is_noticed(
    tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    Frames have a checksum: if any byte is damaged, a problem is reported, and no wrong data is read.
    """
    path = tmp_path / "a.jsonl.zst"
    opened(path).export([span(number) for number in range(20)])
    content = path.read_bytes()
    expected = [item.content for item in read_lines(path)]

    silent = []
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        found = list(read_lines(path))
        if all(isinstance(item, StreamLine) and item.ended for item in found):
            silent += [place] if [item.content for item in found] != expected else []
    assert [] == [place for place in silent if place >= 4]  # before that it is no zstd file any more


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_large_compressed_file_is_not_read_to_see_how_it_ends(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A process that starts must not wait for gigabytes to be decompressed: the next part is used.
    """
    opened(tmp_path / name).export([span(0)])
    monkeypatch.setattr("mttp.transports.file._CHECKED_BYTES", 10)

    opened(tmp_path / name).export([span(1)])

    assert [[0], [1]] == [written(part) for part in parts(tmp_path / name)]


def test_an_empty_export_writes_nothing(tmp_path: Path, opened: Callable[..., FileTransport]) -> None:
    """
    There is no line without spans.
    """
    result = opened(tmp_path / "a.jsonl.gz").export([])

    assert SpanExportResult.SUCCESS == result
    assert 0 == (tmp_path / "a.jsonl.gz").stat().st_size


def test_without_zstandard_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Before anything is recorded.
    """
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(MissingExtra, match=r"writing .zst needs zstandard: pip install 'mttp\[zstd\]'"):
        FileTransport(tmp_path / "a.jsonl.zst")


def test_the_sdk_may_use_it_as_an_exporter(tmp_path: Path) -> None:
    """
    Users' own spans go to a file of the same format.
    """
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(FileTransport(tmp_path / "a.jsonl")))
    with provider.get_tracer("mine").start_as_current_span("span 7"):
        pass
    provider.shutdown()

    assert [7] == written(tmp_path / "a.jsonl")


# Parts.


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.json", "a", "a.b.jsonl"])
def test_a_full_file_is_followed_by_the_next_part(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    Nothing is lost, each part but the last has reached its size, and reading finds them all.
    """
    path = tmp_path / name
    transport = opened(path, max_bytes=1000)
    for number in range(30):
        transport.export([span(number, size=100)])

    names = [part.name for part in mttp_sources(path)]
    found = [number for part in mttp_sources(path) for number in written(part)]

    stem, dot, rest = name.partition(".json")
    assert [name, *(f"{stem}.{number}{dot}{rest}" for number in range(1, len(names)))] == names
    assert len(names) > 3
    assert list(range(30)) == found
    assert all(part.stat().st_size >= 1000 for part in mttp_sources(path)[:-1])


def mttp_sources(path: Path) -> list[Path]:
    """The files that reading takes for one recording."""
    return mttp.scan(path).sources


def test_a_restarted_run_goes_on_in_the_last_part(
    tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    Full parts are left alone.
    """
    path = tmp_path / "a.jsonl"
    for number in range(20):
        transport = opened(path, max_bytes=1000)
        transport.export([span(number, size=100)])
        transport.shutdown()

    assert list(range(20)) == written(*parts(path))
    assert 3 < len(parts(path)) < 10


def test_each_process_of_a_directory_has_its_own_parts(
    tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    Rotation works on the file of the process.
    """
    transport = opened(tmp_path, directory=True, max_bytes=500)
    for number in range(10):
        transport.export([span(number, size=100)])

    assert list(range(10)) == sorted(written(*tmp_path.iterdir()))
    assert len(list(tmp_path.iterdir())) > 2


# Durability.


def test_fsync_happens_for_each_segment_where_it_is_asked_for(
    tmp_path: Path, opened: Callable[..., FileTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Segments then survive a power failure, and so does the name of a new file; by default neither is synced.
    """
    synced: list[bool] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.path.samestat(os.fstat(fd), tmp_path.stat()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)

    opened(tmp_path / "never.jsonl").export([span(0)])
    assert [] == synced

    transport = opened(tmp_path / "always.jsonl", fsync="segment")
    transport.export([span(0)])
    transport.export([span(1)])

    assert [True, False, False] == synced


# A disk that is full.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("free", [0, 1, 60])
def test_a_segment_that_does_not_fit_leaves_nothing_behind(
    name: str, free: int, tmp_path: Path, opened: Callable[..., FileTransport], disk: Disk
) -> None:
    """
    A full disk raises, the file stays as it was, and what is written once there is space can be read.
    """
    path = tmp_path / name
    transport = opened(path)
    transport.export([span(0)])
    before = path.read_bytes()

    disk.free = free
    with pytest.raises(OSError, match="No space left"):
        transport.export([span(1), span(2)])
    during = path.read_bytes()

    disk.free = None
    transport.export([span(1), span(2)])
    assert before == during
    assert [0, 1, 2] == written(path)
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_write_in_many_pieces_is_whole(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The system may take a few bytes at a time.
    """
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))

    opened(tmp_path / name).export([span(0), span(1)])

    assert [0, 1] == written(tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
def test_where_a_piece_can_not_be_taken_back_recording_goes_on_behind_it(
    name: str,
    tmp_path: Path,
    opened: Callable[..., FileTransport],
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A plain file gets a new line, a compressed one a new part: only the refused piece is unreadable.
    """
    path = tmp_path / name
    transport = opened(path)
    transport.export([span(0)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", lambda fd, size: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        disk.free = 40
        with pytest.raises(OSError, match="No space left"):
            transport.export([span(1)])

    disk.free = None
    transport.export([span(1)])

    if name == "a.jsonl":
        first, _, last = path.read_bytes().splitlines()
        assert ["span 0", "span 1"] == [decode_line(line, arrays=True)[0].name for line in (first, last)]
    else:
        assert [1] == written(parts(path)[1])


def test_a_sync_that_fails_takes_the_segment_back(
    tmp_path: Path, opened: Callable[..., FileTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    What may not be durable is written again, and is not there twice.
    """
    transport = opened(tmp_path / "a.jsonl", fsync="segment")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with pytest.raises(OSError, match="broken"):
            transport.export([span(0)])

    transport.export([span(0)])

    assert [0] == written(tmp_path / "a.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_is_always_full_refuses(opened: Callable[..., FileTransport]) -> None:
    """
    The real thing: it opens, and takes nothing.
    """
    transport = opened("/dev/full")

    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            transport.export([span(0)])


@pytest.mark.parametrize("name", NAMES)
def test_a_file_size_limit_of_the_system_refuses_and_recovers(name: str, tmp_path: Path) -> None:
    """
    The real thing, with pieces: the kernel writes up to the limit, and then fails.
    """
    path = tmp_path / name
    script = f"""
import resource, sys
sys.path[:0] = {sys.path!r}
from exporters import numbered as span
from mttp.transports import file
from mttp.transports.file import FileTransport
from mttp.otlp import streams
from pathlib import Path

path = Path({str(path)!r})
transport = FileTransport(path)
transport.export([span(0, size=5000)])
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
try:
    transport.export([span(1)])
except OSError as error:
    print(error.strerror, path.stat().st_size == size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
transport.export([span(1)])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "File too large True\n" == done.stdout
    assert [0, 1] == written(path)


# Another program deletes files.


@pytest.mark.parametrize("name", NAMES)
def test_a_deleted_file_is_made_anew(
    name: str, tmp_path: Path, opened: Callable[..., FileTransport], caplog: pytest.LogCaptureFixture
) -> None:
    """
    Recording goes on where readers look, and the log says so once.
    """
    transport = opened(tmp_path / name)
    transport.export([span(0)])
    (tmp_path / name).unlink()

    with caplog.at_level(logging.WARNING):
        transport.export([span(1)])
        transport.export([span(2)])

    assert [1, 2] == written(tmp_path / name)
    assert [
        f"mttp: {tmp_path / name} was deleted or replaced; recording continues in a new file"
    ] == caplog.messages


@pytest.mark.parametrize("directory", [True, False])
def test_a_deleted_directory_is_made_anew(
    directory: bool, tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    Even with everything above the file gone.
    """
    runs = tmp_path / "deep" / "runs"
    transport = opened(runs if directory else runs / "a.jsonl", directory=directory)
    transport.export([span(0)])
    shutil.rmtree(tmp_path / "deep")

    transport.export([span(1)])

    assert [1] == written(*runs.iterdir())


def test_a_moved_file_is_left_alone(tmp_path: Path, opened: Callable[..., FileTransport]) -> None:
    """
    Log rotation by other tools works.
    """
    transport = opened(tmp_path / "a.jsonl")
    transport.export([span(0)])
    (tmp_path / "a.jsonl").rename(tmp_path / "old.jsonl")

    transport.export([span(1)])

    assert ([0], [1]) == (written(tmp_path / "old.jsonl"), written(tmp_path / "a.jsonl"))


def test_a_directory_that_can_not_be_made_anew_refuses_until_it_can(
    tmp_path: Path, opened: Callable[..., FileTransport]
) -> None:
    """
    The refusal is an OSError, which the pipeline takes for a reason to try again.
    """
    transport = opened(tmp_path / "runs" / "a.jsonl")
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "runs").write_text("in the way")

    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        transport.export([span(0)])
    (tmp_path / "runs").unlink()
    transport.export([span(0)])

    assert [0] == written(tmp_path / "runs" / "a.jsonl")


# Files that are shared.


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_processes_may_share_a_file(name: str, tmp_path: Path) -> None:
    """
    Everything is there once, and no line is torn.
    """
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from exporters import numbered as span
from mttp.transports import file
from mttp.transports.file import FileTransport
from mttp.otlp import streams

transport = FileTransport({str(tmp_path / name)!r}, max_bytes=300_000)
for number in range(100):
    transport.export([span(int(sys.argv[1]) + number, size=3000)])
"""
    writers = [subprocess.Popen([sys.executable, "-c", script, str(first)]) for first in (0, 100, 200)]
    codes = [writer.wait() for writer in writers]

    assert [0, 0, 0] == codes
    assert list(range(300)) == sorted(written(*parts(tmp_path / name)))


def test_a_segment_is_appended_under_a_lock(
    tmp_path: Path, opened: Callable[..., FileTransport], disk: Disk
) -> None:
    """
    Taking a piece back could not cost another process its lines otherwise.
    """
    path = tmp_path / "a.jsonl"
    transport = opened(path)
    probe = f"""
import fcntl, os
fd = os.open({str(path)!r}, os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except OSError:
    print("locked")
"""
    states: list[str] = []
    real = disk.write

    def write(fd: int, data: bytes) -> int:
        states.append(state())
        return real(fd, data)

    def state() -> str:
        return subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout.strip()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mttp.transports.file.os.write", write)
        transport.export([span(0)])

    assert (["locked"], "free") == (states, state())


def test_threads_may_share_a_transport(tmp_path: Path, opened: Callable[..., FileTransport]) -> None:
    """
    The SDK's simple processor exports from whatever thread ends a span.
    """
    transport = opened(tmp_path / "a.jsonl", max_bytes=5000)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: transport.export([span(number)]), range(200)))

    assert list(range(200)) == sorted(written(*parts(tmp_path / "a.jsonl")))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_closed_transport_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    """
    Nothing leaks over rotation, deletion, failure and closing.
    """
    before = len(list(Path("/proc/self/fd").iterdir()))
    transport = FileTransport(tmp_path / "runs" / "a.jsonl", max_bytes=500)
    for number in range(20):
        transport.export([span(number)])
        if number % 7 == 0:
            shutil.rmtree(tmp_path / "runs")
    transport.shutdown()
    transport.shutdown()

    assert before == len(list(Path("/proc/self/fd").iterdir()))


def test_a_closed_transport_says_where_it_wrote(tmp_path: Path) -> None:
    """
    Its repr is an address.
    """
    transport = FileTransport(tmp_path / "a.jsonl")
    transport.shutdown()

    assert f"file://{tmp_path}/a.jsonl" == repr(transport)
    assert transport.force_flush()


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers take lines of so many bytes."""
    for module in (streams, file):
        monkeypatch.setattr(module, "READABLE_LINE_BYTES", 1 << 20)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("attribute", "record"),
    [
        ("mttp.token.ids", lambda step: step.tokens(np.arange(1 << 20))),
        ("mttp.token.logprobs", lambda step: step.tokens([1] * (1 << 19), logprobs=[0.1] * (1 << 19))),
        ("mttp.observation.value", lambda step: step.observation(np.random.default_rng(0).random(1 << 18))),
        ("mttp.observation.value", lambda step: step.observation("x" * (1 << 20))),
        ("mttp.action.value", lambda step: step.action("\x00" * (1 << 18))),
        ("mttp.metadata.own", lambda step: step.set_metadata("own", "x" * (1 << 20))),
    ],
    ids=["token ids", "log probabilities", "array", "text", "text that becomes longer", "metadata"],
)
@pytest.mark.usefixtures("short_lines")
def test_what_is_too_long_for_a_line_is_left_out_and_named(
    name: str, attribute: str, record: Callable[[Any], object], tmp_path: Path
) -> None:
    """
    The rest of the span, of the episode and of the file is read.
    """
    path = tmp_path / name
    session = mttp.configure(f"file://{path}")
    with mttp.episode(env="a") as episode, episode.step() as step:
        step.reward(0.5)
        record(step)
    with mttp.episode(env="b"):
        pass
    assert session.close()
    recording = mttp.read(path)
    first, second = recording.episodes

    assert [] == recording.problems
    assert ("a", True, 0.5) == (first.env, first.complete, first.steps[0].reward)
    assert ("b", True) == (second.env, second.complete)
    omissions = dict(omission.split(": ") for omission in first.steps[0].omissions)
    assert "bytes, more than a line may have" in omissions[attribute]
    assert max(len(item.content) for item in read_lines(path) if isinstance(item, StreamLine)) < 1 << 20


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("short_lines")
def test_a_span_that_nothing_makes_short_enough_is_lost_and_counted(name: str, tmp_path: Path) -> None:
    """
    It is not called delivered, and whatever is recorded beside it is.
    """
    path = tmp_path / name
    session = mttp.configure(f"file://{path}")
    with mttp.episode(env="a"):
        pass
    with mttp.episode(env="x" * (1 << 20)):
        pass
    with mttp.episode(env="b"):
        pass
    session.close()
    recording = mttp.read(path)

    assert ["a", "b"] == [episode.env for episode in recording if episode.env in ("a", "b")]
    assert {"too_large": session.stats.recorded - session.stats.delivered} == dict(session.stats.lost)
    assert "lost_spans" in {problem.kind for problem in recording.problems}


def test_an_export_of_a_subclass_gets_spans(tmp_path: Path) -> None:
    """
    A subclass that overrides `export` receives spans, and frames only if it sets `takes_frames`.
    """
    names: list[str] = []

    class Naming(FileTransport):
        def export(self, spans: Any) -> SpanExportResult:
            names.extend(span.name for span in spans)
            return super().export(spans)

    with mttp.configure(Naming(tmp_path / "a.jsonl")), mttp.episode() as episode:
        episode.step().end()

    assert {"step", "episode"} <= set(names)
    assert 1 == len(mttp.read(tmp_path / "a.jsonl").episodes[0].steps)


def test_an_object_before_a_transport_receives_spans(tmp_path: Path) -> None:
    """
    Also if it has the transport's other attributes.
    """
    names: list[str] = []

    class Naming:
        def __init__(self) -> None:
            self.inner = FileTransport(tmp_path / "a.jsonl")

        def export(self, spans: Any) -> SpanExportResult:
            names.extend(span.name for span in spans)
            return self.inner.export(spans)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    with mttp.configure(Naming()), mttp.episode() as episode:
        episode.step().end()

    assert {"step", "episode"} <= set(names)
    assert 1 == len(mttp.read(tmp_path / "a.jsonl").episodes[0].steps)

"""Lines come out of plain and compressed files, wherever these were cut off."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mttp.errors import MissingExtra
from mttp.otlp import streams
from mttp.otlp.streams import Cut, FilePart, Skipped, StreamLine, ends_cleanly, read_lines

COMPRESS: dict[str, Any] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
CONTENTS = [json.dumps({"n": n, "text": "x" * (n % 7)}).encode() for n in range(40)]
DATA = b"".join(content + b"\n" for content in CONTENTS)

every_kind = pytest.mark.parametrize("kind", COMPRESS)
in_a_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def written(path: Path, data: bytes) -> Path:
    """The file, holding this."""
    path.write_bytes(data)
    return path


def whole(found: list[StreamLine | Skipped | Cut]) -> list[bytes]:
    """The lines that were ended by a newline."""
    return [item.content for item in found if isinstance(item, StreamLine) and item.ended]


@every_kind
def test_lines_are_read_in_order_with_their_numbers(kind: str, tmp_path: Path):
    """
    Numbers count from one, and the newline is not part of a line.
    """
    found = list(read_lines(written(tmp_path / "a", COMPRESS[kind](DATA))))

    assert [StreamLine(n, content, True) for n, content in enumerate(CONTENTS, 1)] == found


@every_kind
def test_members_that_were_appended_are_read_on(kind: str, tmp_path: Path):
    """
    A line may even begin in one gzip member or zstd frame and end in the next.
    """
    parts = [COMPRESS[kind](DATA[at : at + 333]) for at in range(0, len(DATA), 333)]

    assert CONTENTS == whole(list(read_lines(written(tmp_path / "a", b"".join(parts)))))


def test_zeros_after_a_gzip_member_are_padding(tmp_path: Path):
    """
    Tapes and some copies pad files with zeros.
    """
    data = gzip.compress(DATA) + b"\0" * 700 + gzip.compress(b"last\n") + b"\0" * 9

    assert [*CONTENTS, b"last"] == whole(list(read_lines(written(tmp_path / "a.gz", data))))


def test_skippable_zstd_frames_are_skipped(tmp_path: Path):
    """
    A zstd file may begin with a skippable frame.
    """
    frame = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"

    assert CONTENTS == whole(list(read_lines(written(tmp_path / "a", frame + COMPRESS["zstd"](DATA)))))


def test_compression_is_detected_by_content(tmp_path: Path):
    """
    The name of a file says nothing.
    """
    found = list(read_lines(written(tmp_path / "a.jsonl", gzip.compress(DATA))))

    assert CONTENTS == whole(found)


def test_empty_lines_count_but_do_not_come_out(tmp_path: Path):
    """
    Blank lines keep the numbers right.
    """
    found = list(read_lines(written(tmp_path / "a", b"\n  \na\r\n\nb\n \n")))

    assert [StreamLine(3, b"a\r", True), StreamLine(5, b"b", True)] == found


def test_a_byte_order_mark_is_no_content(tmp_path: Path):
    """
    Some editors begin a file with one.
    """
    found = list(read_lines(written(tmp_path / "a", b"\xef\xbb\xbf{}\n{}")))

    assert [StreamLine(1, b"{}", True), StreamLine(2, b"{}", False)] == found


def test_byte_order_marks_of_joined_files_are_no_content(tmp_path: Path):
    """
    Each of them may have begun with one.
    """
    data = b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n\xef\xbb\xbf\n"
    for content in (data, gzip.compress(data)):
        found = list(read_lines(written(tmp_path / "a", content)))

        assert [StreamLine(1, b"{}", True), StreamLine(2, b"{}", True)] == found


def test_an_indented_document_is_one_line(tmp_path: Path):
    """
    It has the number of its first line; brackets in texts do not count.
    """
    document = b'{\n "a": [\n  "}]\\"}",\n  2\n ]\n}'
    for content in (b"1\n%b\n2\n", b"1\n%b\n2"):
        found = list(read_lines(written(tmp_path / "a", content % document)))

        assert [(1, b"1"), (2, document), (8, b"2")] == [(one.number, one.content) for one in found]


def test_lines_of_a_document_without_an_end_are_read_one_by_one(tmp_path: Path):
    """
    A line that a crash cut costs itself only.
    """
    data = b'{"a":[1,\n{"b":2}\n{"c":3}\n'
    found = list(read_lines(written(tmp_path / "a", data)))

    assert data.splitlines() == [one.content for one in found]


def test_a_last_line_without_newline_is_marked(tmp_path: Path):
    """
    Whether it was cut short is for the reader of the line to say.
    """
    assert StreamLine(2, b"b", False) == list(read_lines(written(tmp_path / "a", b"a\nb")))[-1]


def test_an_empty_file_has_no_lines(tmp_path: Path):
    """
    Nothing in, nothing out.
    """
    assert [] == list(read_lines(written(tmp_path / "a", b"")))


@every_kind
@in_a_file
@given(cut=st.integers(0, 2000), split=st.integers(0, len(DATA)))
def test_a_cut_anywhere_loses_nothing_before_it(kind: str, cut: int, split: int, tmp_path: Path):
    """
    Every line before the cut comes out, and a compressed stream that was cut says so last.
    """
    data = COMPRESS[kind](DATA[:split]) + COMPRESS[kind](DATA[split:])
    kept = data[:cut]
    path = written(tmp_path / "a", kept)
    found = list(read_lines(path))
    lines = whole(found)

    assert CONTENTS[: len(lines)] == lines
    assert all(isinstance(item, StreamLine) for item in found[:-1])
    if kind == "plain":
        assert kept.count(b"\n") == len(lines)
    elif len(kept) >= 4:  # fewer bytes do not show that it is compressed
        members = [0, len(COMPRESS[kind](DATA[:split])), len(data)]
        assert (len(kept) not in members) == bool(found and isinstance(found[-1], Cut))


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_what_was_flushed_before_a_crash_comes_out(kind: str, tmp_path: Path):
    """
    A writer flushes the stream after each line, so that a kill loses none of them.
    """
    stream: Any = zlib.compressobj(wbits=31) if kind == "gzip" else zstandard.ZstdCompressor().compressobj()
    flush = zlib.Z_SYNC_FLUSH if kind == "gzip" else zstandard.COMPRESSOBJ_FLUSH_BLOCK
    data = b"".join(stream.compress(content + b"\n") + stream.flush(flush) for content in CONTENTS)
    found = list(read_lines(written(tmp_path / "a", data)))

    assert CONTENTS == whole(found)
    assert Cut(len(CONTENTS) + 1, b"", f"the {kind} stream ends too early") == found[-1]


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_damaged_stream_ends_there(kind: str, tmp_path: Path):
    """
    Garbage after a member is reported, and the lines before it are read.
    """
    found = list(read_lines(written(tmp_path / "a", COMPRESS[kind](DATA) + b"garbage")))

    assert CONTENTS == whole(found)
    assert f"the {kind} stream is damaged" in found[-1].reason  # type: ignore[union-attr]


@every_kind
@pytest.mark.parametrize("ended", [True, False])
def test_a_line_that_is_too_long_is_left_out(
    kind: str, ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """
    Only that one: those after it are read, with their numbers, in bounded memory.
    """
    monkeypatch.setattr(streams, "READABLE_LINE_BYTES", 1 << 20)
    exactly = b"z" * ((1 << 20) - 1) + b"\n"
    rest = b"\n" + exactly + b"b" if ended else b""
    path = written(tmp_path / "a", COMPRESS[kind](b"a\n" + b"y" * (128 << 20) + rest))
    reason = "the line is longer than 1 MiB, and is left out"
    tracemalloc.start()
    try:
        found = list(read_lines(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    after = [StreamLine(3, exactly[:-1], True), StreamLine(4, b"b", False)] if ended else []
    assert [StreamLine(1, b"a", True), Skipped(2, reason), *after] == found
    assert 100 << 20 > peak


def test_lines_that_are_too_long_may_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """
    In a share of a file as in the whole of it.
    """
    monkeypatch.setattr(streams, "READABLE_LINE_BYTES", 1000)
    line = b"y" * 1000 + b"\n"
    path = written(tmp_path / "a", b"a\n" + line * 3 + b"b\n" + line + b"c\n")
    whole_file = list(read_lines(path))
    first, second = FilePart(0, 2 + 2 * len(line)), FilePart(2 + 2 * len(line), 1 << 20)
    shared = [*read_lines(path, share=first), *read_lines(path, share=second)]

    assert [1, 2, 3, 4, 5, 6, 7] == [item.number for item in whole_file]
    assert [StreamLine, Skipped, Skipped, Skipped, StreamLine, Skipped, StreamLine] == [
        type(item) for item in whole_file
    ]
    assert [type(item) for item in whole_file] == [type(item) for item in shared]


def test_a_device_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """
    A line must end some time.
    """
    monkeypatch.setattr(streams, "READABLE_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(streams, "_MOST_SKIPPED", 1 << 30)

    assert [Cut(1, b"", "the line is longer than 1 GiB")] == list(read_lines("/dev/zero"))


def test_progress_counts_every_byte_of_the_file(tmp_path: Path):
    """
    A progress bar arrives at the file's size.
    """
    path = written(tmp_path / "a", gzip.compress(DATA))
    read: list[int] = []
    list(read_lines(path, progress=read.append))

    assert path.stat().st_size == sum(read)


@every_kind
def test_a_file_ends_cleanly_only_if_it_is_whole(kind: str, tmp_path: Path):
    """
    A writer that appends must know whether the existing data can be read to its end.
    """
    data = COMPRESS[kind](DATA)
    found = {
        "whole": ends_cleanly(written(tmp_path / "whole", data)),
        "twice": ends_cleanly(written(tmp_path / "twice", data + data)),
        "cut": ends_cleanly(written(tmp_path / "cut", data[:-1])),
        "damaged": ends_cleanly(written(tmp_path / "damaged", data + b"x")),
        "without a newline": ends_cleanly(written(tmp_path / "open", COMPRESS[kind](b"{}"))),
        "empty": ends_cleanly(written(tmp_path / "empty", b"")),
        "absent": ends_cleanly(tmp_path / "absent"),
    }

    assert ["whole", "twice", "empty", "absent"] == [name for name, clean in found.items() if clean]


def test_a_zstd_file_without_zstandard_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """
    The extra is named.
    """
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = written(tmp_path / "a.zst", COMPRESS["zstd"](DATA))

    with pytest.raises(MissingExtra, match=r"reading .*a\.zst needs zstandard: pip install 'mttp\[zstd\]'"):
        list(read_lines(path))


MEASURE = """
import sys
from mttp.otlp.streams import read_lines
count = sum(1 for _ in read_lines(sys.argv[1]))
status = open("/proc/self/status").read()
print(count, status.split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured as Linux does")
@every_kind
def test_memory_is_constant(kind: str, tmp_path: Path):
    """
    A file of sixteen times the size takes no more memory to read.
    """
    block = b'{"n":"' + b"abcdefghij" * 300 + b'"}\n'
    peaks = []
    for times in (1, 16):
        path = written(tmp_path / "a", COMPRESS[kind](block * 300) * times)
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
        )
        count, peak = map(int, done.stdout.split())
        assert 300 * times == count
        peaks.append(peak)

    assert peaks[1] - peaks[0] < 8_000


@pytest.mark.parametrize(
    ("kind", "line", "times", "least"),
    [("gzip", b"\n", 40 << 20, 0), ("zstd", b"\n", 200 << 20, 0), ("zstd", b'{"n": 1}\n', 2 << 20, 1)],
)
def test_a_file_that_becomes_many_times_as_long_is_given_up(
    kind: str, line: bytes, times: int, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """
    In bounded memory and time, with the reason; what stood before is read.
    """
    monkeypatch.setattr(streams, "_ALWAYS_READ", 1 << 20)
    monkeypatch.setattr(streams, "_PLAUSIBLE_RATIO", 100)
    path = written(tmp_path / "a", COMPRESS[kind](line * times))
    tracemalloc.start()
    try:
        count = 0
        for item in read_lines(path):
            count += isinstance(item, StreamLine)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert isinstance(item, Cut)
    assert "times its size" in item.reason
    assert count >= least
    assert 150 << 20 > peak


@every_kind
def test_empty_lines_are_counted(kind: str, tmp_path: Path):
    """
    However many there are in a row, the numbers of the lines that follow are right.
    """
    data = b"\n" * 600_000 + b"{}\n" + b" \n\n" * 400_000 + b"[]"
    found = list(read_lines(written(tmp_path / "a", COMPRESS[kind](data))))

    assert [StreamLine(600_001, b"{}", True), StreamLine(1_400_002, b"[]", False)] == found

"""Which files a source names."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from reading.traces import episode, trace_id, write

import mttp
from mttp.errors import ReadError
from mttp.reading.sources import size


def numbers(recording: mttp.Recording) -> list[int | None]:
    """Which episodes were read."""
    return [found.index for found in recording]


def read_files(source: object) -> list[str]:
    """Names of the files that were read, in order."""
    return [path.name for path in mttp.read(source).sources]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.jsonl.zst", "a.anything"])
def test_a_file_is_read_whatever_its_name(name: str):
    """
    A file that is named is read, be it text, gzip or zstd.
    """
    assert [0] == numbers(mttp.read(write(name, episode(0))))


def test_a_path_may_be_text_or_a_path():
    """
    Both spell the same file.
    """
    path = write("a.jsonl", episode(0))

    assert numbers(mttp.read(path)) == numbers(mttp.read(str(path)))


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_rotated_parts_belong_to_their_file(suffix: str):
    """
    `a.jsonl` goes on in `a.1.jsonl`, `a.2.jsonl`, …, in the order of their numbers.
    """
    for number in range(11):
        write(f"a.{number}{suffix}" if number else f"a{suffix}", episode(number))
    write(f"ab.1{suffix}", episode(99))
    expected = [f"a{suffix}", *(f"a.{number}{suffix}" for number in range(1, 11))]

    assert expected == read_files(f"a{suffix}")


def test_a_part_that_is_named_is_read_alone():
    """
    Asking for one part gives that part.
    """
    write("a.jsonl", episode(0))
    write("a.1.jsonl", episode(1))

    assert ["a.1.jsonl"] == read_files("a.1.jsonl")


@pytest.mark.parametrize("source", ["runs", "runs/", "runs/**", "runs/**/*.jsonl*"])
def test_a_directory_is_read_with_those_below_it(source: str):
    """
    Directories and globs find every recording, parts in their places.
    """
    write("runs/b.jsonl", episode(0))
    write("runs/a.10.jsonl", episode(1))
    write("runs/a.2.jsonl", episode(2))
    write("runs/a.jsonl", episode(3))
    write("runs/deep/er/c.jsonl.gz", episode(4))

    assert ["a.jsonl", "a.2.jsonl", "a.10.jsonl", "b.jsonl", "c.jsonl.gz"] == read_files(source)


def test_a_directory_is_searched_for_recordings_only():
    """
    Files of other names, and hidden ones, are left alone.
    """
    write("runs/a.jsonl", episode(0))
    for other in ("runs/notes.txt", "runs/model.pt", "runs/.b.jsonl", "runs/a.jsonl.bak"):
        Path(other).write_text("not a recording")

    assert ["a.jsonl"] == read_files("runs")


def test_a_list_reads_each_file_once():
    """
    However often a file is named, it counts once.
    """
    first, second = write("a.jsonl", episode(0)), write("a.1.jsonl", episode(1))

    assert ["a.jsonl", "a.1.jsonl"] == read_files([first, str(second), ".", first.absolute()])


def test_brackets_in_a_name_are_no_glob():
    """
    A file that exists is meant, whatever characters are in its name.
    """
    assert [0] == numbers(mttp.read(write("run[1].jsonl", episode(0))))


def test_a_session_is_read_from_memory(session: mttp.Session):
    """
    A session in memory is a source like any other, alone or in a list.
    """
    with mttp.episode(env="pole"):
        pass
    recorded = mttp.read(session)
    with_file = mttp.read([session, write("a.jsonl", episode(0))])

    assert (["pole"], []) == ([found.env for found in recorded], recorded.sources)
    assert ["CartPole-v1", "pole"] == sorted(found.env for found in with_file)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.jsonl", "none.jsonl does not exist"),
        ("runs/*.jsonl", r"no file matches runs/\*.jsonl"),
        ("empty", "empty has no recordings: no file in it ends in .jsonl, .json"),
        ([], "the list of sources is empty"),
        (42, r"can't read 42 \(int\); give a path"),
    ],
)
def test_nothing_to_read_is_an_error(source: object, message: str):
    """
    A missing or empty source is an error that says what to do.
    """
    Path("empty").mkdir()

    with pytest.raises(ReadError, match=message):
        mttp.read(source)  # type: ignore[arg-type]


def test_errors_come_when_a_scan_is_made():
    """
    A scan finds its files before the first span is asked for.
    """
    with pytest.raises(ReadError, match=r"none.jsonl does not exist"):
        mttp.scan("none.jsonl")


def test_size_is_that_of_all_files():
    """
    A progress bar knows where it ends.
    """
    paths = [write("a.jsonl", episode(0)), write("a.1.jsonl", episode(1))]

    assert sum(path.stat().st_size for path in paths) == size("a.jsonl")


def test_a_trace_that_is_spread_over_files_is_one_episode():
    """
    A size limit may be reached within an episode.
    """
    spans = episode(0)
    write("a.jsonl", spans[:1])
    write("a.1.jsonl", spans[1:])
    found = mttp.read("a.jsonl")

    assert ([trace_id(0)], [True], []) == (
        [one.trace_id for one in found],
        [one.complete for one in found],
        found.problems,
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_read():
    """
    What another program writes into a pipe is read as it comes.
    """
    data = write("a.jsonl.gz", episode(0)).read_bytes()
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_bytes(data))
    writer.start()
    found = mttp.read("pipe")
    writer.join()

    assert ([0], []) == (numbers(found), found.problems)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_that_is_called_as_a_part_is_none():
    """
    Only a named recording may be a pipe: no process would write into another.
    """
    write("a.jsonl", episode(0))
    os.mkfifo("a.1.jsonl")

    assert [0] == numbers(mttp.read("a.jsonl"))


def test_a_file_that_may_not_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """
    An error of the operating system is reported like any other unreadable source.
    """
    path = write("a.jsonl", episode(0))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)

    with pytest.raises(ReadError, match=r"a\.jsonl: Permission denied"):
        mttp.read(path)

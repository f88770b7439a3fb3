"""A Parquet copy beside a file is read in its place, while it says the same."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp.errors import ReadError
from mttp.reading import copies

pytest.importorskip("pyarrow")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recording with a broken line in its middle."""
    path = tmp_path / "a.jsonl"
    record(path, 1)
    with path.open("ab") as file:
        file.write(b"broken\n")
    record(path, 2)
    return path


def record(path: Path, number: int) -> None:
    """Add an episode."""
    with mttp.configure(transport=f"file://{path}"), mttp.episode(env=f"env-{number}") as episode:
        with episode.step() as step:
            step.tokens(ids=[1, 2, number], logprobs=[-0.1, -0.2, -0.3])
        episode.reward(number)


def read(source: Path) -> tuple[Any, ...]:
    """All that is read of it, and how."""
    found, summary = mttp.read(source), mttp.summarize(source)
    return found.episodes, found.runs, found.problems, found.sources, found.duplicates, list(summary.returns)


def spoil(source: Path) -> None:
    """Change the file without changing its size or its age: only its copy can tell what it was."""
    before = source.stat()
    source.write_bytes(b" " * before.st_size)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_copy_is_read_in_its_sources_place(recorded: Path):
    """
    Episodes, runs, problems and sources are equal, and the source is not read.
    """
    expected = read(recorded)
    copies.make(recorded)
    spoil(recorded)

    assert expected == read(recorded)
    assert ["broken_line"] == [problem.kind for problem in expected[2]]


def test_a_directory_is_read_by_its_copies(recorded: Path):
    """
    A file and its copy are one recording, without duplicates.
    """
    expected = read(recorded)
    copies.make(recorded)
    spoil(recorded)

    assert expected == read(recorded.parent)


def test_a_source_that_went_on_is_read_itself(recorded: Path):
    """
    A copy is ignored if its source has changed.
    """
    copies.make(recorded)
    record(recorded, 3)

    assert 3 == len(mttp.read(recorded).episodes)
    assert 3 == len(mttp.read(recorded.parent).episodes)


def test_what_else_has_that_name_is_no_copy(recorded: Path):
    """
    A damaged file and a recording of another source are not read as copies.
    """
    copy = copies.copy_of(recorded)
    copy.write_bytes(b"PAR1 and nothing else")
    expected = read(recorded)

    assert 2 == len(expected[0])
    assert copies.find(recorded) is None


def test_a_copy_without_its_source_is_a_recording(recorded: Path):
    """
    A copy without its source is read by its own name and as part of a directory.
    """
    expected = mttp.read(recorded).episodes
    copy = copies.make(recorded)

    assert expected == mttp.read(copy).episodes
    recorded.unlink()
    assert expected == mttp.read(recorded.parent).episodes


def test_compressed_files_have_copies_too(recorded: Path, tmp_path: Path):
    """
    A copy saves the time that decompressing takes.
    """
    packed = tmp_path / "apart" / "b.jsonl.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(recorded.read_bytes()))
    expected = read(packed)
    copies.make(packed)
    spoil(packed)

    assert expected == read(packed)


def test_what_is_no_recording_has_no_copy(tmp_path: Path):
    """
    Making a copy raises, and leaves no file.
    """
    path = tmp_path / "a.jsonl"
    path.write_text("text\n")

    with pytest.raises(ReadError, match="not a recording"):
        copies.make(path)
    assert [path] == list(tmp_path.iterdir())


def test_without_pyarrow_the_source_is_read(recorded: Path, monkeypatch: pytest.MonkeyPatch):
    """
    A copy that can't be read is ignored.
    """
    copies.make(recorded)
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert 2 == len(mttp.read(recorded).episodes)

"""Files that are read with a limit, and what is no file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mttp.otlp import regular_files


def test_a_file_is_read_in_pieces() -> None:
    """
    Of a mebibyte each, so that a large one needs no memory.
    """
    content = bytes(range(256)) * 10_000
    Path("file").write_bytes(content)
    pieces = list(regular_files.pieces(Path("file"), len(content)))

    assert [1 << 20, 1 << 20, len(content) - (2 << 20)] == [len(piece) for piece in pieces]
    assert content == b"".join(pieces) == regular_files.read(Path("file"), len(content))


def test_a_larger_file_is_refused_before_it_is_read() -> None:
    """
    A file of a terabyte of holes is refused at once.
    """
    with Path("file").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(OSError, match=r"it has more than 1,000 bytes: 'file'"):
        regular_files.read(Path("file"), 1000)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="there is no /proc here")
def test_a_file_that_says_it_is_empty_is_limited_too() -> None:
    """
    Files under /proc have no size, and content.
    """
    path = Path("/proc/self/maps")
    assert 0 == path.stat().st_size

    with pytest.raises(OSError, match="it has more than 10 bytes"):
        regular_files.read(path, 10)


def test_a_pipe_is_refused_without_waiting() -> None:
    """
    Opening it would wait for a writer.
    """
    os.mkfifo("pipe")

    with pytest.raises(OSError, match=r"it is a pipe, not a regular file: 'pipe'"):
        regular_files.read(Path("pipe"), 1000)


def test_a_file_that_becomes_a_pipe_is_refused_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Between the moment when it is looked at and the one when it is opened.
    """
    os.mkfifo("pipe")
    Path("file").write_text("text")
    regular = Path("file").stat()
    monkeypatch.setattr(Path, "stat", lambda *_, **__: regular)

    with pytest.raises(OSError, match="it is a pipe, not a regular file"):
        regular_files.read(Path("pipe"), 1000)


def test_nothing_but_a_regular_file_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Opening some devices does something.
    """

    def refuse(path: object, *_: object) -> None:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(os, "open", refuse)

    assert stat.S_ISCHR(Path("/dev/zero").stat().st_mode)
    with pytest.raises(OSError, match="it is a device, not a regular file"):
        regular_files.read(Path("/dev/zero"), 1000)
    with pytest.raises(OSError, match="it is a directory, not a regular file"):
        regular_files.read(Path(), 1000)

"""All formats: their names, titles and the table in the documentation."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from mttp import formats, integrations
from mttp.errors import ReadError

PAGE = Path(__file__).parents[2] / "docs" / "libraries.md"


def test_the_page_lists_each_format() -> None:
    """
    In the order in which formats are recognized.
    """
    section = PAGE.read_text().partition("## Files of other libraries")[2]

    assert list(formats.FORMATS) == re.findall(r"^- `(\w+)`: ", section, re.MULTILINE)


def test_each_format_states_what_it_lacks() -> None:
    """
    `mttp import` prints it.
    """
    assert all(formats.format_named(name).LACKS for name in formats.FORMATS)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"{}",
        b"[]",
        b"[1]",
        b"3",
        b'"x"',
        b"{",
        b"\x00\xff",
        b"PK\x03\x04",
        b"PAR1",
        b"[[]]",
        b"null",
    ],
)
def test_a_file_without_a_format_is_refused(content: bytes, tmp_path: Path) -> None:
    """
    Whatever it holds.
    """
    path = tmp_path / "file"
    path.write_bytes(content)
    try:
        found = formats.recognize(path)
    except ReadError:
        found = None

    assert found is None

    with pytest.raises(ReadError):
        formats.read(path)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """
    It can be read only once, and nothing waits for a writer.
    """
    path = tmp_path / "pipe"
    os.mkfifo(path)

    with pytest.raises(ReadError, match="is not a regular file"):
        formats.recognize(path)


def test_the_table_of_libraries_is_complete() -> None:
    """
    Each integration with the versions that it states as tested.
    """
    page = PAGE.read_text()
    rows = re.findall(r"^\| .*\(`(\w+)`\) \| ([^|]+) \|", page, re.MULTILINE)

    assert {name: library.tested for name, library in integrations.LIBRARIES.items()} == dict(rows)

"""Problems as values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from mttp.errors import ReadError
from mttp.reading.problems import Kind, Problem, Problems, undecodable

GUIDE = Path(__file__).parents[2] / "docs" / "reading.md"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, "it is broken"),
        ({"file": "a.jsonl"}, "a.jsonl: it is broken"),
        ({"file": "a.jsonl", "line": 3}, "a.jsonl:3: it is broken"),
        ({"trace_id": "ab"}, "it is broken"),
    ],
)
def test_a_problem_says_where_it_is(where: dict[str, object], expected: str):
    """
    File and line come first, as compilers have it.
    """
    assert expected == str(Problem(kind="broken_line", message="it is broken", **where))  # type: ignore[arg-type]


def test_the_message_of_a_broken_trace_is_short():
    """
    An error that quotes a whole array is cut.
    """
    assert len(undecodable("ab", ValueError("x" * 1000))) < 300


def test_strictly_a_problem_is_an_error():
    """
    The first one raises.
    """
    with pytest.raises(ReadError, match="a:1: no"):
        Problems(strict=True).add(Problem(kind="broken_line", message="no", file="a", line=1))


def test_so_many_of_a_kind_and_file_are_kept():
    """
    A file of a million broken lines does not fill the memory: the rest is counted.
    """
    problems = Problems()
    for line in range(Problems.LIMIT + 5):
        problems.add(Problem(kind="broken_line", message="not JSON", file="a", line=line))
    kept = problems.all()

    assert (Problems.LIMIT + 1, "a: 5 more problems of the kind broken_line") == (len(kept), str(kept[-1]))


def test_the_guide_explains_every_kind():
    """
    Every value of the type has a row in the table.
    """
    section = GUIDE.read_text().partition("## What may be wrong")[2].partition("\n## ")[0]

    assert list(get_args(Kind)) == re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)

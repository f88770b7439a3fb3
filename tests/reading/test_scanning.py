"""Spans one after another."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading.traces import episode, foreign, write, write_bytes

import mttp
from mttp.model.spans import KEPT_LISTS
from mttp.semconv import attributes as a

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_every_span_comes_out_as_it_was_written(name: str):
    """
    In the order of the file, duplicates and other people's included.
    """
    spans = [*episode(0), foreign(1), *episode(0)]

    assert spans == list(mttp.scan(write(name, spans, per_line=2), arrays=True))


def test_without_arrays_only_scalars_come():
    """
    By default what takes most of the time is skipped.
    """
    (span,) = mttp.scan(write("a.jsonl", [foreign(1)]))

    assert {"http.request.method": "GET"} == span.attributes


def test_a_session_is_scanned_likewise(session: mttp.Session):
    """
    From memory as from files, with the short lists that summaries and studies need.
    """
    with mttp.episode(slices=["a"]) as opened, opened.step() as step:
        step.observation([1.0, 2.0])
        step.reward(1)
    found = [item for span in mttp.scan(session) for item in span.attributes.items()]
    kinds = {type(value) for key, value in found if key not in KEPT_LISTS}

    assert {str, int, float, bool} >= kinds
    assert (a.TASK_SLICES, ["a"]) in found


def test_a_scan_knows_what_it_read():
    """
    Files and problems are known while it goes on.
    """
    path = write_bytes("a.jsonl", write("b.jsonl", episode(0)).read_bytes() + b"{broken\n")
    scan = mttp.scan(path)
    first = next(scan)

    assert (episode(0)[0].span_id, [path], []) == (first.span_id, scan.sources, scan.problems)
    assert (2, ["broken_line"]) == (len(list(scan)), [problem.kind for problem in scan.problems])


def test_progress_arrives_at_the_size_of_the_files():
    """
    The sum of the progress calls is the size of the files.
    """
    paths = [write("a.jsonl", episode(0)), write("b.jsonl.gz", episode(1))]
    read: list[int] = []
    mttp.read(paths, progress=read.append)

    assert sum(path.stat().st_size for path in paths) == sum(read)

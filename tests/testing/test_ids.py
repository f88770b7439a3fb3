"""Ids that count up: readable, valid, the same each time, and gone afterwards."""

from __future__ import annotations

import ast
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import mttp
from mttp.model import ids
from mttp.testing import CountingIds, counting_ids


def test_ids_count_up_from_one() -> None:
    """
    Zero is OpenTelemetry's "no id"; traces, spans and runs are counted each for themselves.
    """
    with counting_ids():
        drawn = [ids.trace_id(), ids.trace_id(), ids.span_id(), ids.run_id(), ids.run_id()]

    assert [1, 2, 1, "0000000000000001", "0000000000000002"] == drawn


def test_afterwards_ids_are_random_again() -> None:
    """
    Also where the block was left by an exception.
    """
    before = ids.trace_id, ids.span_id, ids.run_id
    with pytest.raises(KeyError), counting_ids():
        raise KeyError

    assert before == (ids.trace_id, ids.span_id, ids.run_id)


def test_what_is_recorded_has_these_ids() -> None:
    """
    In the order in which the code under test asks for them.
    """
    with counting_ids(), mttp.configure("memory://") as session:
        for _ in range(2):
            with mttp.episode() as episode, episode.step():
                pass

    found = [(episode.trace_id[-2:], episode.span_id[-2:]) for episode in mttp.read(session)]
    assert [("01", "01"), ("02", "03")] == found


def test_what_mttp_itself_needs_is_counted_apart() -> None:
    """
    A marker that its thread leaves at some time shifts nobody's ids.
    """
    counting = CountingIds()
    drawn: list[int] = []
    own = threading.Thread(target=lambda: drawn.append(counting.span_id()), name="mttp-flush")
    own.start()
    own.join()

    assert (1, [2**32 + 1]) == (counting.span_id(), drawn)


def test_threads_never_share_an_id() -> None:
    """
    However many ask at once.
    """
    counting = CountingIds()
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda _: [counting.span_id() for _ in range(500)], range(8))

    assert set(range(1, 4001)) == {number for some in made for number in some}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_range_of_its_own() -> None:
    """
    Its episodes are told from its parent's.
    """
    counting = CountingIds()
    counting.span_id()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that others have started
        child = os.fork()
    if not child:
        os.write(write, str(counting.span_id()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    drawn = int(os.read(read, 100))
    os.close(read)
    os.close(write)

    assert (child << 40 | 1, 2) == (drawn, counting.span_id())
    assert drawn < 2**64


def test_nobody_keeps_the_functions() -> None:
    """
    They are replaced where they stand: whoever had imported one by its name would go on with random ids.
    """
    kept = [
        path.name
        for path in Path(mttp.__file__).parent.rglob("*.py")
        if "mttp.model.ids" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "mttp.model.ids"
    ]

    assert [] == kept

"""Counting ids: valid, deterministic, and only inside the block."""

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
    0 is an invalid id in OpenTelemetry; traces, spans and runs are counted separately.
    """
    with counting_ids():
        drawn = [ids.trace_id(), ids.trace_id(), ids.span_id(), ids.run_id(), ids.run_id()]

    assert [1, 2, 1, "0000000000000001", "0000000000000002"] == drawn


def test_afterwards_ids_are_random_again() -> None:
    """
    Also after an exception in the block.
    """
    before = ids.trace_id, ids.span_id, ids.run_id
    with pytest.raises(KeyError), counting_ids():
        raise KeyError

    assert before == (ids.trace_id, ids.span_id, ids.run_id)


def test_recordings_have_counting_ids() -> None:
    """
    In the order in which the code under test needs them.
    """
    with counting_ids(), mttp.configure("memory://") as session:
        for _ in range(2):
            with mttp.episode() as episode, episode.step():
                pass

    found = [(episode.trace_id[-2:], episode.span_id[-2:]) for episode in mttp.read(session)]
    assert [("01", "01"), ("02", "03")] == found


def test_mttp_s_threads_count_separately() -> None:
    """
    A start marker, whose timing varies, does not change other ids.
    """
    counting = CountingIds()
    drawn: list[int] = []
    own = threading.Thread(target=lambda: drawn.append(counting.span_id()), name="mttp-flush")
    own.start()
    own.join()

    assert (1, [2**32 + 1]) == (counting.span_id(), drawn)


def test_threads_never_share_an_id() -> None:
    """
    Ids are unique with many threads at once.
    """
    counting = CountingIds()
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda _: [counting.span_id() for _ in range(500)], range(8))

    assert set(range(1, 4001)) == {number for some in made for number in some}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_range_of_its_own() -> None:
    """
    Its ids differ from its parent's.
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


def test_no_module_imports_the_id_functions_by_name() -> None:
    """
    The functions are replaced in their module; a module that imported one by name would keep random ids.
    """
    kept = [
        path.name
        for path in Path(mttp.__file__).parent.rglob("*.py")
        if "mttp.model.ids" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "mttp.model.ids"
    ]

    assert [] == kept

"""The garbage collector while recordings are read, and afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mttp
from mttp.reading.garbage import gc_disabled


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """No garbage and no frozen objects of other tests, and the collector enabled before and after."""
    gc.unfreeze()
    gc.collect()
    yield
    gc.unfreeze()
    gc.enable()


def test_what_was_read_is_not_traversed_soon() -> None:
    """
    The first collection afterwards is of the youngest objects, and what was read is not among them.
    """
    with gc_disabled():
        value: list[object] = [[] for _ in range(300_000)]
        young = {id(each) for each in gc.get_objects(generation=0)}
    later = {id(each) for each in gc.get_objects(generation=0)}

    assert (True, False) == (id(value) in young, id(value) in later)
    assert gc.isenabled()


def test_garbage_of_a_small_recording_is_collected_soon() -> None:
    """
    Such as that of errors; else a program that reads many damaged files would keep it.
    """

    class Garbage:
        """An object that refers to itself."""

    with gc_disabled():
        garbage = Garbage()
        garbage.itself = garbage  # type: ignore[attr-defined]
        remains = weakref.ref(garbage)
        del garbage
    gc.collect(0)

    assert remains() is None


def test_frozen_objects_stay_frozen() -> None:
    """
    A program that froze its objects before it forks keeps them so.
    """
    gc.freeze()
    count = gc.get_freeze_count()
    with gc_disabled():
        pass

    assert count == gc.get_freeze_count() > 0


def test_a_disabled_collector_stays_disabled() -> None:
    """
    The caller decides whether it collects.
    """
    gc.disable()
    with gc_disabled():
        pass

    assert not gc.isenabled()


def test_reading_makes_no_garbage(tmp_path: Path) -> None:
    """
    Nothing of a step with tokens waits for the collector, which is disabled meanwhile.
    """
    file = tmp_path / "run.jsonl"
    with mttp.configure(f"file://{file}"), mttp.episode() as episode:
        for _ in range(50):
            with episode.step() as step:
                step.tokens(ids=np.arange(3), logprobs=np.zeros(3, np.float32))
    mttp.read(file)  # what is imported and cached at first is none of it
    gc.collect()
    gc.disable()
    recording = mttp.read(file)

    assert gc.collect() < 50 == len(recording.episodes[0].steps)

"""Ids come from the operating system's random source alone."""

from __future__ import annotations

import os
import random
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from mttp.model import ids


def test_ids_are_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Zero is OpenTelemetry's "no id".
    """
    monkeypatch.setattr(ids, "_pool", [])
    numbers = bytes(16) + struct.pack("QQ", 5, 3)
    monkeypatch.setattr(ids.os, "urandom", lambda count: numbers.ljust(count, b"\0")[:count])

    assert (5 << 64 | 3, 1) == (ids.trace_id(), next(ids.span_ids()))


def test_a_seed_changes_nothing() -> None:
    """
    Workers that are seeded alike have ids of their own.
    """
    made = []
    for _ in range(2):
        random.seed(1)
        made += [ids.trace_id(), ids.span_id(), ids.run_id()]

    assert 6 == len(set(made))


def test_threads_never_share_an_id() -> None:
    """
    However many ask at once.
    """
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda _: [ids.span_id() for _ in range(2000)], range(8))

    assert 16_000 == len({number for some in made for number in some})


def test_ids_use_all_their_bits() -> None:
    """
    Samplers and load balancers go by the low 56 bits of a trace id.
    """
    traces = [ids.trace_id() for _ in range(2000)]

    assert all(any(number >> bit & 1 for number in traces) for bit in range(128))
    assert max(traces) < 2**128


def test_span_ids_fit_into_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Wherever a process begins to count.
    """
    monkeypatch.setattr(ids.os, "urandom", lambda count: b"\xff" * count)

    assert 2**62 == next(ids.span_ids())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_asks_anew() -> None:
    """
    What comes next, or was fetched ahead, is the parent's.
    """
    ids.trace_id()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that others have started
        child = os.fork()
    if not child:
        os.write(write, f"{ids.span_id()} {ids.trace_id()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs, ours = os.read(read, 100).split(), (ids.span_id(), ids.trace_id())
    os.close(read)
    os.close(write)

    assert abs(int(theirs[0]) - ours[0]) > 1000
    assert int(theirs[1]) != ours[1]

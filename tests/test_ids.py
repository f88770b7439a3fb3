"""Ids are the operating system's randomness, and nobody else's."""

from __future__ import annotations

import os
import random
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from mttp import ids


def test_ids_are_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Zero is OpenTelemetry's "no id".
    """
    numbers = [0] * 256
    numbers[3:6] = [7, 5, 3]
    monkeypatch.setattr(ids, "_pool", [])
    monkeypatch.setattr(ids.os, "urandom", lambda _: struct.pack("256Q", *numbers))

    assert (7, 3 << 64 | 5) == (ids.span_id(), ids.trace_id())


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
    spans = [ids.span_id() for _ in range(2000)]

    assert all(any(number >> bit & 1 for number in traces) for bit in range(128))
    assert all(any(number >> bit & 1 for number in spans) for bit in range(64))
    assert max(traces) < 2**128
    assert max(spans) < 2**64


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_asks_anew() -> None:
    """
    Randomness that was fetched ahead is the parent's.
    """
    ids.span_id()
    assert ids._pool
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that others have started
        child = os.fork()
    if not child:
        os.write(write, str(len(ids._pool)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    left = os.read(read, 100)
    os.close(read)
    os.close(write)

    assert b"0" == left

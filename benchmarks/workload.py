"""
What is recorded: steps of a reward, token ids and log probabilities, the same for everybody.

The seed is 0; ids are uniform, log probabilities are float32 values; nothing repeats within `POOL`
episodes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from questions import Measure
from usage import cpu_seconds, peak_mb

__all__ = [
    "POOL",
    "STEPS",
    "TOKENS",
    "VOCABULARY",
    "Episodes",
    "Recorder",
    "Steps",
    "episodes",
    "recorded",
    "told",
]

POOL, STEPS, TOKENS, VOCABULARY = 64, 8, 256, 150_000

Steps: TypeAlias = Sequence[tuple[float, Any, Any]]
"""Of each step the reward, the token ids, and the log probabilities."""
Episodes: TypeAlias = Sequence[Steps]


class Recorder(NamedTuple):
    """A way to record episodes."""

    record: Callable[[Episodes], None]
    """What the training loop calls; several threads may."""
    flush: Callable[[], object]
    """Returns when everything has arrived where it should."""
    kept: Callable[[], Steps]
    """What arrived so far, in order; asked once, early on."""
    apart: Sequence[int] = ()
    """Processes that don't count, such as a receiver."""


def episodes(count: int, *, steps: int = STEPS, tokens: int = TOKENS, lists: bool = False) -> list[Steps]:
    """So many episodes; no more than `POOL` episodes' worth of steps are different ones."""
    random = np.random.default_rng(0)
    distinct = [_step(random, tokens, lists=lists) for _ in range(min(count * steps, POOL * STEPS))]
    endless = cycle(distinct)
    return [list(islice(endless, steps)) for _ in range(count)]


def _step(random: np.random.Generator, tokens: int, *, lists: bool) -> tuple[float, Any, Any]:
    ids = random.integers(0, VOCABULARY, tokens)
    logprobs = random.normal(-1, 1, tokens).astype(np.float32)
    reward = float(random.normal())
    return (reward, ids.tolist(), logprobs.tolist()) if lists else (reward, ids, logprobs)


def told(steps: Iterable[tuple[Any, Any, Any]]) -> bytes:
    """What steps say, however their arrays are kept."""
    return b"".join(
        np.float64(reward).tobytes()
        + np.asarray(ids, np.int64).tobytes()
        + np.asarray(logprobs, np.float64).tobytes()
        for reward, ids, logprobs in steps
    )


def recorded(
    make: Callable[[], Recorder],
    *,
    lists: bool = False,
    block: int = 256,
    steps: int = STEPS,
    tokens: int = TOKENS,
    threads: int = 1,
    warm_up: float = 0.1,
    whole: bool = False,
    saying: Callable[[Iterable[tuple[Any, Any, Any]]], bytes] = told,
) -> Measure:
    """
    A measure of recording blocks of so many episodes, each block flushed before the next one.

    Figures are per step, in µs: `caller_us` is CPU time of the threads that record, `wall_us` the time that
    recording takes them, `total_us` CPU time of all threads and children with the flush included.
    Two episodes are recorded ahead, and must arrive; then it records for `warm_up` seconds,
    or as long as four windows: an eighth of a block each time, or `whole` ones, so that all the memory is
    there that a block needs.
    """

    def measure(seconds: float) -> tuple[bytes, dict[str, float]]:
        recorder = make()
        recorder.record(episodes(2, lists=lists))
        recorder.flush()
        arrived = recorder.kept()
        assert len(arrived) == 2 * STEPS, f"{len(arrived)} steps arrived, not {2 * STEPS}"
        given = episodes(block, steps=steps, tokens=tokens, lists=lists)
        ahead = given if whole else given[: max(block // 8, 1)]
        _warm_up(recorder, ahead, min(warm_up, 4 * seconds), threads)
        caller = wall = total = 0.0
        blocks, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds or not blocks:
            total -= cpu_seconds(recorder.apart)
            used, took = _by_threads(recorder.record, given, threads)
            recorder.flush()
            total += cpu_seconds(recorder.apart)
            caller, wall, blocks = caller + used, wall + took, blocks + 1
        each = 1e6 / blocks / block / steps
        figures = {"caller_us": caller * each, "wall_us": wall * each, "total_us": total * each}
        return saying(arrived), {**figures, "peak_mb": peak_mb(recorder.apart)}

    return measure


def _warm_up(recorder: Recorder, given: Episodes, seconds: float, threads: int) -> None:
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        _by_threads(recorder.record, given, threads)
        recorder.flush()


def _by_threads(record: Callable[[Episodes], None], given: Episodes, threads: int) -> tuple[float, float]:
    """CPU seconds of the threads that record, and how long it took them."""
    used: list[float] = []

    def share(part: Episodes) -> None:
        before = time.thread_time()
        record(part)
        used.append(time.thread_time() - before)

    start = time.perf_counter()
    if threads == 1:
        share(given)
    else:
        running = [
            threading.Thread(target=share, args=(given[number::threads],)) for number in range(threads)
        ]
        for one in running:
            one.start()
        for one in running:
            one.join()
    return sum(used), time.perf_counter() - start

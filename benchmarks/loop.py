"""
How much slower a numpy loop gets that records 2,000 steps of chat episodes a second.

The loop multiplies matrices of 32 by 32 numbers for 0.7 ms an iteration; each of these calls lets go of the
interpreter's lock, so that whatever else works in the process competes for it. After each iteration the loop
records the steps that are due, 1.4 on average and 7 at most, with numpy arrays. Windows in which it records
and windows in which it does not follow each other, with a flush after each of the former; the first second
of recording does not count. `slower_pct` compares each window of recording with the bare ones beside it, and
is the median of these. `nothing recorded` goes through the same episodes and records nothing: how far it is
from 0 is what the machine does by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from statistics import fmean, median
from typing import Any

from cases import Case, Figures, Measure
from chat import POOL, Chat, chats
from realistic import JSON_FILE

SECONDS, QUICK_SECONDS, ROUNDS = 6.0, 0.2, 5
ITERATION, RATE, MOST, WINDOWS = 0.7e-3, 2_000, 7, 8


def slowed(name: str) -> Measure:
    """Return a measure of the loop with that recorder, or without one."""

    def measure(seconds: float) -> Figures:
        import recorders

        recorder = getattr(recorders, name)() if name else recorders.Recorder(_nothing, _pass, _pass)
        steps, work = _Endless(recorder.play), _work()
        length = seconds / WINDOWS
        _window(work, min(1.0, seconds), steps.step)
        recorder.flush()
        bare, loaded = [_window(work, length, None)], []
        for _ in range(WINDOWS):
            loaded.append(_window(work, length, steps.step))
            recorder.flush()
            bare.append(_window(work, length, None))
        steps.finish()
        recorder.close()
        each = [
            100 * (fmean(times) / fmean([fmean(before), fmean(after)]) - 1)
            for before, (times, _), after in zip(
                (times for times, _ in bare), loaded, (times for times, _ in bare[1:]), strict=False
            )
        ]
        return {
            "slower_pct": median(each),
            "stall_ms": 1e3 * max(max(times) for times, _ in loaded),
            "steps_per_s": sum(number for _, number in loaded) / sum(sum(times) for times, _ in loaded),
        }

    return measure


def _window(
    work: Callable[[], object], seconds: float, next_step: Callable[[], object] | None
) -> tuple[list[float], int]:
    """Return the duration of each iteration, and the number of recorded steps."""
    times, steps, clock = [], 0, time.perf_counter
    began = start = clock()
    while start < began + seconds:
        work()
        if next_step is not None:
            for _ in range(min(round((clock() - began) * RATE) - steps, MOST)):
                next_step()
                steps += 1
        now = clock()
        times.append(now - start)
        start = now
    return times, steps


def _work() -> Callable[[], object]:
    """Matrix multiplications that take 0.7 ms together."""
    import numpy as np

    random = np.random.default_rng(0)
    weights, inputs = random.normal(size=(32, 32)) / 6, random.normal(size=(32, 32))

    def multiply(times: int) -> Any:
        state = inputs
        for _ in range(times):
            state = np.tanh(state @ weights)
        return state

    def took(times: int) -> float:
        start = time.perf_counter()
        multiply(times)
        return time.perf_counter() - start

    took(200)
    times = round(ITERATION / median(took(20) / 20 for _ in range(200)))
    return lambda: multiply(times)


class _Endless:
    """Records steps, one episode after the other."""

    def __init__(self, play: Callable[[Chat], Iterator[None]]) -> None:
        self._play, self._given, self._numbers = play, chats(lists=False), count()
        self._current: Iterator[None] = iter(())

    def step(self) -> None:
        """Record the next step."""
        if next(self._current, self) is self:
            number = next(self._numbers)
            self._current = self._play(self._given[number % POOL]._replace(number=number))
            next(self._current)

    def finish(self) -> None:
        """Record the rest of the episode."""
        for _ in self._current:
            pass


def _nothing(chat: Chat) -> Iterator[None]:
    for _ in chat.steps:
        yield


def _pass() -> None:
    pass


CASES = {
    "nothing recorded": Case(slowed("")),
    "mttp": Case(slowed("own")),
    "SDK, JSON file": Case(slowed("sdk_file"), JSON_FILE, rounds=1),
}

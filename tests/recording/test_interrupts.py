"""A time limit by SIGALRM passes each call of mttp, and what follows is recorded."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import mttp

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs signals")


class OutOfTimeError(Exception):
    """Raised by the program's signal handler."""


@contextmanager
def alarm() -> Iterator[None]:
    """Have SIGALRM raise, and expect that it does."""

    def ring(number: int, frame: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(OutOfTimeError):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Slow:
    """An object that takes long to copy; the alarm rings meanwhile."""

    def __iter__(self) -> Any:
        return self

    def __array__(self, *_: Any, **__: Any) -> Any:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while True:  # until the alarm rings
            sum(range(100))


def observe() -> None:
    """Record a long observation."""
    with mttp.episode(env="slow") as episode, episode.step() as step:
        step.observation(Slow())


def describe() -> None:
    """Record a long argument of an episode."""
    mttp.episode(env="slow", metadata={"a": Slow()})


def finished() -> None:
    """Record a finished episode with a long value."""
    mttp.current_session().record(mttp.Episode(env="slow", steps=(mttp.Step(index=0, observation=Slow()),)))


def in_async_code() -> None:
    """Record a long observation in a coroutine."""

    async def play() -> None:
        async with mttp.episode(env="slow") as episode, episode.step() as step:
            await asyncio.sleep(0)
            step.observation(Slow())

    asyncio.run(play())


def score() -> None:
    """Score a sample by a function that takes long."""

    def grader(completion: Any) -> float:
        Slow().__array__()
        return 1.0

    spec = mttp.RewardSpec(name="slow", version="1.0.0", components=[mttp.rewards.rubric(grader)])
    with mttp.episode(env="slow"):
        spec.score(completion="a")


def evaluate() -> None:
    """Grade the tasks of an evaluation by a loop that takes long."""
    with mttp.evaluate("sums", tasks=["a", "b"], progress=False) as run:
        for task in run:
            Slow().__array__()
            run.result(task, 1.0)


def evaluate_in_threads() -> None:
    """Grade a task in a thread, for which the main thread waits."""

    def grade(task: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        time.sleep(1)

    with mttp.evaluate("sums", tasks=["a"], progress=False) as run:
        run.map(grade)


def leave() -> None:
    """Leave a step whose call has a result that takes long."""
    with mttp.episode(env="slow") as episode, episode.step() as step:
        step.tool_call("look", arguments={"a": 1})
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while True:
            step.metric("speed", 1.0)


@pytest.mark.parametrize(
    "call", [score, leave, observe, describe, finished, in_async_code, evaluate, evaluate_in_threads]
)
def test_an_alarm_passes_a_call(session: mttp.Session, call: Callable[[], None]) -> None:
    """The program gets its exception, and the next episode is complete."""
    with alarm():
        call()
    with mttp.episode(env="next") as episode, episode.step() as step:
        step.observation("look")

    last = list(mttp.read(session).episodes)[-1]
    assert (last.env, last.status, last.complete, len(last.steps)) == ("next", "completed", True, 1)
    assert "internal_error" not in session.stats.faults


def test_an_alarm_passes_the_end_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alarm while a session closes reaches the program, and the next session records."""
    with alarm():  # noqa: SIM117 - the session ends within
        with mttp.configure("memory://", provenance=False) as session:
            with mttp.episode(env="slow") as episode:
                episode.step().end()
            monkeypatch.setattr(session, "_log_losses", lambda: Slow().__array__())
    with mttp.configure("memory://", provenance=False) as session, mttp.episode(env="next") as episode:
        episode.step().end()

    (last,) = mttp.read(session).episodes
    assert (last.env, last.status) == ("next", "completed")

"""Tasks done several at once, in threads or in an event loop: each in its time, and none stops the others."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Token
from itertools import islice
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Protocol

from opentelemetry.context import Context
from typing_extensions import Self

from mttp.codec.plain import Faults
from mttp.recording.handle import attach, detach
from mttp.recording.open_episode import OpenEpisode
from mttp.rewards.evaluating.outcome import found, said
from mttp.rewards.evaluating.tasks import SAMPLE, Task
from mttp.semconv.values import EpisodeOutcome
from mttp.semconv.values import EvalOutcome as Outcome

__all__ = ["Attempted", "in_tasks", "in_threads"]


class Attempted(Protocol):
    """The evaluation whose tasks are done."""

    def _around(self) -> Context:
        """The context in which the tasks are done."""

    def _open_episode(self, task: Task) -> OpenEpisode | None:
        """An episode for the task; None where nothing records."""

    def _keep(
        self,
        task: str,
        what: Mapping[str, Any],
        faults: Faults,
        *,
        sample: int | None,
        duration: object,
        episode: object,
    ) -> object:
        """Enter and record what became of a task."""


class Attempt:
    """One task's turn, in an episode of its own; of whoever says what became of it the first counts."""

    def __init__(self, evaluation: Attempted, task: Task, *, episodes: bool, timeout: float | None) -> None:
        self.task = task
        self.began = time.perf_counter()
        self.deadline = None if timeout is None else self.began + timeout
        self._evaluation = evaluation
        self._episode = self._opened() if episodes else None
        self._timeout = timeout
        self._is_open = True
        self._lock = threading.Lock()
        self._token: Token[Context] | None = None

    def _opened(self) -> OpenEpisode | None:
        """Its episode, which links to the evaluation."""
        token = attach(self._evaluation._around())
        try:
            return self._evaluation._open_episode(self.task)
        finally:
            detach(token)

    def __enter__(self) -> Self:
        SAMPLE.set(self.task.sample)
        self._token = attach(self._evaluation._around())
        if self._episode is not None:
            self._episode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """An exception is the task's error and goes no further, unless it ends the program."""
        if error is not None and not isinstance(error, KeyboardInterrupt):
            self._settle({"error": error}, [])
        if self._episode is not None:
            self._episode.__exit__(kind, error, trace)
        if self._token is not None:
            detach(self._token)
        return not isinstance(error, (KeyboardInterrupt, SystemExit))

    def take(self, value: object) -> None:
        """Take what the function returned."""
        faults: Faults = []
        self._settle(said(value, faults), faults)

    def time_out(self) -> None:
        """The time is over."""
        told = {"outcome": Outcome.TIMED_OUT, "error": f"it took longer than {self._timeout:g} s"}
        if self._settle(told, []):
            self.give_up(stop_reason=Outcome.TIMED_OUT, truncated=True)

    def give_up(self, **how: Any) -> None:
        """Nobody waits for it any more: what it still says is not heard."""
        with self._lock:
            self._is_open = False
        if self._episode is not None and not self._episode.ended:
            self._episode.end(status="aborted", **how)

    def _settle(self, told: dict[str, Any], faults: Faults) -> bool:
        """Have the evaluation keep what became of the task; whether nobody had said so before."""
        duration = told.pop("duration", time.perf_counter() - self.began)
        episode = told.pop("episode", None) or self._episode
        what = found(faults, **told)
        with self._lock:
            if not self._is_open:
                return False
            self._is_open = False
        self._evaluation._keep(
            self.task.id, what, faults, sample=self.task.sample, duration=duration, episode=episode
        )
        passed = what.get("passed")
        if passed is not None and self._episode is not None and not self._episode.ended:
            self._episode.end(outcome=EpisodeOutcome.SUCCESS if passed else EpisodeOutcome.FAILURE)
        return True


def in_threads(
    evaluation: Attempted,
    tasks: Sequence[Task],
    function: Callable[[Any], object],
    *,
    episodes: bool,
    concurrency: int,
    timeout: float | None,
    advance: Callable[[], None],
) -> None:
    """
    Do the tasks, each in a thread of its own.

    A thread can't be stopped: one whose time is over is left alone, and keeps no program from ending.
    """
    over: SimpleQueue[Attempt] = SimpleQueue()
    waiting = iter(tasks)
    going: dict[int, Attempt] = {}
    try:
        while True:
            for task in islice(waiting, concurrency - len(going)):
                attempt = Attempt(evaluation, task, episodes=episodes, timeout=timeout)
                going[id(attempt)] = attempt
                work = contextvars.copy_context().run
                threading.Thread(target=work, args=(_work, attempt, function, over), daemon=True).start()
            if not going:
                return
            for attempt in _finished(over, going):
                if going.pop(id(attempt), None) is not None:
                    advance()
    finally:
        for attempt in going.values():
            attempt.give_up()


def _work(attempt: Attempt, function: Callable[[Any], object], over: SimpleQueue[Attempt]) -> None:
    try:
        with attempt:
            attempt.take(function(attempt.task.given))
    finally:
        over.put(attempt)


def _finished(over: SimpleQueue[Attempt], going: dict[int, Attempt]) -> Iterator[Attempt]:
    """The next that is done, or those whose time is over by then."""
    deadlines = [attempt.deadline for attempt in going.values() if attempt.deadline is not None]
    left = max(min(deadlines) - time.perf_counter(), 0.0) if deadlines else None
    try:
        yield over.get(timeout=left)
    except Empty:
        now = time.perf_counter()
        for attempt in list(going.values()):
            if attempt.deadline is not None and attempt.deadline <= now:
                attempt.time_out()
                yield attempt


async def in_tasks(
    evaluation: Attempted,
    tasks: Sequence[Task],
    function: Callable[[Any], object],
    *,
    episodes: bool,
    concurrency: int,
    timeout: float | None,
    advance: Callable[[], None],
) -> None:
    """Do the tasks in this event loop; one whose time is over is cancelled, and not waited for."""
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:
            attempt = Attempt(evaluation, task, episodes=episodes, timeout=timeout)
            await _limited(attempt, asyncio.ensure_future(_play(attempt, function)), timeout)
            advance()

    workers = [asyncio.ensure_future(work()) for _ in range(min(concurrency, len(tasks)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()


async def _limited(attempt: Attempt, turn: asyncio.Future[None], timeout: float | None) -> None:
    try:
        done, _ = await asyncio.wait({turn}, timeout=timeout)
        if done:
            turn.result()
        else:
            attempt.time_out()
    finally:
        attempt.give_up()
        turn.cancel()


async def _play(attempt: Attempt, function: Callable[[Any], object]) -> None:
    with attempt:
        value = function(attempt.task.given)
        attempt.take(await value if inspect.isawaitable(value) else value)

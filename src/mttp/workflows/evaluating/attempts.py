"""Concurrent execution of tasks in threads or an event loop, each with its time limit."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import Token
from itertools import islice
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Protocol

from opentelemetry.context import Context
from typing_extensions import Self

from mttp.codec.plain import Faults
from mttp.model import clock
from mttp.model.evaluations import TaskResult
from mttp.recording.handle import attach, detach
from mttp.recording.open_episode import OpenEpisode
from mttp.semconv.values import EpisodeOutcome
from mttp.semconv.values import EvalOutcome as Outcome
from mttp.workflows.evaluating.outcome import arguments_of
from mttp.workflows.evaluating.tasks import SAMPLE, Task

__all__ = ["Attempted", "in_tasks", "in_threads"]


class Attempted(Protocol):
    """The evaluation that tasks belong to."""

    def _around(self) -> Context:
        """Return the OpenTelemetry context to run tasks in."""

    def _open_episode(self, task: Task) -> OpenEpisode | None:
        """Open an episode for the task; None without recording."""

    def _keep(
        self, task: str, arguments: dict[str, Any], faults: Faults, *, sample: int | None
    ) -> TaskResult | None:
        """Store and record the result of a task from the arguments of `result`."""


class Attempt:
    """One execution of a task in its own episode; only its first result counts."""

    def __init__(self, evaluation: Attempted, task: Task, *, episodes: bool, timeout: float | None) -> None:
        self.task = task
        self.began = clock.seconds()
        self.deadline = None if timeout is None else self.began + timeout
        self._evaluation = evaluation
        self._episode = self._opened() if episodes else None
        self._timeout = timeout
        self._is_open = True
        self._lock = threading.Lock()
        self._token: Token[Context] | None = None

    def _opened(self) -> OpenEpisode | None:
        """Open the episode, which links to the evaluation."""
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
        """Record an exception as the task's error; only those that end the program propagate."""
        if error is not None and not isinstance(error, KeyboardInterrupt):
            self._settle({"error": error}, [])
        if self._episode is not None:
            self._episode.__exit__(kind, error, trace)
        if self._token is not None:
            detach(self._token)
        return not isinstance(error, (KeyboardInterrupt, SystemExit))

    def take(self, value: object) -> None:
        """Record the return value of the function as the result."""
        faults: Faults = []
        self._settle(arguments_of(value, faults), faults)

    def time_out(self) -> None:
        """Record that the time limit is exceeded, and abandon the attempt."""
        arguments = {"outcome": Outcome.TIMED_OUT, "error": f"exceeded the time limit of {self._timeout:g} s"}
        if self._settle(arguments, []):
            self.abandon(stop_reason=Outcome.TIMED_OUT, truncated=True)

    def abandon(self, **how: Any) -> None:
        """Ignore all later results, and end the episode as aborted."""
        with self._lock:
            self._is_open = False
        if self._episode is not None and not self._episode.ended:
            self._episode.end(status="aborted", **how)

    def _settle(self, arguments: dict[str, Any], faults: Faults) -> bool:
        """Store the result unless there is one already; return whether it was stored."""
        facts = {"duration": clock.seconds() - self.began, "episode": self._episode, **arguments}
        with self._lock:
            if not self._is_open:
                return False
            self._is_open = False
        result = self._evaluation._keep(self.task.id, facts, faults, sample=self.task.sample)
        passed = None if result is None else result.passed
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
    Run each task in its own thread.

    A thread can't be stopped: one that exceeds its time limit is abandoned, and as a daemon thread does not
    keep the program from ending.
    """
    finished: SimpleQueue[Attempt] = SimpleQueue()
    waiting = iter(tasks)
    running: dict[int, Attempt] = {}
    try:
        while True:
            for task in islice(waiting, concurrency - len(running)):
                attempt = Attempt(evaluation, task, episodes=episodes, timeout=timeout)
                running[id(attempt)] = attempt
                work = contextvars.copy_context().run
                threading.Thread(target=work, args=(_work, attempt, function, finished), daemon=True).start()
            if not running:
                return
            for attempt in _next_finished(finished, running):
                if running.pop(id(attempt), None) is not None:
                    advance()
    finally:
        for attempt in running.values():
            attempt.abandon()


def _work(attempt: Attempt, function: Callable[[Any], object], finished: SimpleQueue[Attempt]) -> None:
    try:
        with attempt:
            attempt.take(function(attempt.task.given))
    finally:
        finished.put(attempt)


def _next_finished(finished: SimpleQueue[Attempt], running: dict[int, Attempt]) -> Iterator[Attempt]:
    """Wait for the next finished attempt, or for the next deadline and yield the attempts it ends."""
    deadlines = [attempt.deadline for attempt in running.values() if attempt.deadline is not None]
    left = max(min(deadlines) - clock.seconds(), 0.0) if deadlines else None
    try:
        yield finished.get(timeout=left)
    except Empty:
        now = clock.seconds()
        for attempt in list(running.values()):
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
    """Run the tasks in this event loop; one that exceeds its time limit is cancelled and not awaited."""
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:
            attempt = Attempt(evaluation, task, episodes=episodes, timeout=timeout)
            await _limited(attempt, asyncio.ensure_future(_run(attempt, function)), timeout)
            advance()

    workers = [asyncio.ensure_future(work()) for _ in range(min(concurrency, len(tasks)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()


async def _limited(attempt: Attempt, turn: asyncio.Future[None], timeout: float | None) -> None:
    try:
        finished, _ = await asyncio.wait({turn}, timeout=timeout)
        if finished:
            turn.result()
        else:
            attempt.time_out()
    finally:
        attempt.abandon()
        turn.cancel()


async def _run(attempt: Attempt, function: Callable[[Any], object]) -> None:
    with attempt:
        value = function(attempt.task.given)
        attempt.take(await value if inspect.isawaitable(value) else value)

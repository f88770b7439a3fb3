"""Worker processes for components with `isolation: process`."""

from __future__ import annotations

import os
import pickle
import weakref
from collections.abc import Sequence
from math import inf
from typing import Any

from mttp.errors import SpecError
from mttp.model import clock
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.processes import (
    FAILED,
    ProcessLostError,
    SilentProcessError,
    WatchedProcess,
    can_start_children,
)
from mttp.rewards.component_results import ComponentResult, failed
from mttp.rewards.plan import ScoringPlan

START_SECONDS = 60.0
"""The time limit for a worker to load the spec."""
LOAD, CALL = 0, 1
"""The kinds of requests to a worker."""
STOPPED_SECONDS = 5.0
"""The interval at which a worker is checked for being stopped by a signal, which ends it."""


class Workers:
    """
    The worker processes of one spec, one for each concurrent call.

    A worker loads the spec by its path and is reused; an ended worker is replaced at the next call.
    Workers end with this process, however it ends.
    """

    def __init__(self, plan: ScoringPlan) -> None:
        """Start no worker yet; raises SpecError when the spec has no file or workers can't be started."""
        if plan.location is None:
            raise SpecError(
                f"spec {plan.identity.name}: isolation: process needs a spec file for its workers to load;"
                " write the spec to a file and load it from there"
            )
        if not can_start_children():
            raise SpecError(
                f"spec {plan.identity.name}: isolation: process needs a POSIX system and a Python executable"
                " to start workers with; remove `isolation`"
            )
        self._identity = (plan.location, plan.trust, plan.identity.sha256, plan.identity.code_sha256)
        self._idle: list[_Worker] = []
        self._owner = os.getpid()
        weakref.finalize(self, _end, self._idle, self._owner)

    @classmethod
    def of(cls, plan: ScoringPlan) -> Workers:
        """Return the workers of a plan, which all its components share."""
        workers: Workers = plan.prepared.setdefault("workers", cls(plan))
        return workers

    def ask(self, name: str, samples: Sequence[Any], timeout: float | None) -> list[ComponentResult]:
        """Call a component in a worker for these samples, within `timeout` seconds."""
        try:
            request = pickle.dumps((name, list(samples), timeout))
        except Exception as error:
            raise_interrupt(error)
            reason = f"the sample can't be pickled for a worker: {error}"
            return [failed(reason, type(error).__name__)] * len(samples)
        try:
            worker = self._take()
            answers = [ComponentResult(*answer) for answer in worker.ask(request, timeout)]
        except _WorkerLostError as lost:
            return [failed(str(lost), lost.error_type)] * len(samples)
        except OSError as error:
            return [failed(f"can't start a worker: {error}", type(error).__name__)] * len(samples)
        except TypeError as error:  # a component wrote into the worker's pipe
            worker.end()
            return [failed(f"can't read the worker's reply: {error}", "TypeError")] * len(samples)
        self._idle.append(worker)
        return answers

    def _take(self) -> _Worker:
        if self._owner != os.getpid():  # after a fork, these workers are the parent's
            self._idle, self._owner = [], os.getpid()
            weakref.finalize(self, _end, self._idle, self._owner)
        try:
            return self._idle.pop()
        except IndexError:
            return _Worker(self._identity)


def _end(workers: list[_Worker], owner: int) -> None:
    """End idle workers, unless they are those of a forked process's parent."""
    for worker in workers if owner == os.getpid() else ():
        worker.end()


class _WorkerLostError(Exception):
    """A worker has ended."""

    def __init__(self, message: str, error_type: str = "ChildProcessError") -> None:
        super().__init__(message)
        self.error_type = error_type


class _Worker:
    """One worker process, which handles one call at a time."""

    def __init__(self, identity: tuple[object, ...]) -> None:
        """Start the process and load the spec in it; raises _WorkerLostError on failure."""
        self._process = WatchedProcess("mttp.rewards.worker")
        self._checked = 0.0
        problem = self.ask(pickle.dumps(identity), START_SECONDS, kind=LOAD)
        if problem is not None:
            self.end()
            raise _WorkerLostError(f"the worker could not load {identity[0]}: {problem}")

    def ask(self, request: bytes, timeout: float | None, *, kind: int = CALL) -> Any:
        """Send a request and return the reply; ends the worker and raises _WorkerLostError on failure."""
        self._checked = clock.seconds()
        seconds = inf if timeout is None else timeout
        try:
            status, reply = self._process.ask(request, seconds, kind=kind, looks=self._check_stopped)
        except SilentProcessError:
            self.end()
            raise _WorkerLostError(f"timed out after {seconds:g} s", "TimeoutError") from None
        except ProcessLostError as error:
            self.end()
            raise _WorkerLostError(str(error)) from None
        except ValueError as error:
            raise _WorkerLostError(f"can't send the sample to a worker: {error}", "ValueError") from None
        if status == FAILED:
            raise _WorkerLostError(f"the worker failed: {reply.decode(errors='replace')}")
        try:
            return pickle.loads(reply)
        except Exception as error:  # a component wrote into the worker's pipe
            self.end()
            raise_interrupt(error)
            raise _WorkerLostError(f"can't read the worker's reply: {error!r}") from None

    def _check_stopped(self) -> None:
        """Raise if the process was stopped by a signal, which no time limit would detect."""
        if clock.seconds() - self._checked >= STOPPED_SECONDS:
            self._checked = clock.seconds()
            if self._process.is_stopped:
                raise ProcessLostError("the worker was stopped by a signal")

    def end(self) -> None:
        """Kill the process."""
        self._process.close()

"""Workers: processes of their own in which components run that may be ended at their time limit."""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections.abc import Sequence
from math import inf
from typing import Any

from mttp.errors import SpecError
from mttp.otlp.processes import FAILED, Process, ProcessLostError, SilentProcessError, can_start
from mttp.rewards.component_results import ComponentResult, failed
from mttp.rewards.plan import ScoringPlan

__all__ = ["Workers"]

START_SECONDS = 60.0
"""How long a worker may take to load the spec."""
LOAD, CALL = 0, 1
"""What a worker is asked for."""
STOPPED_SECONDS = 5.0
"""The time between two looks at whether a worker was stopped, which ends it even without a time limit."""


class Workers:
    """
    The workers of one spec, as many as calls are made at once.

    A worker loads the spec by its path and is used again; one that was ended is replaced at the next call.
    It ends with this process, whichever way that ends.
    """

    def __init__(self, plan: ScoringPlan) -> None:
        """Start none yet; raises SpecError where there is no file that a worker could load."""
        if plan.location is None:
            raise SpecError(
                f"spec {plan.identity.name}: isolation: process needs a spec file, which a worker can load;"
                " write the spec to a file and load it from there"
            )
        if not can_start():
            raise SpecError(
                f"spec {plan.identity.name}: isolation: process needs a POSIX system, and a Python that can"
                " be started again; leave isolation out"
            )
        self._identity = (plan.location, plan.trust, plan.identity.sha256, plan.identity.code_sha256)
        self._idle: list[_Worker] = []
        self._owner = os.getpid()
        weakref.finalize(self, _end, self._idle, self._owner)

    @classmethod
    def of(cls, plan: ScoringPlan) -> Workers:
        """Those of a plan, which all its components share."""
        found: Workers = plan.prepared.setdefault("workers", cls(plan))
        return found

    def ask(self, name: str, samples: Sequence[Any], timeout: float | None) -> list[ComponentResult]:
        """What a component answers in a worker for these samples, in `timeout` seconds."""
        try:
            request = pickle.dumps((name, list(samples), timeout))
        except Exception as error:
            return [failed(f"the sample can't be sent to a worker: {error}", type(error).__name__)] * len(
                samples
            )
        try:
            worker = self._take()
            answers = [ComponentResult(*answer) for answer in worker.ask(request, timeout)]
        except _Lost as lost:
            return [failed(str(lost), lost.error_type)] * len(samples)
        except OSError as error:
            return [failed(f"no worker could be started: {error}", type(error).__name__)] * len(samples)
        except TypeError as error:  # whatever a component wrote in place of its answers
            worker.end()
            return [failed(f"the worker's answer can't be read: {error}", "TypeError")] * len(samples)
        self._idle.append(worker)
        return answers

    def _take(self) -> _Worker:
        if self._owner != os.getpid():  # after a fork: those are the parent's
            self._idle, self._owner = [], os.getpid()
            weakref.finalize(self, _end, self._idle, self._owner)
        try:
            return self._idle.pop()
        except IndexError:
            return _Worker(self._identity)


def _end(workers: list[_Worker], owner: int) -> None:
    """End what is idle, unless it is the parent's of this fork."""
    for worker in workers if owner == os.getpid() else ():
        worker.end()


class _Lost(Exception):  # noqa: N818 - said of a worker
    """A worker has ended; the message says why."""

    def __init__(self, message: str, error_type: str = "ChildProcessError") -> None:
        super().__init__(message)
        self.error_type = error_type


class _Worker:
    """One process, which answers one call at a time."""

    def __init__(self, identity: tuple[object, ...]) -> None:
        """Start it and have it load the spec; raises _Lost where it can't."""
        self._process = Process("mttp.rewards.worker", with_site=True)
        self._looked = 0.0
        problem = self.ask(pickle.dumps(identity), START_SECONDS, kind=LOAD)
        if problem is not None:
            self.end()
            raise _Lost(f"the worker could not load {identity[0]}: {problem}")

    def ask(self, request: bytes, timeout: float | None, *, kind: int = CALL) -> Any:
        """What it answers; raises _Lost where it died, was stopped, or took longer, and is ended then."""
        self._looked = time.monotonic()
        seconds = inf if timeout is None else timeout
        try:
            status, answer = self._process.ask(request, seconds, kind=kind, looks=self._look)
        except SilentProcessError:
            self.end()
            raise _Lost(f"timed out after {seconds:g} s", "TimeoutError") from None
        except ProcessLostError as error:
            code = self._process.exit_code(1.0)
            self.end()
            raise _Lost(_cause(code) if code is not None else str(error)) from None
        except ValueError as error:
            raise _Lost(f"the sample can't be sent to a worker: {error}", "ValueError") from None
        if status == FAILED:
            raise _Lost(f"the worker failed: {answer.decode(errors='replace')}")
        try:
            return pickle.loads(answer)
        except Exception as error:  # whatever a component wrote in its place
            self.end()
            raise _Lost(f"the worker's answer can't be read: {error!r}") from None

    def _look(self) -> None:
        """Look whether it was stopped, which ends it even without a time limit."""
        if time.monotonic() - self._looked >= STOPPED_SECONDS:
            self._looked = time.monotonic()
            if self._process.is_stopped():
                raise ProcessLostError("the worker was stopped by a signal")

    def end(self) -> None:
        """End it, whatever it is at."""
        self._process.close()


def _cause(code: int) -> str:
    """Why it has ended by itself."""
    return f"the worker ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"

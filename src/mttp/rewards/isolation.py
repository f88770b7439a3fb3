"""Workers: processes of their own in which components run that may be ended at their time limit."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import IO, Any

from mttp.errors import SpecError
from mttp.rewards.frames import read_frame, write_frame
from mttp.rewards.plan import Plan
from mttp.rewards.scores import Answer, failed

__all__ = ["Workers"]

START_SECONDS = 60.0
"""How long a worker may take to load the spec."""
STOPPED_SECONDS = 5.0
"""The time between two looks at whether a worker was stopped, which ends it even without a time limit."""
_RUN = "import sys; sys.path[:] = sys.argv[1:]; from mttp.rewards.worker import main; main()"


class Workers:
    """
    The workers of one spec, as many as calls are made at once.

    A worker loads the spec by its path and is used again; one that was ended is replaced at the next call.
    It ends with this process, whichever way that ends.
    """

    def __init__(self, plan: Plan) -> None:
        """Start none yet; raises SpecError where there is no file that a worker could load."""
        if plan.location is None:
            raise SpecError(
                f"spec {plan.identity.name}: isolation: process needs a spec file, which a worker can load;"
                " write the spec to a file and load it from there"
            )
        self._identity = (plan.location, plan.trust, plan.identity.sha256, plan.identity.code_sha256)
        self._idle: list[_Worker] = []
        self._owner = os.getpid()
        weakref.finalize(self, _end, self._idle, self._owner)

    @classmethod
    def of(cls, plan: Plan) -> Workers:
        """Those of a plan, which all its components share."""
        found: Workers = plan.prepared.setdefault("workers", cls(plan))
        return found

    def ask(self, name: str, samples: Sequence[Any], timeout: float | None) -> list[Answer]:
        """What a component answers in a worker for these samples, in `timeout` seconds."""
        try:
            request = pickle.dumps((name, list(samples), timeout))
        except Exception as error:
            return [failed(f"the sample can't be sent to a worker: {error}", type(error).__name__)] * len(
                samples
            )
        try:
            worker = self._take()
            answers = worker.ask(request, timeout)
        except _Lost as lost:
            return [failed(str(lost), lost.error_type)] * len(samples)
        except OSError as error:
            return [failed(f"no worker could be started: {error}", type(error).__name__)] * len(samples)
        self._idle.append(worker)
        return [Answer(*answer) for answer in answers]

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
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        problem = self.ask(pickle.dumps(identity), START_SECONDS)
        if problem is not None:
            self.end()
            raise _Lost(f"the worker could not load {identity[0]}: {problem}")

    def ask(self, request: bytes, timeout: float | None) -> Any:
        """What it answers; raises _Lost where it died, was stopped, or took longer, and is ended then."""
        done, lost = threading.Event(), list[_Lost]()
        watch = threading.Thread(target=self._watch, args=(timeout, done, lost), daemon=True)
        watch.start()
        try:
            write_frame(self._pipe(self._process.stdin), request)
            reply = read_frame(self._pipe(self._process.stdout))
        except OSError:
            reply = None
        finally:
            done.set()
        watch.join()
        if lost:
            self.end()
            raise lost[0]
        if reply is None:
            raise _Lost(self._cause())
        return pickle.loads(reply)

    def _watch(self, timeout: float | None, done: threading.Event, lost: list[_Lost]) -> None:
        """Kill it at its time limit, or once it was stopped: neither would be over by itself."""
        until = inf if timeout is None else time.monotonic() + timeout
        while not done.wait(max(min(until - time.monotonic(), STOPPED_SECONDS), 0.0)):
            if time.monotonic() >= until:
                lost.append(_Lost(f"timed out after {timeout:g} s", "TimeoutError"))
            elif self._is_stopped():
                lost.append(_Lost("the worker was stopped by a signal"))
            if lost:
                self._kill()
                return

    def _is_stopped(self) -> bool:
        """Whether a signal has stopped it; False where the system does not say."""
        with suppress(AttributeError, OSError):
            stopped = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, stopped) is not None
        return False

    def _kill(self) -> None:
        """With whatever it has started itself, where there are sessions."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (AttributeError, OSError):
            self._process.kill()

    def _cause(self) -> str:
        """Why it has ended by itself."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self.end()
        code = self._process.returncode
        return f"the worker ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"

    def end(self) -> None:
        """End it, whatever it is at."""
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not sent will not be
                self._pipe(pipe).close()
        self._process.wait()

    def _pipe(self, pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe

"""
Worker processes, which encode, decode, and call components that may be killed.

Each is a new Python that runs one of our modules. It is not a fork, and not `multiprocessing`, which would
run scripts without a main guard again. Requests and answers are sent over a socket pair, with one system
call each if possible, since every call may wait for the GIL. A worker ends when its socket is closed, so
that it can't outlive its parent.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

__all__ = [
    "DONE",
    "FAILED",
    "Process",
    "ProcessLostError",
    "SilentProcessError",
    "can_start",
    "own_environment",
    "serve",
]

T = TypeVar("T")

DONE: Final = 0
FAILED: Final = 1
"""The status of an answer that is the text of an error."""

_HEAD = struct.Struct("<BQ")
MOST_BYTES = 2**31
"""Maximum bytes of a message."""
_AT_ONCE = 2**30
"""Maximum bytes of one system call."""
_TICK = 0.5
"""Maximum seconds between checks of the deadline while waiting for an answer."""
_SLACK = 1e-3
"""Seconds by which the system may wake a socket too early."""
_START_SECONDS = 5.0
"""Seconds within which the ready message must arrive after its first byte."""
_SILENT = "it did not answer for {:.1f} s"
_RUN = """\
import sys
sys.path[:] = sys.argv[2:]
from runpy import run_module
run_module(sys.argv[1], run_name="__main__")
"""
"""Runs a module like `python -m`, without the working directory on the path."""
_NOT_PASSED_ON = ("PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONSTARTUP")
_VARIABLES = {
    "OTEL_SDK_DISABLED": "true",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(64 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
}
"""
Variables of workers: numpy starts no threads, and glibc keeps freed memory for the next request.
"""


class ProcessLostError(Exception):
    """A process died, was killed, or does not answer; the message says why."""


class SilentProcessError(ProcessLostError):
    """A process did not answer in time."""


def can_start() -> bool:
    """Whether this platform can start another Python and pass sockets to it."""
    is_python = Path(sys.executable or "").name.startswith(("python", "pypy"))
    return os.name == "posix" and is_python and not getattr(sys, "frozen", False)


class Process:
    """Starts a worker process and sends requests to it; one thread may ask at a time."""

    def __init__(
        self, module: str, *, environment: Mapping[str, str] | None = None, with_site: bool = False
    ) -> None:
        """
        Start a module that calls `serve`; raises OSError, or RuntimeError at the interpreter's end.

        `environment` has its variables; the default is this process's.
        `with_site` imports the `site` module, which doubles the time to start, and passes its output to this
        process's standard error; otherwise the output is discarded.
        """
        self._socket, theirs = socket.socketpair()
        self._is_ready = False
        self._asked: float | None = None
        """Monotonic time of the unanswered request."""
        self._killed = ""
        """Why it was killed."""
        try:
            self._tick(_TICK)
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, *([] if with_site else ["-S"]), "-c", _RUN, module, *_path()],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=None if with_site else subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()

    def _tick(self, seconds: float) -> None:
        """Set the timeout of calls on the socket to a fraction of `seconds`."""
        tick = _TICK if seconds == inf else seconds / max(math.ceil(seconds / _TICK), 1)
        micros = max(int(tick * 1e6), 1000)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", 0, micros))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether it has started, without waiting; raises ProcessLostError if starting failed."""
        if not self._is_ready and self._answers():
            self._wait_until_ready(_START_SECONDS)
        return self._is_ready

    def _wait_until_ready(self, seconds: float) -> None:
        try:
            _received(self._socket, time.monotonic() + seconds)
        except (OSError, EOFError) as error:
            raise ProcessLostError(f"the process does not start: {error}") from error
        self._is_ready = True

    @property
    def is_working(self) -> bool:
        """Whether it has an unanswered request; callable from any thread."""
        try:
            return self._asked is not None and not self._answers()
        except (OSError, ValueError):  # closed by another thread
            return False

    def _answers(self) -> bool:
        asked = select.poll()  # `select` takes no descriptors from 1024 on
        asked.register(self._socket, select.POLLIN)
        return bool(asked.poll(0))

    def ask(
        self, request: bytes, seconds: float = inf, *, kind: int = 0, looks: Callable[[], None] | None = None
    ) -> tuple[int, bytes]:
        """
        Send a request and wait up to `seconds`; return DONE or FAILED, and the answer.

        `looks` is called several times per second while waiting, and may raise ProcessLostError.
        Raises ValueError for a request that is too long, and ProcessLostError, after which the caller must
        close the process.
        """
        if self._asked is not None:  # Ctrl-C may have interrupted the last call
            raise ProcessLostError("the wait for its last answer was interrupted")
        self._asked = time.monotonic()
        until = self._asked + seconds
        try:
            self._tick(seconds)
            if not self._is_ready:
                self._wait_until_ready(seconds)
            _send(self._socket, kind, request, until, looks)
            answer = _received(self._socket, until, looks)
        except TimeoutError as error:
            raise SilentProcessError(_SILENT.format(seconds)) from error
        except ValueError:
            self._asked = None
            raise
        except (OSError, EOFError, MemoryError) as error:
            raise ProcessLostError(self._killed or f"the process does not answer: {error}") from error
        self._asked = None
        return answer

    def hurry(self, seconds: float) -> None:
        """Kill it if a request is unanswered for `seconds`; the waiting thread gets an error at once."""
        asked = self._asked
        if asked is not None and time.monotonic() - asked >= seconds:
            self._killed = _SILENT.format(seconds)
            self._kill()

    def _kill(self) -> None:
        """Kill its process group, including its own children."""
        if self._process.returncode is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        with suppress(OSError):
            stopped = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, stopped) is not None
        return False

    def exit_code(self, seconds: float) -> int | None:
        """Wait up to `seconds`; return the exit code, negative for a signal, or None if it still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def close(self) -> None:
        """Kill the process, even if it is stopped."""
        self._socket.close()
        self._kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in a system call
            self._process.wait(1)

    def forget(self) -> None:
        """In a forked child: release the parent's process without ending it."""
        self._socket.close()
        self._process.returncode = 0  # only the parent can wait for it


def own_environment() -> dict[str, str]:
    """Return this process's variables without those that would make a worker record or do extra work."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    return {
        name: value for name, value in kept.items() if not name.startswith(("MTTP_", "OTEL_"))
    } | _VARIABLES


def _path() -> list[str]:
    """Return the module path of this process, with this package first."""
    listed: list[object] = [str(Path(__file__).parents[1]), *sys.path]
    texts = [path for path in listed if isinstance(path, str) and path]  # Python ignores other entries too
    return list(dict.fromkeys(texts))


def _send(
    end: socket.socket, kind: int, data: bytes, until: float = inf, looks: Callable[[], None] | None = None
) -> None:
    if len(data) > MOST_BYTES:
        raise ValueError(f"a message of {len(data):,} bytes is too long")
    pieces = [memoryview(_HEAD.pack(kind, len(data))), memoryview(data)]
    while pieces:  # joining them would copy the data
        pieces = _rest(pieces, _tried(partial(end.sendmsg, pieces), until, looks))


def _rest(pieces: list[memoryview], sent: int) -> list[memoryview]:
    rest = []
    for piece in pieces:
        if sent < len(piece):
            rest.append(piece[sent:])
        sent = max(sent - len(piece), 0)
    return rest


def _received(
    end: socket.socket, until: float = inf, looks: Callable[[], None] | None = None
) -> tuple[int, bytes]:
    kind, size = _HEAD.unpack(_exactly(end, _HEAD.size, until, looks))
    if size > MOST_BYTES:
        raise OSError(f"invalid message of {size:,} bytes")
    return kind, _exactly(end, size, until, looks)


def _exactly(end: socket.socket, size: int, until: float, looks: Callable[[], None] | None) -> bytes:
    found: list[bytes] = []
    while size:
        part = _tried(partial(end.recv, min(size, _AT_ONCE), socket.MSG_WAITALL), until, looks)
        if not part:
            raise EOFError("the other side is gone")
        found.append(part)
        size -= len(part)
    return found[0] if len(found) == 1 else b"".join(found)


def _tried(call: Callable[[], T], until: float, looks: Callable[[], None] | None) -> T:
    """Repeat a call on a socket until it returns; raises TimeoutError after `until`."""
    while True:
        try:
            return call()
        except BlockingIOError:
            if time.monotonic() >= until - _SLACK:
                raise TimeoutError("it took too long") from None
        if looks is not None:
            looks()


# In the worker.


def serve(answer: Callable[[int, bytes], bytes]) -> None:
    """
    Answer requests by `answer(kind, data)` until the parent process ends.

    Standard input is empty, and output goes to standard error.
    """
    end = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    requests: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
    threading.Thread(target=_receive, args=(end, requests), daemon=True).start()
    _send(end, DONE, b"")
    while True:
        try:
            status, found = DONE, answer(*requests.get())
        except Exception as error:
            status, found = FAILED, repr(error).encode("utf-8", "backslashreplace")
        with suppress(OSError):  # the peer is gone: the other thread ends the process
            _send(end, status, found)


def _receive(end: socket.socket, requests: SimpleQueue[tuple[int, bytes]]) -> None:
    """Receive requests, and end the process when the peer is gone."""
    with suppress(EOFError, OSError):
        while True:
            requests.put(_received(end))
    os._exit(0)

"""
Worker processes that encode, decode, and call isolated reward components.

Each is a new Python process that runs a module of mttp: neither a fork, nor `multiprocessing`, which would
run unguarded scripts again. It is no child, which a program that waits for its children would get; only a
`WatchedProcess` is one where there is no other way. Both sides talk over a pair of sockets, with one message
per request and reply, and one system call each way if possible, since each call waits for the interpreter's
lock.
A process ends when its socket closes, so it can't outlive its parent.
"""

from __future__ import annotations

import math
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

from mttp.model import clock
from mttp.otlp import orphans
from mttp.otlp.descriptors import Descriptor, above_standard
from mttp.otlp.orphans import Orphan, can_start_orphans

__all__ = [
    "DONE",
    "FAILED",
    "Process",
    "ProcessLostError",
    "SilentProcessError",
    "WatchedProcess",
    "can_start",
    "can_start_children",
    "own_environment",
    "serve",
]

T = TypeVar("T")

DONE: Final = 0
FAILED: Final = 1
"""The reply is an error message."""
_ENDED: Final = 2
"""The process has ended, with this exit code."""

_HEAD = struct.Struct("<BQ")
MOST_BYTES = 2**31
"""Maximum size of a message; a larger stated size is an error."""
_AT_ONCE = 2**30
"""Maximum number of bytes per call of the socket."""
_TICK = 0.5
"""Maximum seconds between two checks of the clock while waiting for a reply."""
_SLACK = 1e-3
"""Seconds by which the system may wake a waiting socket too early."""
_START_SECONDS = 5.0
"""Timeout in seconds of the message that a process is ready, after its first byte."""
_END_SECONDS = 1.0
"""Timeout in seconds of the end of a process that was killed."""
_PID_BYTES = 20
"""Size of the message with the process id."""
_SILENT = "it did not answer for {:.1f} s"
_RUN = f"""\
import sys
end, is_watched, module, sys.path[:] = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
if end:
    os.setsid()
    os.dup2(end, 0)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            try:
                os.close(number)
            except OSError:
                pass
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
if is_watched:
    if worker := os.fork():
        code = b"%d" % os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        try:
            os.write(0, bytes([{_ENDED}]) + len(code).to_bytes(8, "little") + code)
        finally:
            os._exit(0)
    os.setsid()
os.write(0, b"%{_PID_BYTES}d" % os.getpid())
from runpy import run_module
run_module(module, run_name="__main__")
"""
"""
Runs a module like `python -m`, without the working directory on the module path.

First it says its process id. An orphan has a session of its own, and no files of the program. A process that
is watched has a parent, which says how it has ended.
"""
_NOT_PASSED_ON = ("PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONSTARTUP")
_VARIABLES = {
    "OTEL_SDK_DISABLED": "true",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(64 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
}
"""
No threads of numpy's, and memory that is kept for the next request.

Else the C library gives it back each time, and has it anew, page by page.
"""


class ProcessLostError(Exception):
    """A process died, was killed or does not reply; the message has the reason."""


class SilentProcessError(ProcessLostError):
    """A process did not reply in time."""


def can_start_children() -> bool:
    """Whether the same Python can be started as a child process that inherits sockets."""
    is_python = Path(sys.executable or "").name.startswith(("python", "pypy"))
    return os.name == "posix" and is_python and not getattr(sys, "frozen", False)


def can_start() -> bool:
    """Whether the same Python can be started as a process that never becomes a child of this program."""
    return can_start_children() and can_start_orphans()


class Process:
    """Starts a worker process, sends requests and receives replies; one thread at a time."""

    _is_watched = False
    """
    Whether another process says how it has ended.

    Such a process imports the `site` module, and what it prints goes to this process's standard error.
    Others start in half the time, find only what is on this process's path, and what they print is lost.
    """

    def __init__(self, module: str, *, environment: Mapping[str, str] | None = None) -> None:
        """
        Start a module that calls `serve`; raises OSError, or RuntimeError at the interpreter's end.

        `environment` are its variables, by default this process's.
        """
        own_end, child_end = (above_standard(end.detach()) for end in socket.socketpair())
        self._socket = socket.socket(fileno=own_end)
        self._descriptor = Descriptor(own_end)
        self._orphan: Orphan | None = None
        self._is_ready = False
        self._asked: float | None = None
        """Time of the pending request on the monotonic clock."""
        self._killed = ""
        """Why the process was killed."""
        try:
            self._tick(_TICK)
            self._launch(module, child_end, environment)
        except BaseException:
            self._socket.close()
            raise
        finally:
            os.close(child_end)

    def _launch(self, module: str, end: int, environment: Mapping[str, str] | None) -> None:
        """Start the process with its end of the sockets."""
        variables = os.environ if environment is None else environment
        gone = [name for name in os.environ if name not in variables and name.isidentifier()]
        changed = {name: value for name, value in variables.items() if os.environ.get(name) != value}
        words = [*(f"{name}={shlex.quote(value)}" for name, value in changed.items())]
        words += map(shlex.quote, _command(module, end, is_watched=self._is_watched))
        unset = f"unset {' '.join(gone)}; " if gone else ""
        os.set_inheritable(end, True)
        errors = "" if self._is_watched else " 2>&1"
        orphans.start(f"{unset}{' '.join(words)} </dev/null >/dev/null{errors} &")

    def _tick(self, seconds: float) -> None:
        """Limit the next call on the socket to these seconds, or to a part of them."""
        tick = _TICK if seconds == inf else seconds / max(math.ceil(seconds / _TICK), 1)
        micros = max(int(tick * 1e6), 1000)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", 0, micros))

    @property
    def pid(self) -> int:
        """The process id, which it says when it has started; raises ProcessLostError."""
        self._identify(_START_SECONDS)
        assert self._orphan is not None
        return self._orphan.pid

    @property
    def is_ready(self) -> bool:
        """Whether the process has started, without waiting; raises ProcessLostError if it failed to start."""
        self._check_descriptor()
        if self._orphan is None and self._answers():
            self._identify(_START_SECONDS)
        if self._orphan is not None and not self._is_ready and self._answers():
            self._wait_until_ready(_START_SECONDS)
        return self._is_ready

    def _identify(self, seconds: float) -> None:
        """Wait for the process id."""
        if self._orphan is None:
            with _starting():
                self._orphan = Orphan(int(_exactly(self._socket, _PID_BYTES, clock.seconds() + seconds)))

    def _wait_until_ready(self, seconds: float) -> None:
        self._identify(seconds)
        with _starting():
            self._reply(clock.seconds() + seconds)
        self._is_ready = True

    def _reply(self, until: float, looks: Callable[[], None] | None = None) -> tuple[int, bytes]:
        """Wait for a message; raises ProcessLostError for the one that the process has ended."""
        kind, content = _received(self._socket, until, looks)
        if kind == _ENDED:
            code = content[:9].decode("ascii", "replace")
            how = f"signal {code[1:]}" if code.startswith("-") else f"exit code {code}"
            raise ProcessLostError(f"the worker ended with {how}")
        return kind, content

    def _check_descriptor(self, looks: Callable[[], None] | None = None) -> None:
        """Raise ProcessLostError if the socket's number is another file's by now."""
        if not self._descriptor.is_ours:
            raise ProcessLostError("the program has closed the descriptor of its socket")
        if looks is not None:
            looks()

    @property
    def is_working(self) -> bool:
        """Whether a request is pending; callable from any thread."""
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
        Send a request, and return DONE or FAILED with the answer, which may take so many seconds.

        Raises ValueError for a request that is too long, and ProcessLostError, after which the process must
        be closed. `looks` is called several times a second meanwhile, and may raise ProcessLostError too.
        """
        if self._asked is not None:  # Ctrl-C may interrupt any line
            raise ProcessLostError("the wait for its last answer was interrupted")
        self._asked = clock.seconds()
        until, looks = self._asked + seconds, partial(self._check_descriptor, looks)
        try:
            self._check_descriptor()
            self._tick(seconds)
            if not self._is_ready:
                self._wait_until_ready(seconds)
            with suppress(BrokenPipeError, ConnectionResetError):  # its last message says why
                _send(self._socket, kind, request, until, looks)
            answer = self._reply(until, looks)
        except TimeoutError as error:
            raise SilentProcessError(_SILENT.format(seconds)) from error
        except ValueError:
            self._asked = None
            raise
        except (OSError, EOFError, MemoryError) as error:
            raise ProcessLostError(self._killed or f"it does not answer: {error}") from error
        self._asked = None
        return answer

    def hurry(self, seconds: float) -> None:
        """Kill the process if its reply is that many seconds late; the waiting thread is woken at once."""
        asked = self._asked
        if asked is not None and clock.seconds() - asked >= seconds:
            self._killed = _SILENT.format(seconds)
            self._kill()

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped the process."""
        return self._orphan is not None and self._orphan.is_stopped

    def _kill(self) -> None:
        """Kill the process and its children."""
        if self._orphan is not None:
            self._orphan.kill_group()

    def close(self) -> None:
        """Kill the process, also if it is stopped by a signal."""
        if self._orphan is None:
            with suppress(ProcessLostError, OSError, ValueError):
                _ = self.is_ready
        self._kill()
        self._close_socket()
        if self._orphan is not None:
            self._orphan.wait(_END_SECONDS)

    def _close_socket(self) -> None:
        """Close the socket, which ends the process, unless its number is another file's by now."""
        if self._descriptor.is_ours:
            self._socket.close()
        else:
            self._socket.detach()

    def forget(self) -> None:
        """In a forked child, drop the process of the parent."""
        self._close_socket()


class WatchedProcess(Process):
    """
    A worker process whose end is reported: ProcessLostError has its exit code or signal.

    It is a child of this process where an orphan would come back to it as one, or can't be started.
    """

    _is_watched = True
    _child: subprocess.Popen[bytes] | None = None

    def _launch(self, module: str, end: int, environment: Mapping[str, str] | None) -> None:
        if can_start_orphans():
            super()._launch(module, end, environment)
            return
        self._child = subprocess.Popen(
            _command(module, 0, is_watched=True),
            stdin=end,
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    def _kill(self) -> None:
        if self._child is None:
            super()._kill()
        elif self._child.poll() is None:
            with suppress(OSError):
                if self._orphan is None:
                    self._child.kill()
                else:  # and its parent takes note of its end, and ends
                    os.killpg(self._orphan.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process, also if it is stopped by a signal."""
        super().close()
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):  # the system does not end it
                self._child.wait(_END_SECONDS)

    def forget(self) -> None:
        """In a forked child, drop the process of the parent."""
        super().forget()
        if self._child is not None:
            self._child.returncode = 0  # the parent waits for it


@contextmanager
def _starting() -> Iterator[None]:
    """Raise ProcessLostError for an error of the socket before the process is ready."""
    try:
        yield
    except (OSError, EOFError, ValueError) as error:
        raise ProcessLostError(f"it does not start: {error}") from error


def _command(module: str, end: int, *, is_watched: bool) -> list[str]:
    """Return the command of a process whose end of the sockets has this number."""
    options = [] if is_watched else ["-S"]
    return [sys.executable, *options, "-c", _RUN, str(end), str(int(is_watched)), module, *_path()]


def own_environment() -> dict[str, str]:
    """Return the environment variables without those that would start recording in the child."""
    variables = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    return {
        name: value for name, value in variables.items() if not name.startswith(("MTTP_", "OTEL_"))
    } | _VARIABLES


def _path() -> list[str]:
    """Return the module path of this process, with this package first."""
    listed: list[object] = [str(Path(__file__).parents[1]), *sys.path]
    texts = [path for path in listed if isinstance(path, str) and path]  # Python ignores others, too
    return list(dict.fromkeys(texts))


def _send(
    end: socket.socket, kind: int, data: bytes, until: float = inf, looks: Callable[[], None] | None = None
) -> None:
    if len(data) > MOST_BYTES:
        raise ValueError(f"a message of {len(data):,} bytes can't travel")
    pieces = [memoryview(_HEAD.pack(kind, len(data))), memoryview(data)]
    while pieces:  # joining them first would copy them
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
        raise OSError(f"a message states an invalid size: {size:,} bytes")
    return kind, _exactly(end, size, until, looks)


def _exactly(end: socket.socket, size: int, until: float, looks: Callable[[], None] | None = None) -> bytes:
    parts: list[bytes] = []
    while size:
        part = _tried(partial(end.recv, min(size, _AT_ONCE), socket.MSG_WAITALL), until, looks)
        if not part:
            raise EOFError("the other process has ended")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _tried(call: Callable[[], T], until: float, looks: Callable[[], None] | None) -> T:
    """Repeat a call on a socket after each tick until it returns; raises TimeoutError after `until`."""
    while True:
        try:
            return call()
        except BlockingIOError:
            if clock.seconds() >= until - _SLACK:
                raise TimeoutError("it took too long") from None
        if looks is not None:
            looks()


# The far side.


def serve(answer: Callable[[int, bytes], bytes]) -> None:
    """
    Reply to requests, each with a kind and bytes, until the parent process is gone.

    Standard input is empty, and standard output goes to standard error.
    """
    end = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    requests: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
    threading.Thread(target=_receive, args=(end, requests), daemon=True).start()
    _send(end, DONE, b"")
    while True:
        try:
            status, reply = DONE, answer(*requests.get())
        except Exception as error:
            status, reply = FAILED, repr(error).encode("utf-8", "backslashreplace")
        with suppress(OSError):  # the parent is gone: the other thread ends the process
            _send(end, status, reply)


def _receive(end: socket.socket, requests: SimpleQueue[tuple[int, bytes]]) -> None:
    """Receive requests; end the process when the parent is gone."""
    with suppress(EOFError, OSError):
        while True:
            requests.put(_received(end))
    os._exit(0)

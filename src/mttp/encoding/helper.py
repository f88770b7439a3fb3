"""
A process that encodes for this one, so that nobody's training loop waits for the interpreter's lock.

It is a Python of its own, not a fork and not `multiprocessing`, which would run unguarded scripts again.
Both sides talk over a pair of sockets, in one call each way: every further call would be one more wait for
the lock. The helper ends when its socket does, so it can't outlive the process that it works for.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, TypeVar

__all__ = ["DONE", "FAILED", "Helper", "HelperLostError", "can_help", "serve"]

T = TypeVar("T")

DONE: Final = 0
FAILED: Final = 1
"""The answer is what went wrong, as text."""

_HEAD = struct.Struct("<BQ")
PATIENCE = 5.0
"""Seconds after which a helper that does not answer is killed."""
_TICK_MICROSECONDS = 500_000
"""The time between two looks at the clock while an answer is awaited."""
_SILENT = "it did not answer for {:.1f} s"
_NICENESS = 5
"""Where there are not enough processors, the training loop comes first."""
_VARIABLES = {
    "OTEL_SDK_DISABLED": "true",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(64 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
}
"""
No threads of numpy's, and memory that is kept for the next segment.

Else the C library gives it back each time, and has it anew, page by page.
"""
_RUN = """\
import sys
sys.path[:] = filter(None, sys.path)
from runpy import run_module
run_module(sys.argv[1], run_name="__main__")
"""
"""What `python -m` does, but for looking for modules where the process happens to work."""
_NOT_PASSED_ON = ("PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONSTARTUP")


class HelperLostError(Exception):
    """The helper died, or does not answer."""


def can_help() -> bool:
    """Whether a Python of the same kind can be started here, and sockets be handed to it."""
    is_python = Path(sys.executable or "").name.startswith(("python", "pypy"))
    return os.name == "posix" and is_python and not getattr(sys, "frozen", False)


class Helper:
    """The near side: starts the process, hands it work, and takes the answer."""

    def __init__(self, module: str) -> None:
        """Start it, by running a module; raises OSError, or RuntimeError at the interpreter's end."""
        self._socket, theirs = socket.socketpair()
        self._is_ready = False
        self._asked: float | None = None
        """When it was asked for the answer that it owes, on the monotonic clock."""
        self._killed = ""
        """Why it was killed."""
        try:
            tick = struct.pack("@ll", 0, _TICK_MICROSECONDS)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, tick)
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-S", "-c", _RUN, module],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether it has started up; raises HelperLostError where it could not."""
        if not self._is_ready and self._answers():
            try:
                _received(self._socket, time.monotonic() + PATIENCE)
            except (OSError, EOFError) as error:
                raise HelperLostError(f"it does not start: {error}") from error
            self._is_ready = True
        return self._is_ready

    @property
    def is_working(self) -> bool:
        """Whether it has been asked and has not answered yet; any thread may ask."""
        try:
            return self._asked is not None and not self._answers()
        except (OSError, ValueError):  # it was closed just now
            return False

    def _answers(self) -> bool:
        asked = select.poll()  # `select` takes no descriptors from 1024 on
        asked.register(self._socket, select.POLLIN)
        return bool(asked.poll(0))

    def ask(self, work: int, data: bytes) -> tuple[int, bytes]:
        """What became of it, and the answer; raises HelperLostError."""
        if self._asked is not None:  # Ctrl-C may break off anything
            raise HelperLostError("its last answer was not waited for")
        self._asked = time.monotonic()
        answer = self._exchange(work, data)
        self._asked = None
        return answer

    def _exchange(self, work: int, data: bytes) -> tuple[int, bytes]:
        until = time.monotonic() + PATIENCE
        try:
            _send(self._socket, work, data, until)
            return _received(self._socket, until)
        except TimeoutError as error:
            raise HelperLostError(_SILENT.format(PATIENCE)) from error
        except (OSError, EOFError) as error:
            raise HelperLostError(self._killed or f"it does not answer: {error}") from error

    def hurry(self, patience: float) -> None:
        """Kill it if it has owed an answer for so many seconds; the thread that waits learns at once."""
        asked = self._asked
        if asked is not None and time.monotonic() - asked >= patience:
            self._killed = _SILENT.format(patience)
            self._process.kill()

    def close(self) -> None:
        """End it, whatever it is doing, even if it is stopped."""
        self._socket.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # the system does not let it go
            self._process.wait(1)

    def forget(self) -> None:
        """In a forked child: it is the parent's."""
        self._socket.close()
        self._process.returncode = 0  # it is not ours to wait for


def _environment() -> dict[str, str]:
    """So that the same modules are found, and nobody records in there."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    kept = {name: value for name, value in kept.items() if not name.startswith(("MTTP_", "OTEL_"))}
    listed: list[object] = [*sys.path]
    texts = [path for path in listed if isinstance(path, str) and path]  # Python passes over the rest, too
    paths = [str(Path(__file__).parents[2]), *texts]
    return kept | _VARIABLES | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _send(end: socket.socket, kind: int, data: bytes, until: float = inf) -> None:
    pieces = [memoryview(_HEAD.pack(kind, len(data))), memoryview(data)]
    while pieces:  # to put them together first would be a copy more
        pieces = _rest(pieces, _tried(partial(end.sendmsg, pieces), until))


def _rest(pieces: list[memoryview], sent: int) -> list[memoryview]:
    rest = []
    for piece in pieces:
        if sent < len(piece):
            rest.append(piece[sent:])
        sent = max(sent - len(piece), 0)
    return rest


def _received(end: socket.socket, until: float = inf) -> tuple[int, bytes]:
    kind, size = _HEAD.unpack(_exactly(end, _HEAD.size, until))
    return kind, _exactly(end, size, until)


def _exactly(end: socket.socket, size: int, until: float) -> bytes:
    found: list[bytes] = []
    while size:
        part = _tried(partial(end.recv, size, socket.MSG_WAITALL), until)
        if not part:
            raise EOFError("the other side is gone")
        found.append(part)
        size -= len(part)
    return found[0] if len(found) == 1 else b"".join(found)


def _tried(call: Callable[[], T], until: float) -> T:
    """What a call on a socket returns, made again after each tick; raises TimeoutError after `until`."""
    while True:
        try:
            return call()
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError("it took too long") from None


# The far side.


def serve(works: Mapping[int, Callable[[bytes], bytes]]) -> None:
    """Work until whoever asks is gone."""
    with suppress(OSError):
        os.nice(_NICENESS)
    end = socket.socket(fileno=os.dup(0))
    end.sendall(_HEAD.pack(DONE, 0))
    while True:
        try:
            work, data = _received(end)
        except (EOFError, OSError):
            return
        try:
            status, answer = DONE, works[work](data)
        except Exception as error:
            status, answer = FAILED, repr(error).encode("utf-8", "backslashreplace")
        try:
            _send(end, status, answer)
        except OSError:
            return

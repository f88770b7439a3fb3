"""
A process that encodes for this one, so that nobody's training loop waits for the interpreter's lock.

It is a Python of its own, not a fork and not `multiprocessing`, which would run unguarded scripts again.
Both sides talk over a pair of sockets, in one call each way: every further call would be one more wait for
the lock. The helper ends when its socket does, so it can't outlive whoever it works for.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["DONE", "FAILED", "Helper", "HelperLostError", "can_help", "serve"]

DONE: Final = 0
FAILED: Final = 1
"""The answer is what went wrong, as text."""

_HEAD = struct.Struct("<BQ")
_PATIENCE = 30
"""Seconds after which a helper that does not answer is given up."""
_NICENESS = 5
"""Where there are not enough processors, the training loop comes first."""
_SILENT = {
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
        self._is_ready = self._owes_answer = False
        try:
            patience = struct.pack("@ll", _PATIENCE, 0)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, patience)
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
            self._receive()
            self._is_ready = True
        return self._is_ready

    def _answers(self) -> bool:
        asked = select.poll()  # `select` takes no descriptors from 1024 on
        asked.register(self._socket, select.POLLIN)
        return bool(asked.poll(0))

    def ask(self, work: int, data: bytes) -> tuple[int, bytes]:
        """What became of it, and the answer; raises HelperLostError."""
        if self._owes_answer:  # Ctrl-C may break off anything
            raise HelperLostError("whoever asked before did not wait for the answer")
        self._owes_answer = True
        try:
            _send(self._socket, work, data)
        except OSError as error:
            raise HelperLostError(f"it takes no work: {error}") from error
        answer = self._receive()
        self._owes_answer = False
        return answer

    def _receive(self) -> tuple[int, bytes]:
        try:
            return _received(self._socket)
        except (OSError, EOFError) as error:
            raise HelperLostError(f"it does not answer: {error}") from error

    def close(self) -> None:
        """Let it end."""
        self._socket.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

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
    return kept | _SILENT | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _send(end: socket.socket, kind: int, data: bytes) -> None:
    head = _HEAD.pack(kind, len(data))
    sent = end.sendmsg([head, data])  # to put them together first would be a copy more
    if sent < len(head) + len(data):
        end.sendall(head[sent:])
        end.sendall(memoryview(data)[max(sent - len(head), 0) :])


def _received(end: socket.socket) -> tuple[int, bytes]:
    kind, size = _HEAD.unpack(_exactly(end, _HEAD.size))
    return kind, _exactly(end, size)


def _exactly(end: socket.socket, size: int) -> bytes:
    found: list[bytes] = []
    while size:
        part = end.recv(size, socket.MSG_WAITALL)
        if not part:
            raise EOFError("the other side is gone")
        found.append(part)
        size -= len(part)
    return found[0] if len(found) == 1 else b"".join(found)


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

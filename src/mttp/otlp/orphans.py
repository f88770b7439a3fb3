"""
Starts processes that are no children of this one, which a program could wait for.

A short-lived process starts them and ends, so that they become orphans. It sends no signal when it ends, and
`wait` does not return it: only Linux's `clone` starts such a process, and Python has no call for that.
"""

from __future__ import annotations

import errno
import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mttp.model import clock
from mttp.model.interrupts import suppress_errors
from mttp.otlp.descriptors import above_standard

__all__ = ["Orphan", "can_start_orphans", "output", "start"]

_SHELL = "/bin/sh"
_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000
"""Share the memory, and wait for the end: nothing is copied, however large the process is."""
_WAIT_ALL = 0x40000000
"""Also wait for a process that sends no signal at its end."""
_STACK_BYTES = 1 << 18
_GET_CHILD_SUBREAPER = 37
_MOST_BYTES = 120_000
"""Maximum size of a command: Linux takes arguments of up to 128 KiB."""


_SAY_PID = (_SHELL, "-c", 'echo $$; exec "$@"', "sh")
"""Begin of a command whose first line of output is its process id."""


class Orphan:
    """A process that is no child, known by its id and the time at which it started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        """The process id."""
        self._started = _status(pid)[1]

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; its id may be another process's by now."""
        state, started = _status(self.pid)
        return state in ("", "Z", "X") or started != self._started

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return not self.has_ended and _status(self.pid)[0] in ("T", "t")

    def kill_group(self) -> None:
        """Kill the process and all others of its group, which is not this process's."""
        if not self.has_ended:
            with suppress(OSError):
                os.killpg(os.getpgid(self.pid), signal.SIGKILL)

    def kill(self) -> None:
        """Kill the process."""
        if not self.has_ended:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait for its end, and return whether it has ended."""
        until = clock.seconds() + seconds
        while not (ended := self.has_ended) and clock.seconds() < until:
            clock.sleep(0.001)
        return ended


def _status(pid: int) -> tuple[str, str]:
    """Return state and start of a process; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def can_start_orphans() -> bool:
    """Whether orphans can be started, and would not come back to this program as its children."""
    is_possible = (
        sys.platform == "linux" and os.access(_SHELL, os.X_OK) and os.access("/proc/self/stat", os.R_OK)
    )
    return is_possible and not _forks.adopt_orphans and not _adopts_orphans()


def _adopts_orphans() -> bool:
    """Whether this process gets orphans: it is process 1, runs the same program, or has asked for them."""
    if os.getpid() == 1:
        return True
    with suppress(OSError):  # the program of another user's process 1 is not to be seen
        if Path("/proc/1/exe").samefile("/proc/self/exe"):
            return True
    import ctypes

    asked = ctypes.c_int(0)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_GET_CHILD_SUBREAPER, ctypes.byref(asked), 0, 0, 0)
    return bool(asked.value)


class _Forks:
    """What a forked child inherits."""

    adopt_orphans = False
    """Whether a process from which this one was forked gets its orphans."""

    def prepare(self) -> None:
        """Look, before a fork, who gets the orphans of the child."""
        if sys.platform == "linux" and not self.adopt_orphans:
            with suppress_errors():
                self.adopt_orphans = _adopts_orphans()


_forks = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forks.prepare)


def start(command: str) -> None:
    """Run a shell command that starts processes in the background, and wait for the shell; raises OSError."""
    import ctypes

    if not can_start_orphans():
        raise OSError(errno.ECHILD, "an orphan would come back to this process, or this system has none")
    encoded = os.fsencode(command)
    if len(encoded) > _MOST_BYTES:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    library = ctypes.CDLL(None, use_errno=True)
    run = ctypes.cast(library.system, ctypes.c_void_p)
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    top = ctypes.c_void_p((ctypes.addressof(stack) + _STACK_BYTES) & ~0xF)
    blocked = signal.pthread_sigmask(
        signal.SIG_BLOCK, signal.valid_signals()
    )  # no handler runs in its memory
    try:
        pid = library.clone(run, top, _CLONE_VM | _CLONE_VFORK, encoded)
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        with suppress(ChildProcessError):
            os.waitpid(pid, _WAIT_ALL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def output(words: Sequence[str], seconds: float) -> bytes | None:
    """
    Return the standard output of a command, run by an orphan if possible; None if it fails.

    Raises OSError if it can't be started, and TimeoutExpired.
    """
    if not can_start_orphans():
        process = subprocess.run(words, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL)
        return process.stdout if process.returncode == 0 else None
    reader, writer = map(above_standard, os.pipe())
    try:
        os.set_inheritable(writer, True)
        start(f"{{ {shlex.join([*_SAY_PID, *words])}; echo $?; }} </dev/null >/dev/fd/{writer} 2>/dev/null &")
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    content, until = b"", clock.seconds() + seconds
    with os.fdopen(reader, "rb", buffering=0) as file:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        while poll.poll(max(until - clock.seconds(), 0.0) * 1000):
            piece = file.read(1 << 16)
            if not piece:
                reply, _, code = content.partition(b"\n")[2].rpartition(b"\n")[0].rpartition(b"\n")
                return reply if code == b"0" else None
            content += piece
    if b"\n" in content:
        Orphan(int(content.partition(b"\n")[0])).kill()
    raise subprocess.TimeoutExpired(words, seconds)

"""
Encodes ended spans in this process or, after some CPU time of encoding, in an encoding process.

A thread that encodes holds the interpreter's lock, which each numpy call of a training loop releases, so the
loop would wait for the encoder. With an encoding process, this process only hands over spans and takes bytes.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from mttp.model import clock
from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.otlp import frames
from mttp.otlp.frames import LINES, MESSAGES, Frame
from mttp.otlp.processes import DONE, Process, ProcessLostError, can_start_children, own_environment

__all__ = [
    "HELPER_VARIABLE",
    "here",
    "hurry",
    "is_off",
    "lines",
    "losses",
    "messages",
]


HELPER_VARIABLE = "MTTP_HELPER"
"""`off` starts no process."""
WORTH_SECONDS = 0.05
"""CPU seconds of encoding in this process before the encoding process is started."""
FEW = 8
"""Fewer spans than this are encoded in this process, even if the encoding process runs."""
TIMEOUT_SECONDS = 5.0
"""Seconds after which an encoding process that does not reply is killed."""
DEATHS = 2
"""Number of encoding processes lost within `REST_SECONDS` after which no other is started for a while."""
REST_SECONDS = 120.0
"""Seconds since the first of these losses after which another encoding process may be started."""

_OFF = ("off", "0", "false")


def lines(given: Sequence[Frame]) -> bytes:
    """Encode frames as OTLP JSON lines, arrays packed; those that are JSON by now come first."""
    waiting = [frame for frame in given if not frame.is_encoded]
    if len(waiting) < len(given):
        return frames.lines([frame for frame in given if frame.is_encoded]) + lines(waiting)
    content = _encoding.by_helper(LINES, given)
    if content is None:
        with _encoding:
            content = frames.lines(given)
    return content


def messages(given: Sequence[Frame]) -> list[bytes] | None:
    """Encode each frame as protobuf; None without an encoding process: they are encoded when sent."""
    content = _encoding.by_helper(MESSAGES, given)
    return None if content is None else list(msgspec.msgpack.decode(content))


def is_off() -> bool:
    """Whether a variable keeps encoding in this process."""
    return os.environ.get(HELPER_VARIABLE, "").strip().lower() in _OFF


def hurry(seconds: float) -> None:
    """Kill an encoding process whose reply is `seconds` late; this process encodes its spans."""
    _encoding.hurry(seconds)


def losses() -> int:
    """Return the number of lost encoding processes."""
    return _encoding.deaths


def here() -> _Encoding:
    """Count the CPU time of the block as encoding in this process."""
    return _encoding


class _Encoding:
    """The CPU time of encoding in this process, and the encoding process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: Process | None = None
        self._spent = 0.0
        self._since = threading.local()
        self._may_help = can_start_children() and not is_off()
        self.deaths = 0
        """Number of lost encoding processes."""
        self._lost_at: deque[float] = deque(maxlen=DEATHS)

    def __enter__(self) -> None:
        self._since.time = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._spent += time.thread_time() - self._since.time
        if self._may_help and self._helper is None and self._spent > WORTH_SECONDS and not self._rests():
            self._start()

    def _rests(self) -> bool:
        """Whether `DEATHS` encoding processes were lost within the last `REST_SECONDS`."""
        lost_at = self._lost_at
        return len(lost_at) == DEATHS and clock.seconds() - lost_at[0] < REST_SECONDS

    def _start(self) -> None:
        with self._lock:
            if self._helper is None:
                try:
                    self._helper = Process("mttp.otlp.encoding", environment=own_environment())
                except Exception as error:  # no process can be started
                    raise_interrupt(error)
                    self._may_help = False
                    log.info("mttp: encoding stays in this process: %s", error)

    def by_helper(self, work: int, batch: Sequence[Frame]) -> bytes | None:
        """Return the reply of the encoding process; None without one, for few frames, or if it failed."""
        if self._helper is None or len(batch) < FEW:
            return None
        with self._lock:
            if self._helper is None:
                return None
            try:
                if self._helper.is_ready:
                    status, reply = self._helper.ask(frames.joined(batch), TIMEOUT_SECONDS, kind=work)
                    return reply if status == DONE else None
            except ProcessLostError as error:
                self._lose(error)
            except (TypeError, ValueError, OverflowError):  # too long, or a resource that no message holds
                pass
        return None

    def _lose(self, error: ProcessLostError) -> None:
        helper, self._helper = self._helper, None
        if self._may_help:  # else `close` has ended it
            self.deaths += 1
            self._lost_at.append(clock.seconds())
            log.warning("mttp: the encoding process was lost, and this process encodes instead: %s", error)
        if helper is not None:
            helper.close()

    def hurry(self, seconds: float) -> None:
        """Kill an encoding process whose reply is that late; another thread waits for it."""
        helper = self._helper
        if helper is not None:
            helper.hurry(seconds)

    def close(self) -> None:
        """End the encoding process, also with a pending request."""
        self._may_help = False
        self.hurry(0.0)
        with self._lock:
            helper, self._helper = self._helper, None
            if helper is not None:
                helper.close()

    def after_fork_in_child(self) -> None:
        """In a forked child, drop the encoding process of the parent."""
        helper = self._helper
        self._lock, self._helper, self._spent = threading.Lock(), None, 0.0
        if helper is not None:
            helper.forget()


_encoding = _Encoding()
atexit.register(_encoding.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_encoding.after_fork_in_child)

"""
Ended spans as bytes, made in this process or, once that is worth it, in a helper of it.

A thread that encodes holds the interpreter's lock, and each of a training loop's numpy calls lets go of it:
the loop would wait for whole segments. So once a process has spent some time on it, a helper is started, and
what is left to this process is to hand over its spans and to take the bytes.
"""

from __future__ import annotations

import atexit
import logging
import marshal
import os
import threading
import time
from collections.abc import Iterable, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from mttp.codec.profiles import full
from mttp.model.spans import SpanRecord
from mttp.otlp.encoding import rows
from mttp.otlp.encoding.rows import Row
from mttp.otlp.encoding.tasks import LINES, MESSAGES
from mttp.otlp.json import row_of
from mttp.otlp.processes import DONE, Process, ProcessLostError, can_start, own_environment
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.span_records import record

__all__ = ["HELPER_VARIABLE", "here", "hurry", "is_waiting", "lines", "losses", "messages"]

_log = logging.getLogger("mttp")

HELPER_VARIABLE = "MTTP_HELPER"
"""`off` where no process is to be started."""
WORTH_SECONDS = 0.05
"""CPU time that is spent on encoding here before a helper is started."""
FEW = 8
"""Up to this many spans are encoded in this process, also with a helper."""
ANSWER_TIMEOUT = 5.0
"""Seconds after which a helper that does not answer is killed."""
DEATHS = 2
"""After so many helpers were lost no other is started."""

_OFF = ("off", "0", "false")


def lines(spans: Sequence[ReadableSpan]) -> bytes:
    """OTLP JSON lines, arrays packed; raises ValueError for a span that has no context."""
    found = _encoding.by_helper(LINES, spans)
    if found is None:
        with _encoding:
            found = rows.lines(_rows(spans))
    return found


def messages(spans: Sequence[ReadableSpan]) -> list[bytes] | None:
    """The OTLP protobuf message of each span; None without a helper: each is then encoded when it is sent."""
    found = _encoding.by_helper(MESSAGES, spans)
    return None if found is None else list(marshal.loads(found))


def _rows(spans: Iterable[ReadableSpan]) -> list[Row]:
    parents: dict[int, tuple[int, int, SpanContext | None]] = {}
    return [
        span.row(parents) if isinstance(span, RecordingSpan) else _of_record(record(span, full))
        for span in spans
    ]


def _of_record(whole: SpanRecord) -> Row:
    *row, rest = row_of(whole)
    return (*row, None, rest)


def is_waiting() -> bool:
    """Whether the helper has been asked for something, and has not answered yet."""
    return _encoding.is_waiting()


def hurry(seconds: float) -> None:
    """Kill a helper that has not answered for `seconds` seconds; this process encodes what it was given."""
    _encoding.hurry(seconds)


def losses() -> int:
    """How many helpers of this process were lost."""
    return _encoding.deaths


def here() -> _Encoding:
    """Count what is done inside the block as encoding in this process."""
    return _encoding


class _Encoding:
    """What this process spent on encoding, and its helper."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: Process | None = None
        self._spent = 0.0
        self._since = threading.local()
        self._may_help = can_start() and os.environ.get(HELPER_VARIABLE, "").lower() not in _OFF
        self.deaths = 0
        """How many helpers were lost."""

    def __enter__(self) -> None:
        self._since.time = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._spent += time.thread_time() - self._since.time
        if self._may_help and self._helper is None and self._spent > WORTH_SECONDS:
            self._start()

    def is_waiting(self) -> bool:
        """Whether the helper works, asked from any thread."""
        helper = self._helper
        return helper is not None and helper.is_working

    def _start(self) -> None:
        with self._lock:
            if self._helper is None:
                try:
                    self._helper = Process("mttp.otlp.encoding", environment=own_environment())
                except Exception as error:  # no process to be had: what is to be written can't help that
                    self._may_help = False
                    _log.info("mttp: encoding stays in this process: %s", error)

    def by_helper(self, work: int, spans: Sequence[ReadableSpan]) -> bytes | None:
        """The helper's answer; None where there is no helper, or it can't."""
        if len(spans) < FEW:
            return None
        with self._lock:
            if self._helper is None:
                return None
            try:
                return self._asked(self._helper, work, spans) if self._helper.is_ready else None
            except ProcessLostError as error:
                self._lose(error)
            except ValueError:  # a value that can't travel
                pass
        return None

    def _asked(self, helper: Process, work: int, spans: Sequence[ReadableSpan]) -> bytes | None:
        status, answer = helper.ask(rows.pack(_rows(spans)), ANSWER_TIMEOUT, kind=work)
        return answer if status == DONE else None

    def _lose(self, error: ProcessLostError) -> None:
        helper, self._helper = self._helper, None
        self.deaths += 1
        self._may_help = self.deaths < DEATHS
        _log.warning("mttp: the process that helps with encoding is lost, this one goes on: %s", error)
        if helper is not None:
            helper.close()

    def hurry(self, seconds: float) -> None:
        """Kill a helper that has not answered for so many seconds; another thread waits for it."""
        helper = self._helper
        if helper is not None:
            helper.hurry(seconds)

    def close(self) -> None:
        """End the helper, even one that owes an answer."""
        self.hurry(0.0)
        with self._lock:
            helper, self._helper, self._may_help = self._helper, None, False
            if helper is not None:
                helper.close()

    def after_fork_in_child(self) -> None:
        """The helper is the parent's; a child that has enough to do gets its own."""
        helper = self._helper
        self._lock, self._helper, self._spent = threading.Lock(), None, 0.0
        if helper is not None:
            helper.forget()


_encoding = _Encoding()
atexit.register(_encoding.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_encoding.after_fork_in_child)

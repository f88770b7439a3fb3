"""
Encodes ended spans in this process, and after some CPU time in a worker process.

A thread that encodes holds the GIL, which the training loop releases at each numpy call, so that the loop
would wait for whole segments. With a worker, this process only sends rows and receives bytes.
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
"""The variable that disables the worker process with the value `off`."""
WORTH_SECONDS = 0.05
"""CPU seconds of encoding in this process before a worker is started."""
FEW = 8
"""Fewer spans than this are encoded in this process, even with a worker."""
ANSWER_TIMEOUT = 5.0
"""Seconds after which a worker that does not answer is killed."""
DEATHS = 2
"""Number of lost workers after which no other one is started."""

_OFF = ("off", "0", "false")


def lines(spans: Sequence[ReadableSpan]) -> bytes:
    """Encode OTLP JSON lines with packed arrays; raises ValueError for a span without a context."""
    found = _encoding.in_worker(LINES, spans)
    if found is None:
        with _encoding:
            found = rows.lines(_rows(spans))
    return found


def messages(spans: Sequence[ReadableSpan]) -> list[bytes] | None:
    """Encode an OTLP protobuf message for each span in the worker; return None without a worker."""
    found = _encoding.in_worker(MESSAGES, spans)
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
    """Whether the worker has an unanswered request."""
    return _encoding.is_waiting()


def hurry(seconds: float) -> None:
    """Kill a worker that has not answered for `seconds`; this process then encodes its spans."""
    _encoding.hurry(seconds)


def losses() -> int:
    """Return the number of lost workers of this process."""
    return _encoding.deaths


def here() -> _Encoding:
    """Return a context manager that counts CPU time as encoding in this process."""
    return _encoding


class _Encoding:
    """The CPU time that this process spent on encoding, and its worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: Process | None = None
        self._spent = 0.0
        self._since = threading.local()
        self._may_help = can_start() and os.environ.get(HELPER_VARIABLE, "").lower() not in _OFF
        self.deaths = 0
        """Number of lost workers."""

    def __enter__(self) -> None:
        self._since.time = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._spent += time.thread_time() - self._since.time
        if self._may_help and self._helper is None and self._spent > WORTH_SECONDS:
            self._start()

    def is_waiting(self) -> bool:
        """Whether the worker has an unanswered request; callable from any thread."""
        helper = self._helper
        return helper is not None and helper.is_working

    def _start(self) -> None:
        with self._lock:
            if self._helper is None:
                try:
                    self._helper = Process("mttp.otlp.encoding", environment=own_environment())
                except Exception as error:  # without a process, encoding stays here
                    self._may_help = False
                    _log.info("mttp: encoding stays in this process: %s", error)

    def in_worker(self, task: int, spans: Sequence[ReadableSpan]) -> bytes | None:
        """Return the worker's answer; None without a worker, or if the request fails."""
        if len(spans) < FEW:
            return None
        with self._lock:
            if self._helper is None:
                return None
            try:
                return self._answer(self._helper, task, spans) if self._helper.is_ready else None
            except ProcessLostError as error:
                self._lose(error)
            except ValueError:  # a value that can't be serialized
                pass
        return None

    def _answer(self, helper: Process, task: int, spans: Sequence[ReadableSpan]) -> bytes | None:
        status, answer = helper.ask(rows.pack(_rows(spans)), ANSWER_TIMEOUT, kind=task)
        return answer if status == DONE else None

    def _lose(self, error: ProcessLostError) -> None:
        helper, self._helper = self._helper, None
        self.deaths += 1
        self._may_help = self.deaths < DEATHS
        _log.warning("mttp: the encoding process was lost, and this process encodes instead: %s", error)
        if helper is not None:
            helper.close()

    def hurry(self, seconds: float) -> None:
        """Kill a worker that has not answered for `seconds`; another thread waits for its answer."""
        helper = self._helper
        if helper is not None:
            helper.hurry(seconds)

    def close(self) -> None:
        """End the worker, even if it has an unanswered request."""
        self.hurry(0.0)
        with self._lock:
            helper, self._helper, self._may_help = self._helper, None, False
            if helper is not None:
                helper.close()

    def after_fork_in_child(self) -> None:
        """In a forked child: forget the parent's worker."""
        helper = self._helper
        self._lock, self._helper, self._spent = threading.Lock(), None, 0.0
        if helper is not None:
            helper.forget()


_encoding = _Encoding()
atexit.register(_encoding.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_encoding.after_fork_in_child)

"""Ids that count up, so that what is recorded is the same each time."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from mttp.model import ids
from mttp.model.counters import MOST

__all__ = ["CountingIds", "counting_ids", "on_writing_thread"]

_WRITERS_BIT = 32
_PROCESS_BIT = 40


class CountingIds:
    """
    Trace, span and run ids from 1 on: 00…01, 00…02.

    What mttp's own threads need is counted apart, from 2³² on: when they need it is a matter of time.
    A forked child has a range of its own, by its process number.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._counts: dict[tuple[str, int], itertools.count[int]] = {}

    def trace_id(self) -> int:
        """The next trace id."""
        return self._next("trace")

    def span_id(self) -> int:
        """The next span id."""
        return self._next("span")

    def span_ids(self) -> Iterator[int]:
        """The next span ids, as they are taken."""
        return _Taken(self.span_id)

    def run_id(self) -> str:
        """The next run id, 16 hex digits."""
        return f"{self._next('run'):016x}"

    def _next(self, kind: str) -> int:
        base = on_writing_thread() << _WRITERS_BIT
        if os.getpid() != self._process:
            base |= os.getpid() << _PROCESS_BIT
        return base + next(self._counts.setdefault((kind, base), itertools.count(1)))


class _Taken:
    """Ids of another counter, and how many were taken here."""

    def __init__(self, take: Callable[[], int]) -> None:
        self._take = take
        self._left = MOST

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self._left -= 1
        return self._take()

    def __length_hint__(self) -> int:
        return self._left


@contextmanager
def counting_ids() -> Iterator[CountingIds]:
    """Have all ids count up inside the block; for tests only, since they are the same in every process."""
    counting = CountingIds()
    with patch.multiple(
        ids,
        trace_id=counting.trace_id,
        span_id=counting.span_id,
        span_ids=counting.span_ids,
        run_id=counting.run_id,
    ):
        yield counting


def on_writing_thread() -> bool:
    """Whether this is a thread of mttp's own, which writes what others record."""
    return threading.current_thread().name.startswith("mttp-")

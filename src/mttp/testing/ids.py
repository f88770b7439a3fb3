"""Ids that count up, which make recordings deterministic."""

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
    Trace, span and run ids that count from 1: 00…01, 00…02.

    mttp's own threads, whose timing varies, count separately from 2³².
    A forked child counts in a range of its own, which contains its process id.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._counts: dict[tuple[str, int], itertools.count[int]] = {}

    def trace_id(self) -> int:
        """Return the next trace id."""
        return self._next("trace")

    def span_id(self) -> int:
        """Return the next span id."""
        return self._next("span")

    def span_ids(self) -> Iterator[int]:
        """Return an iterator over the next span ids, which it takes one by one."""
        return _SpanIds(self.span_id)

    def run_id(self) -> str:
        """Return the next run id, 16 hex digits."""
        return f"{self._next('run'):016x}"

    def _next(self, kind: str) -> int:
        base = on_writing_thread() << _WRITERS_BIT
        if os.getpid() != self._process:
            base |= os.getpid() << _PROCESS_BIT
        return base + next(self._counts.setdefault((kind, base), itertools.count(1)))


class _SpanIds:
    """An iterator over ids that counts down how many are left."""

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next_id = next_id
        self._left = MOST

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self._left -= 1
        return self._next_id()

    def __length_hint__(self) -> int:
        return self._left


@contextmanager
def counting_ids() -> Iterator[CountingIds]:
    """Make all ids count up inside the block; for tests only, because two processes count the same ids."""
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
    """Return whether the current thread is one of mttp's own."""
    return threading.current_thread().name.startswith("mttp-")

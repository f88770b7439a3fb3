"""The base class of trace stores."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.reading.stores.address import Address
from mttp.semconv import attributes as a

__all__ = ["Store"]

_MAX_FAILURES = 3
"""Number of consecutive traces that can't be read, after which reading the store fails."""


class Store(ABC):
    """A trace store; its query API is requested while `records` is iterated."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.losses: list[str] = []
        """Descriptions of data that the store lost or did not return."""
        self._episodes: set[str] = set()
        """Trace ids of the episodes that were found."""
        self._stated: dict[str, int] = {}
        """Number of episodes that each process of the requested run started, by its run span."""
        self._has_end = False
        """Whether the end of the requested run was found."""

    def __repr__(self) -> str:
        return f"{self.address.scheme}:{self.address.url}"

    def records(self) -> Iterator[SpanRecord]:
        """
        Yield the spans of the requested traces, trace by trace.

        Raises ReadError if a request fails, or if the store has none of the traces.
        """
        traces = failed = 0
        self._episodes.clear()
        self._stated.clear()
        self._has_end = False
        for trace_id in self.address.traces or self._limited(self._searched()):
            try:
                spans = self.read_trace(trace_id)
            except ReadError as error:
                failed += 1
                if failed == _MAX_FAILURES:  # a fault of the store, not of the traces
                    raise
                self.losses.append(f"trace {trace_id} can't be read: {error}")
                continue
            traces, failed = traces + bool(spans), 0
            for span in spans:
                self._count(span)
                self._add_losses(span)
                yield span
        if not traces:
            raise ReadError(self.losses[0] if self.losses else f"{self.address}: {self.nothing()}")

    def _count(self, span: SpanRecord) -> None:
        if span.attributes.get(a.RUN_ID) != self.address.run:
            return
        if a.EPISODE_ID in span.attributes:
            self._episodes.add(span.trace_id)
        elif a.RUN_STATUS in span.attributes:
            self._has_end = True
            count = span.attributes.get(a.RUN_EPISODE_COUNT)
            self._stated[span.span_id] = int(count) if isinstance(count, (int, float)) else 0

    def _rounds(self, pause: float) -> Iterator[float]:
        """
        Yield before each search the seconds that are left: once, or until the requested run is whole.

        `pause` is the time between searches, in seconds.
        """
        end = time.monotonic() + (self.address.wait if self._is_awaited else 0.0)
        while True:
            yield end - time.monotonic()
            left = end - time.monotonic()
            if self._is_whole or left <= 0:
                return
            time.sleep(min(pause, left))

    def _note_missing_end(self, trace_ids: Collection[str]) -> None:
        """Add a loss if the run's end, which is written last, is not among all that was found."""
        if self._is_awaited and 0 < len(trace_ids) < self.address.limit and not self._has_end:
            self.losses.append(
                f"the end of run {self.address.run} was not found: the run has not ended, or the store "
                "does not find it yet; there may be more episodes"
            )

    @property
    def _is_awaited(self) -> bool:
        """Whether a run is requested, and not a part of it."""
        return self.address.run is not None and not {"q", "tags"} & self.address.options.keys()

    @property
    def _is_whole(self) -> bool:
        """Whether the end of the requested run was found, and all episodes that it states."""
        return self._has_end and not self.is_part

    @property
    def is_part(self) -> bool:
        """Whether fewer episodes of the requested run were found than the run states."""
        asks_for_all = self.address.run is not None and not self.address.traces
        return asks_for_all and len(self._episodes) < sum(self._stated.values())

    def read_trace(self, trace_id: str) -> list[SpanRecord]:
        """The spans of a trace; raises ReadError for any invalid response."""
        with self._invalid_responses():
            return self.trace(trace_id)

    def _searched(self) -> Iterator[str]:
        with self._invalid_responses():
            yield from self.search()

    @contextmanager
    def _invalid_responses(self) -> Iterator[None]:
        """Raise ReadError for JSON that is not a response of this kind of store."""
        try:
            yield
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            scheme, url = self.address.scheme, self.address.url
            raise ReadError(
                f"{url} does not respond like {scheme}: {error!r}; is another program at that port?"
            ) from error

    def _limited(self, trace_ids: Iterator[str]) -> Iterator[str]:
        count = 0
        for count, trace_id in enumerate(trace_ids, start=1):
            if count > self.address.limit:
                break
            yield trace_id
        if count >= self.address.limit:
            self.losses.append(
                f"{self.address.limit:,} traces were found, and no more are requested; limit=N requests more"
            )

    def _add_losses(self, span: SpanRecord) -> None:
        if span.dropped_attributes:
            self.losses.append(
                f"span {span.name!r} ({span.span_id}) lost {span.dropped_attributes} attributes"
            )

    @abstractmethod
    def search(self) -> Iterator[str]:
        """Ids of the requested traces."""

    @abstractmethod
    def trace(self, trace_id: str) -> list[SpanRecord]:
        """The spans of a trace; empty if the store does not have it."""

    def doubt(self, trace_id: str) -> str:  # noqa: ARG002 - for subclasses
        """Why the store's interface can't show a trace that was read completely; empty if it can."""
        return ""

    def nothing(self) -> str:
        """The message if no trace was found."""
        of = f" of run {self.address.run}" if self.address.run else ""
        return f"no trace{of} was found; check the address and how long the store keeps traces"

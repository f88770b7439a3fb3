"""What every trace store is to a reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.reading.stores.address import Address
from mttp.semconv import attributes as a

__all__ = ["Store"]

_FAILURES = 3
"""So many traces in a row that can't be had are the store's own trouble."""


class Store(ABC):
    """A trace store's query API, asked when its spans are."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.losses: list[str] = []
        """What the store is seen to have lost, or not to have given, in a sentence each."""
        self._episodes: set[str] = set()
        """Traces of episodes that were found."""
        self._stated: dict[str, int] = {}
        """How many episodes each process of the run that is asked for began, by its run span."""
        self._has_end = False
        """Whether the end of the run that is asked for was found."""

    def __repr__(self) -> str:
        return f"{self.address.scheme}:{self.address.url}"

    def records(self) -> Iterator[SpanRecord]:
        """
        The spans of the traces that the address means, trace by trace.

        Raises ReadError where the store can't be asked, or has none of them.
        """
        found = failed = 0
        self._episodes.clear()
        self._stated.clear()
        self._has_end = False
        for trace_id in self.address.traces or self._limited(self._searched()):
            try:
                spans = self.asked(trace_id)
            except ReadError as error:
                failed += 1
                if failed == _FAILURES:  # then it is not about the traces
                    raise
                self.losses.append(f"trace {trace_id} can't be had: {error}")
                continue
            found, failed = found + bool(spans), 0
            for span in spans:
                self._count(span)
                self._look_for_losses(span)
                yield span
        if not found:
            raise ReadError(self.losses[0] if self.losses else f"{self.address}: {self.nothing()}")
        if self.is_part:
            counts = f"{len(self._episodes):,} of {sum(self._stated.values()):,}"
            self.losses.append(
                f"{counts} episodes of run {self.address.run} were found; "
                "the others are not there yet, or are lost"
            )

    def _count(self, span: SpanRecord) -> None:
        if span.attributes.get(a.RUN_ID) != self.address.run:
            return
        if a.EPISODE_ID in span.attributes:
            self._episodes.add(span.trace_id)
        elif a.RUN_STATUS in span.attributes:
            self._has_end = True
            self._stated[span.span_id] = int(span.attributes.get(a.RUN_EPISODE_COUNT, 0))

    @property
    def is_part(self) -> bool:
        """Whether fewer episodes of the run that is asked for were found than the run states."""
        asks_for_all = self.address.run is not None and not self.address.traces
        return asks_for_all and len(self._episodes) < sum(self._stated.values())

    def asked(self, trace_id: str) -> list[SpanRecord]:
        """As `trace`, which raises ReadError whatever the store answers instead."""
        with self._understanding():
            return self.trace(trace_id)

    def _searched(self) -> Iterator[str]:
        with self._understanding():
            yield from self.search()

    @contextmanager
    def _understanding(self) -> Iterator[None]:
        """What is JSON may still be another program's."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            scheme, url = self.address.scheme, self.address.url
            raise ReadError(
                f"{url} does not answer as {scheme} does: {error!r}; is another program at that port?"
            ) from error

    def _limited(self, trace_ids: Iterator[str]) -> Iterator[str]:
        count = 0
        for count, trace_id in enumerate(trace_ids, start=1):
            if count > self.address.limit:
                break
            yield trace_id
        if count >= self.address.limit:
            self.losses.append(
                f"{self.address.limit:,} traces were found, and no more are asked for; limit=N asks for more"
            )

    def _look_for_losses(self, span: SpanRecord) -> None:
        if span.dropped_attributes:
            self.losses.append(
                f"span {span.name!r} ({span.span_id}) lost {span.dropped_attributes} attributes"
            )

    @abstractmethod
    def search(self) -> Iterator[str]:
        """Ids of the traces that the address means."""

    @abstractmethod
    def trace(self, trace_id: str) -> list[SpanRecord]:
        """The spans of a trace, none where the store does not have it."""

    def doubt(self, trace_id: str) -> str:  # noqa: ARG002 - for those who have any
        """Why people may not see a trace that this reader got whole; empty where they do."""
        return ""

    def nothing(self) -> str:
        """What is said where no trace was found."""
        of = f" of run {self.address.run}" if self.address.run else ""
        return f"no trace{of} was found there; check the address and how far back it keeps traces"

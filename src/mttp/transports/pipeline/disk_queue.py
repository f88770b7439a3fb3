"""Spans of a pipeline that wait in a spool, and those of ended processes that it sends too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mttp.codec.profiles import unpacked
from mttp.model import clock
from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.model.spans import Scope
from mttp.otlp.frames import Frame
from mttp.otlp.spans.span_records import framed
from mttp.transports.file import readable_lines
from mttp.transports.pipeline.losses import LOG_SECONDS, Losses
from mttp.transports.spool import Spool, SpoolFolder, SpoolFullError
from mttp.transports.stats import TransportStats

__all__ = ["DiskQueue"]


class DiskQueue:
    """
    A queue of spans in a spool, in the order in which they ended.

    Only the thread that exports calls it, but for `put`. Spans of this process come first; then those that
    ended processes have left, which `stats.forwarded` counts.
    """

    def __init__(self, spool: Spool, stats: TransportStats, losses: Losses) -> None:
        self.full_cause = ""
        """The cause of losses while nothing can be put: spool_full or spool_failed; else empty."""
        self._spool = spool
        self._stats = stats
        self._losses = losses
        self._source: SpoolFolder | None = None
        """The folder of the spans in `_batch`."""
        self._batch: list[Frame] = []
        """Spans of the last batch that are to be sent again."""
        self._scopes: list[Scope] = []
        """The scopes of the batch."""
        self._logged: dict[str, float] = {}

    @property
    def has_own(self) -> bool:
        """Whether spans of this process wait."""
        return self._stats.spooled > 0

    @property
    def has_work(self) -> bool:
        """Whether any spans wait; looks for those of ended processes."""
        return self.has_own or self._spool.adopted() is not None

    def put(self, spans: Sequence[Frame]) -> Sequence[Frame]:
        """Write spans to the spool, and return them if that is impossible."""
        before, left = self._spool.own, spans
        try:
            lines, left = self._encoded(spans)
            if lines:
                self._spool.append(lines)
        except (OSError, MemoryError) as error:
            self.full_cause = "spool_full" if isinstance(error, SpoolFullError) else "spool_failed"
            self._log("can't be written to the spool %s and wait in memory: %s", error)
            return left
        self.full_cause = ""
        with self._stats.lock:
            if self._spool.own is not before:
                self._lose_own()  # another program deleted the folder
            self._stats.spooled += len(left)
        return ()

    def _encoded(self, spans: Sequence[Frame]) -> tuple[bytes, Sequence[Frame]]:
        """Return lines and their spans; spans that can't be encoded, or stay too long, are lost."""
        lines, cause = b"", "too_large"
        try:
            lines, lost = readable_lines(spans)
        except MemoryError:
            raise
        except Exception as error:  # spans of other libraries may be invalid
            raise_interrupt(error)
            if len(spans) > 1:
                parts = [self._encoded([span]) for span in spans]
                return b"".join(line for line, _ in parts), [span for _, left in parts for span in left]
            lost, cause = spans, "invalid"
        with self._stats.lock:
            for span in lost:
                self._losses.add(span.trace_id, [span], cause)
        gone = set(map(id, lost))
        return lines, [span for span in spans if id(span) not in gone]

    def log_unreadable(self, error: OSError) -> None:
        """Log that `take` raised an error, at most once a minute."""
        self._log("can't be read from the spool %s and stay there: %s", error)

    def _log(self, what: str, error: OSError | MemoryError) -> None:
        now = clock.seconds()
        if now - self._logged.get(what, float("-inf")) > LOG_SECONDS:
            self._logged[what] = now
            log.warning(f"mttp: spans {what}", self._spool.directory, error)

    def take(self, max_bytes: int) -> list[Frame]:
        """
        Return the next spans, about `max_bytes` of them; the same ones until `settle` takes them.

        Raises OSError if a file can't be read now.
        """
        while not self._batch and self.has_work:
            self._source = self._spool.own if self.has_own else self._spool.adopted()
            segment = self._source.take(max_bytes) if self._source is not None else None
            if self._source is None or segment is None:
                self._end_of_folder()
                continue
            self._scopes = list({id(record.scope): record.scope for record in segment.records}.values())
            self._batch = [
                framed(replace(record, attributes=unpacked(record.attributes))) for record in segment.records
            ]
            if segment.damaged and not self.has_own:  # those of this process are counted at the end
                with self._stats.lock:
                    self._stats.forwarded["spool_damaged"] += segment.damaged
            if not self._batch:
                self._source.advance()
        return self._batch

    def _end_of_folder(self) -> None:
        """Delete a folder without further spans; what its process counted beyond them is lost."""
        if not self.has_own:
            self._spool.remove_adopted()
            return
        self._spool.remove_own()
        with self._stats.lock:
            self._lose_own()

    def _lose_own(self) -> None:
        """Count what should be on disk as lost. Called under the lock of the counters."""
        if self._stats.spooled:
            self._stats.lose("spool_damaged", self._stats.spooled)
            self._stats.spooled, self._batch = 0, []

    def settle(self, kept: Sequence[Frame], rejected: Counter[str]) -> bool:
        """
        Keep these spans of the last batch, and forget the others, which were sent or rejected.

        Return whether the batch was of this process. Called under the lock of the counters.
        """
        if not self._batch:
            return False
        gone = len(self._batch) - len(kept)
        is_own = self._source is not None and self._source is self._spool.own
        if is_own:
            self._stats.spooled = max(self._stats.spooled - gone, 0)
        else:
            self._stats.forwarded.update(rejected)
            self._stats.forwarded["delivered"] += gone - rejected.total()
        named = set(map(id, kept))
        self._batch = [span for span in self._batch if id(span) in named]
        if not self._batch and self._source is not None:
            self._source.advance()
            if is_own and not self._stats.spooled:
                self._spool.remove_own()
        return is_own

"""Memory: MTTP's channel. Episodes stay in this process, arrays and all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.codec.episodes import is_episode
from mttp.codec.profiles import full
from mttp.errors import TransportError
from mttp.readable import record
from mttp.spans import SpanRecord
from mttp.transports.options import positive, take

__all__ = ["MemoryTransport", "open"]


class MemoryTransport(SpanExporter):
    """
    Keeps spans by trace; with `max_episodes`, the oldest episodes go first, whole, counted in `evicted`.

    Memory grows without bound otherwise.
    """

    def __init__(self, *, max_episodes: int | None = None) -> None:
        self.max_episodes = max_episodes
        self.evicted = 0
        self._traces: dict[str, list[SpanRecord]] = {}
        self._episodes: deque[str] = deque()
        self._lock = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the spans."""
        with self._lock:
            for span in spans:
                self._keep(record(span, full))
        return SpanExportResult.SUCCESS

    def _keep(self, kept: SpanRecord) -> None:
        if kept.trace_id not in self._traces and is_episode([kept]):
            self._episodes.append(kept.trace_id)
        self._traces.setdefault(kept.trace_id, []).append(kept)
        if self.max_episodes is not None and len(self._episodes) > self.max_episodes:
            del self._traces[self._episodes.popleft()]
            self.evicted += 1

    def records(self) -> Iterator[SpanRecord]:
        """The spans that are kept, trace by trace."""
        with self._lock:
            kept = [record for trace in self._traces.values() for record in trace]
        return iter(kept)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._traces.clear()
            self._episodes.clear()

    def shutdown(self) -> None:
        """Nothing is released: what was recorded stays readable."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Nothing waits."""
        return True

    def __repr__(self) -> str:
        return "memory://" if self.max_episodes is None else f"memory://?max_episodes={self.max_episodes}"


def open(path: str, options: Mapping[str, str]) -> MemoryTransport:
    """`memory://`, bounded where `max_episodes` says so."""
    if path:
        raise TransportError(f"memory has no path, not even {path!r}")
    return MemoryTransport(**take(options, max_episodes=positive))  # type: ignore[arg-type]  # parsed just now

"""Losses by cause, and those that no gap span reports yet."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from mttp.otlp.spans import EndedSpan
from mttp.transports.partial_export import RejectedSpans
from mttp.transports.stats import TransportStats

__all__ = ["LOG_SECONDS", "Loss", "Losses"]

_log = logging.getLogger("mttp")

LOG_SECONDS = 60.0
"""The same trouble is mentioned in the log this often."""


@dataclass(slots=True)
class Loss:
    """What was lost by one cause."""

    cause: str
    since: int = field(default_factory=time.time_ns)
    """When it began, in nanoseconds since the Unix epoch."""
    spans: int = 0
    episodes: int = 0
    whole: bool = True
    """Whether they are whole episodes."""


class Losses:
    """
    Counts what is lost, by cause.

    Of an episode that lost something the rest goes too: steps without the others would mislead.
    """

    def __init__(self, stats: TransportStats) -> None:
        self._stats = stats
        self._causes: dict[int, str] = {}
        self._counted: set[int] = set()
        self._untold: dict[str, Loss] = {}
        self._logged: dict[str, float] = {}
        self._mute_at = -1

    def __bool__(self) -> bool:
        """Whether there are episodes that lost something and are not over."""
        return bool(self._causes)

    def __contains__(self, trace_id: int) -> bool:
        return trace_id in self._causes

    def add(self, trace_id: int, spans: Sequence[EndedSpan], cause: str = "") -> None:
        """Lose spans of one trace; the cause is that of its first ones."""
        cause = self._causes.setdefault(trace_id, cause)
        self._lose(cause, len(spans), self._episodes(trace_id, spans))
        if any(span.is_last for span in spans):
            del self._causes[trace_id]  # nothing more of it comes

    def reject(self, rejection: RejectedSpans, spans: Sequence[EndedSpan]) -> None:
        """Lose what a receiver turned down of these spans; the rest of their episodes may still be taken."""
        episodes = {span.trace_id for span in spans if span.of_episode} - self._counted
        if rejection.spans == len(spans):  # else it is unknown which
            self._counted |= episodes
            self._counted -= {span.trace_id for span in spans if span.is_last}
        lost = min(rejection.episodes, len(episodes))
        self._lose(rejection.cause, rejection.spans, lost).whole = False
        self._mute_at = self._stats.delivered

    def leave(self, trace_id: int, spans: Sequence[EndedSpan], cause: str) -> None:
        """Count spans that are lost at the end, when no gap span can be written."""
        self._stats.lose(cause, len(spans), episodes=self._episodes(trace_id, spans))

    def _episodes(self, trace_id: int, spans: Sequence[EndedSpan]) -> int:
        """How many episodes lose something for the first time with these spans: one or none."""
        is_first = trace_id not in self._counted and any(span.of_episode for span in spans)
        if any(span.is_last for span in spans):
            self._counted.discard(trace_id)
        elif is_first:
            self._counted.add(trace_id)
        return int(is_first)

    def _lose(self, cause: str, spans: int, episodes: int) -> Loss:
        loss = self._untold.setdefault(cause, Loss(cause))
        loss.spans += spans
        loss.episodes += episodes
        self._stats.lose(cause, spans, episodes=episodes)
        return loss

    def tell(self) -> list[Loss]:
        """What was lost since the last time; nothing as long as nothing is taken: it would be lost, too."""
        if not self._untold or self._mute_at == self._stats.delivered:
            return []
        self._mute_at = self._stats.delivered
        told, self._untold = self._untold, {}
        return list(told.values())

    def log(self) -> None:
        """Say in the log that something is being lost."""
        for loss in list(self._untold.values()) if self._untold else ():
            now = time.monotonic()
            if now - self._logged.get(loss.cause, float("-inf")) > LOG_SECONDS:
                self._logged[loss.cause] = now
                what = "whole episodes" if loss.whole else "spans"
                _log.warning("mttp: %s: %s are lost, and counted in session.stats", loss.cause, what)

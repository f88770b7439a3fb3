"""Episodes of which something was lost, and what nobody was told of it yet."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from mttp.livespan import LiveSpan
from mttp.stats import Stats

__all__ = ["Loss", "Losses"]

_log = logging.getLogger("mttp")


@dataclass(slots=True)
class Loss:
    """What was lost by one cause."""

    cause: str
    since: int = field(default_factory=time.time_ns)
    """When it began, in nanoseconds since the Unix epoch."""
    spans: int = 0
    episodes: int = 0
    logged: bool = False


class Losses:
    """
    Counts what is lost, by cause.

    Of an episode that lost something the rest goes too: steps without the others would mislead.
    """

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._causes: dict[int, str] = {}
        self._untold: dict[str, Loss] = {}

    def __contains__(self, trace_id: int) -> bool:
        return trace_id in self._causes

    def add(self, trace_id: int, spans: Sequence[LiveSpan], cause: str = "") -> None:
        """Lose spans of one trace; the cause is that of its first ones."""
        episodes = 0 if trace_id in self._causes else 1
        cause = self._causes.setdefault(trace_id, cause)
        loss = self._untold.setdefault(cause, Loss(cause))
        loss.spans += len(spans)
        loss.episodes += episodes
        self._stats.lose(cause, len(spans), episodes=episodes)
        if any(span.parent is None for span in spans):
            del self._causes[trace_id]  # that was the root: nothing more of it comes

    def tell(self) -> list[Loss]:
        """What was lost since the last time."""
        told, self._untold = self._untold, {}
        return list(told.values())

    def log(self) -> None:
        """Say in the log that something is being lost, once until it was told."""
        for loss in list(self._untold.values()) if self._untold else ():
            if not loss.logged:
                loss.logged = True
                _log.warning("mttp: %s: whole episodes are lost, and counted in session.stats", loss.cause)

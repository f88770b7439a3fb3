"""What a session has recorded, delivered and lost, counted."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

__all__ = ["Stats"]


class Stats:
    """
    Counters of one session in one process; reading them is always safe.

    Every recorded span is delivered or lost in the end: `spans == delivered + pending + sum(lost.values())`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while counters change; reentrant, since a signal may interrupt whoever holds it."""
        self.episodes = 0
        """Episodes started."""
        self.steps = 0
        """Steps started."""
        self.spans = 0
        """Spans recorded: steps, episodes, calls, rewards, and the few that a run needs."""
        self.delivered = 0
        """Spans that the transport took."""
        self.lost: Counter[str] = Counter()
        """Spans lost, by cause."""
        self.lost_episodes = 0
        """Episodes of which something was lost."""
        self.faults: Counter[str] = Counter()
        """What was wrong with what was recorded, by kind."""
        self.blocked_seconds = 0.0
        """How long callers waited for a full buffer."""

    @property
    def pending(self) -> int:
        """Spans recorded and not yet delivered or lost."""
        with self.lock:
            return self.spans - self.delivered - sum(self.lost.values())

    def lose(self, cause: str, spans: int, *, episodes: int = 0) -> None:
        """Count spans as lost."""
        with self.lock:
            self.lost[cause] += spans
            self.lost_episodes += episodes

    def fault(self, kind: str) -> bool:
        """Count a fault; whether it is the first of its kind."""
        with self.lock:
            self.faults[kind] += 1
            return self.faults[kind] == 1

    def as_dict(self) -> dict[str, Any]:
        """All counters by name, as they stood at one moment."""
        with self.lock:
            return {
                "episodes": self.episodes,
                "steps": self.steps,
                "spans": self.spans,
                "delivered": self.delivered,
                "pending": self.pending,
                "lost": dict(self.lost),
                "lost_episodes": self.lost_episodes,
                "faults": dict(self.faults),
                "blocked_seconds": self.blocked_seconds,
            }

    def __repr__(self) -> str:
        return f"Stats({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"

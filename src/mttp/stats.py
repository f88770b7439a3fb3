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
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Start from zero, as a forked child does."""
        self.episodes = 0
        """Episodes started."""
        self.steps = 0
        """Steps started."""
        self.spans = 0
        """Spans recorded."""
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
        with self._lock:
            return self.spans - self.delivered - sum(self.lost.values())

    def add(self, **counts: float) -> None:
        """Add to counters by name."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def lose(self, cause: str, *, spans: int, episodes: int = 0) -> None:
        """Count spans as lost."""
        with self._lock:
            self.lost[cause] += spans
            self.lost_episodes += episodes

    def fault(self, kind: str) -> bool:
        """Count a fault; whether it is the first of its kind."""
        with self._lock:
            self.faults[kind] += 1
            return self.faults[kind] == 1

    def as_dict(self) -> dict[str, Any]:
        """All counters by name."""
        with self._lock:
            pending = self.spans - self.delivered - sum(self.lost.values())
            return {
                "episodes": self.episodes,
                "steps": self.steps,
                "spans": self.spans,
                "delivered": self.delivered,
                "pending": pending,
                "lost": dict(self.lost),
                "lost_episodes": self.lost_episodes,
                "faults": dict(self.faults),
                "blocked_seconds": self.blocked_seconds,
            }

    def __repr__(self) -> str:
        return f"Stats({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"

"""What a session has recorded, delivered and lost, counted."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mttp.model import ids
from mttp.model.counters import given, numbers

__all__ = ["MAX_PLACES", "Stats", "TransportStats"]

MAX_PLACES = 100
"""Places of one kind of fault that are told apart, so that memory stays bounded."""


@dataclass(slots=True)
class TransportStats:
    """
    Counters of one transport; every recorded span is delivered or lost in the end.

    `recorded == delivered + pending + sum(lost.values())`, always; `as_dict` shows them all at one moment.
    """

    name: str = ""
    """What sort of transport it is: memory, file, otlp, …"""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)
    """Held while counters change."""
    taken: int = 0
    """Spans that the transport is to deliver, but for those in `arrivals`."""
    arrivals: deque[Any] = field(default_factory=deque, repr=False, compare=False)
    """What ended just now, a span or several at once, and was not looked at yet."""
    delivered: int = 0
    """Spans that it took."""
    lost: Counter[str] = field(default_factory=Counter)
    """Spans lost, by cause."""
    lost_episodes: int = 0
    """Episodes of which something was lost."""
    sampled_out: int = 0
    """Spans that sampling kept from it; they are not among the recorded ones."""
    blocked_seconds: float = 0.0
    """How long callers waited for its full buffer."""
    waiting_bytes: int = 0
    """Roughly what waits for it, in bytes, when it was last looked at."""

    @property
    def recorded(self) -> int:
        """Spans that the transport is to deliver."""
        with self.lock:
            return self.taken + len(self.arrivals)

    @property
    def pending(self) -> int:
        """Spans recorded and not yet delivered or lost."""
        with self.lock:
            return self.recorded - self.delivered - sum(self.lost.values())

    def lose(self, cause: str, spans: int, *, episodes: int = 0) -> None:
        """Count spans as lost."""
        self.lost[cause] += spans
        self.lost_episodes += episodes

    def as_dict(self) -> dict[str, Any]:
        """All counters by name, as they stood at one moment."""
        with self.lock:
            recorded = self.recorded  # looked at once: spans arrive without the lock
            return {
                "recorded": recorded,
                "delivered": self.delivered,
                "pending": recorded - self.delivered - sum(self.lost.values()),
                "lost": dict(self.lost),
                "lost_episodes": self.lost_episodes,
                "sampled_out": self.sampled_out,
                "blocked_seconds": self.blocked_seconds,
            }


class Stats:
    """
    Counters of one session in one process; reading them is always safe.

    What is said of delivery is the sum over the transports; `transports[address]` says it of each:
    `recorded == delivered + pending + sum(lost.values())`, always; with one transport `recorded` is `spans`.
    """

    def __init__(self, transports: Iterable[tuple[str, str]] = ()) -> None:
        """Of `transports`, by address and name."""
        self.lock = threading.RLock()
        """Held while counters change; reentrant, since a signal handler may interrupt its holder."""
        self.begun = numbers()
        """Counts the episodes, whose indices these are."""
        self.stepped = ids.span_ids()
        """Counts the steps that are handles, whose spans' ids these are."""
        self.packed = numbers()
        """Counts the steps that are no handles."""
        self.faults: Counter[str] = Counter()
        """What was wrong with what was recorded, by kind."""
        self._places: dict[str, set[str]] = {}
        self.failures: Counter[tuple[str, str]] = Counter()
        """How often integrations failed to observe, by library and class of error; faults have it, too."""
        self.transports: dict[str, TransportStats] = {}
        """What became of the spans, by the transport's address."""
        for address, name in transports:
            self.transports[self._distinct(address)] = TransportStats(name, self.lock)

    def _distinct(self, address: str) -> str:
        number, distinct = 1, address
        while distinct in self.transports:
            number += 1
            distinct = f"{address} ({number})"
        return distinct

    @property
    def episodes(self) -> int:
        """Episodes started."""
        return given(self.begun)

    @property
    def steps(self) -> int:
        """Steps started."""
        return given(self.stepped) + given(self.packed)

    @property
    def spans(self) -> int:
        """Spans recorded: steps, episodes, calls, rewards, and the few that a run needs."""
        with self.lock:
            return max((each.recorded + each.sampled_out for each in self.transports.values()), default=0)

    @property
    def recorded(self) -> int:
        """Spans to be delivered, once for each transport that is to have them."""
        return self._sum("recorded")

    @property
    def delivered(self) -> int:
        """Spans that the transports took."""
        return self._sum("delivered")

    @property
    def pending(self) -> int:
        """Spans recorded and not yet delivered or lost."""
        return self._sum("pending")

    @property
    def lost(self) -> Counter[str]:
        """Spans lost, by cause."""
        with self.lock:
            return sum((each.lost for each in self.transports.values()), Counter())

    @property
    def lost_episodes(self) -> int:
        """Episodes of which something was lost, once for each transport that lost it."""
        return self._sum("lost_episodes")

    @property
    def sampled_out(self) -> int:
        """Spans that sampling kept from a transport; they are not among the recorded ones."""
        return self._sum("sampled_out")

    @property
    def blocked_seconds(self) -> float:
        """How long callers waited for a full buffer."""
        with self.lock:
            return sum(each.blocked_seconds for each in self.transports.values())

    def _sum(self, name: str) -> int:
        with self.lock:
            return sum(getattr(each, name) for each in self.transports.values())

    def fault(self, kind: str, place: str = "") -> bool:
        """
        Count a fault; whether it is the first of its kind at `place`, such as a component.

        Of each kind the first `MAX_PLACES` places are told apart.
        """
        with self.lock:
            self.faults[kind] += 1
            places = self._places.setdefault(kind, set())
            is_new = place not in places and len(places) < MAX_PLACES
            if is_new:
                places.add(place)
            return is_new

    def failed(self, library: str, error_type: str) -> None:
        """Count a failure of an integration."""
        with self.lock:
            self.failures[library, error_type] += 1

    def as_dict(self) -> dict[str, Any]:
        """All counters by name, as they stood at one moment."""
        with self.lock:
            each = {name: transport.as_dict() for name, transport in self.transports.items()}
            found = each.values()
            return {
                "episodes": self.episodes,
                "steps": self.steps,
                "spans": max((one["recorded"] + one["sampled_out"] for one in found), default=0),
                "recorded": sum(one["recorded"] for one in found),
                "delivered": self.delivered,
                "pending": sum(one["pending"] for one in found),
                "lost": dict(self.lost),
                "lost_episodes": self.lost_episodes,
                "sampled_out": self.sampled_out,
                "faults": dict(self.faults),
                "blocked_seconds": self.blocked_seconds,
                "transports": each,
            }

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.as_dict().items() if name != "transports"}
        return f"Stats({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

"""Counters of recorded, delivered and lost spans."""

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
"""Maximum number of distinct places per kind of fault, which bounds memory."""


@dataclass(slots=True)
class TransportStats:
    """
    Counters of one transport; every recorded span is eventually delivered or lost.

    `recorded == delivered + pending + sum(lost.values())` at every moment; `as_dict` is a consistent copy.
    """

    name: str = ""
    """The kind of transport: memory, file, otlp, …"""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)
    """Held while counters change."""
    taken: int = 0
    """Recorded spans except those in `arrivals`."""
    arrivals: deque[Any] = field(default_factory=deque, repr=False, compare=False)
    """Ended spans that the pipeline has not counted yet."""
    delivered: int = 0
    """Spans that the transport accepted."""
    lost: Counter[str] = field(default_factory=Counter)
    """Spans lost, by cause."""
    lost_episodes: int = 0
    """Episodes that lost at least one span."""
    sampled_out: int = 0
    """Spans that sampling excluded; they are not counted as recorded."""
    blocked_seconds: float = 0.0
    """Seconds for which a full queue blocked callers."""
    spooled: int = 0
    """Spans that wait on disk; they are counted as pending."""
    forwarded: Counter[str] = field(default_factory=Counter)
    """Spans of ended processes that were sent from the spool: `delivered`, or the cause of their loss."""
    waiting_bytes: int = 0
    """Approximate bytes in the queue at the last check."""

    @property
    def recorded(self) -> int:
        """Spans recorded for the transport."""
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
            recorded = self.recorded  # read once: spans arrive without the lock
            return {
                "recorded": recorded,
                "delivered": self.delivered,
                "pending": recorded - self.delivered - sum(self.lost.values()),
                "spooled": self.spooled,
                "lost": dict(self.lost),
                "lost_episodes": self.lost_episodes,
                "sampled_out": self.sampled_out,
                "forwarded": dict(self.forwarded),
                "blocked_seconds": self.blocked_seconds,
            }


class Stats:
    """
    Counters of one session in one process; reading them is always safe.

    Counters of spans are sums over the transports; `transports[address]` has the counters of each.
    `recorded == delivered + pending + sum(lost.values())` at every moment.
    """

    def __init__(self, transports: Iterable[tuple[str, str]] = ()) -> None:
        """`transports` are pairs of address and name."""
        self.lock = threading.RLock()
        """Held while counters change; reentrant, since a signal handler may interrupt its holder."""
        self.begun = numbers()
        """Generates the indices of episodes, and so counts them."""
        self.stepped = ids.span_ids()
        """Generates the span ids of steps with handles, and so counts them."""
        self.packed = numbers()
        """Counts the steps without handles."""
        self.faults: Counter[str] = Counter()
        """Number of faults by kind."""
        self._places: dict[str, set[str]] = {}
        self.failures: Counter[tuple[str, str]] = Counter()
        """Failures of integrations by library and class of error; `faults` counts them too."""
        self.transports: dict[str, TransportStats] = {}
        """The counters of each transport, by address."""
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
        """Spans recorded, once for each transport."""
        return self._sum("recorded")

    @property
    def delivered(self) -> int:
        """Spans that the transports accepted."""
        return self._sum("delivered")

    @property
    def pending(self) -> int:
        """Spans recorded and not yet delivered or lost."""
        return self._sum("pending")

    @property
    def spooled(self) -> int:
        """Spans that wait on disk; they are counted as pending."""
        return self._sum("spooled")

    @property
    def forwarded(self) -> Counter[str]:
        """Spans of ended processes that were sent from a spool: `delivered`, or the cause of their loss."""
        with self.lock:
            return sum((each.forwarded for each in self.transports.values()), Counter())

    @property
    def lost(self) -> Counter[str]:
        """Spans lost, by cause."""
        with self.lock:
            return sum((each.lost for each in self.transports.values()), Counter())

    @property
    def lost_episodes(self) -> int:
        """Episodes that lost at least one span, once for each transport."""
        return self._sum("lost_episodes")

    @property
    def sampled_out(self) -> int:
        """Spans that sampling excluded; they are not counted as recorded."""
        return self._sum("sampled_out")

    @property
    def blocked_seconds(self) -> float:
        """Seconds for which full queues blocked callers."""
        with self.lock:
            return sum(each.blocked_seconds for each in self.transports.values())

    def _sum(self, name: str) -> int:
        with self.lock:
            return sum(getattr(each, name) for each in self.transports.values())

    def fault(self, kind: str, place: str = "") -> bool:
        """
        Count a fault, and return whether it is the first of its kind at `place`, such as a component.

        After `MAX_PLACES` places of a kind, new places return False.
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
            by_name = {name: transport.as_dict() for name, transport in self.transports.items()}
            counters = by_name.values()
            return {
                "episodes": self.episodes,
                "steps": self.steps,
                "spans": max((counts["recorded"] + counts["sampled_out"] for counts in counters), default=0),
                "recorded": sum(counts["recorded"] for counts in counters),
                "delivered": self.delivered,
                "pending": sum(counts["pending"] for counts in counters),
                "spooled": self.spooled,
                "lost": dict(self.lost),
                "lost_episodes": self.lost_episodes,
                "sampled_out": self.sampled_out,
                "forwarded": dict(self.forwarded),
                "faults": dict(self.faults),
                "blocked_seconds": self.blocked_seconds,
                "transports": by_name,
            }

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.as_dict().items() if name != "transports"}
        return f"Stats({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

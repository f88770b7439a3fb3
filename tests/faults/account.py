"""What a session counted beside what arrived, which is counted without mttp's readers."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mttp
from mttp.testing import OtlpReceiver

__all__ = ["Account", "Recording", "arrived_at", "arrived_in_files", "counters", "recording"]


@dataclass
class Account:
    """One fault's measurement."""

    recorded: int = 0
    delivered: int = 0
    pending: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    arrived: Counter[str] = field(default_factory=Counter)
    """How often each span arrived, by its id."""
    moments: int = 0
    """How often the counters were read while the fault lasted."""
    wrong_moments: list[dict[str, Any]] = field(default_factory=list)
    """Counters that did not add up."""
    steps: int = 0
    """Steps that the loop counts itself."""
    counted_steps: int = 0
    """Steps by the session's counter."""
    longest: float = 0.0
    """Seconds of the longest call that records a step or an episode."""
    closed: bool | None = None
    """What `close` returned; None if the process ended without it."""
    note: str = ""
    """What else was measured."""

    def __str__(self) -> str:
        lost = ", ".join(f"{count:,} {cause}" for cause, count in sorted(self.lost.items()))
        parts = [f"{self.delivered:,} delivered"]
        parts += [f"{self.pending:,} pending"] if self.pending else []
        parts += [f"{self.lost.total():,} lost ({lost})"] if lost else []
        words = [f"{self.recorded:,} recorded = {' + '.join(parts)}", f"{len(self.arrived):,} arrived"]
        if self.recorded == self.delivered == len(self.arrived):
            words = [f"{self.recorded:,} recorded, delivered and arrived"]
        if again := self.arrived.total() - len(self.arrived):
            words.append(f"{again:,} of them again")
        words += [self.note] if self.note else []
        return "; ".join(words)

    def check(self, *, lost: Iterable[str] = (), pending: bool = False, again: bool = False) -> None:
        """
        Check that everything adds up, and that nothing was lost but for these causes.

        With `pending`, spans may wait on disk; with `again`, some may arrive twice.
        """
        assert [] == self.wrong_moments
        assert self.recorded == self.delivered + self.pending + self.lost.total()
        assert self.delivered == len(self.arrived)
        assert set(lost) == set(self.lost)
        assert pending == (self.pending > 0)
        assert again or self.arrived.total() == len(self.arrived)
        assert self.steps == self.counted_steps
        assert self.closed in (None, not self.lost and not self.pending)
        assert self.recorded > self.steps > 0

    def add(self, other: Account) -> None:
        """Add the account of another process."""
        for name in ("recorded", "delivered", "pending", "moments", "steps", "counted_steps"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lost += other.lost
        self.wrong_moments += other.wrong_moments
        self.longest = max(self.longest, other.longest)


class Recording:
    """A loop that records episodes, and a thread that reads the counters all the time."""

    def __init__(self, session: mttp.Session, account: Account) -> None:
        self.session, self.account = session, account
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def train(self, seconds: float = 0.3, *, until: Any = None) -> None:
        """Record episodes of five steps for some time, or until `until()` is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (until is not None and until()):
            began = time.perf_counter()
            with mttp.episode(env="toy", task=f"task/{self.account.steps % 7}") as episode:
                for number in range(5):
                    with episode.step() as step:
                        step.tokens([1, 2, number], logprobs=[-0.1, -0.2, -0.3])
                        step.reward(1.0)
                    self.account.steps += 1
            self.account.longest = max(self.account.longest, time.perf_counter() - began)
            time.sleep(0.001)

    def _watch(self) -> None:
        delivered = 0
        while not self._ended.wait(0.002):
            now = counters(self.session)
            is_sum = now["recorded"] == now["delivered"] + now["pending"] + sum(now["lost"].values())
            if not is_sum or now["pending"] < 0 or now["delivered"] < delivered:
                self.account.wrong_moments.append(now)
            delivered = now["delivered"]
            self.account.moments += 1

    def end(self, timeout: float | None = None) -> None:
        """Close the session, and take its counters."""
        self.account.closed = self.session.close(timeout)
        self._ended.set()
        self._watcher.join()
        self.take_counters()

    def take_counters(self) -> None:
        """Enter the session's counters into the account."""
        now = counters(self.session)
        self.account.recorded, self.account.delivered = now["recorded"], now["delivered"]
        self.account.pending, self.account.lost = now["pending"], Counter(now["lost"])
        self.account.counted_steps = self.session.stats.steps


@contextmanager
def recording(
    address: Any, account: Account, *, timeout: float | None = None, **options: Any
) -> Iterator[Recording]:
    """Record to one transport, and close at the end."""
    loop = Recording(mttp.configure(address, **options), account)
    try:
        yield loop
    finally:
        loop.end(timeout)


def counters(session: mttp.Session) -> dict[str, Any]:
    """The counters of the session's only transport."""
    (found,) = session.stats.as_dict()["transports"].values()
    return dict(found)


def arrived_at(receiver: OtlpReceiver) -> Counter[str]:
    """How often each span arrived at a receiver."""
    return Counter(span.trace_id + span.span_id for span in receiver.records())


def arrived_in_files(*paths: Path) -> Counter[str]:
    """How often each span is in whole lines of these files."""
    found: Counter[str] = Counter()
    for path in paths:
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n") and line.startswith(b"{"):
                for resource in _parsed(line).get("resourceSpans", ()):
                    for scope in resource["scopeSpans"]:
                        found.update(span["traceId"] + span["spanId"] for span in scope["spans"])
    return found


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:  # a torn line that another writer ended
        return {}

"""Lost spans by cause: counted, logged and recorded as gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mttp.model import clock
from mttp.model.log import log
from mttp.otlp.frames import Frame
from mttp.transports.partial_export import RejectedSpans
from mttp.transports.stats import TransportStats

__all__ = ["LOG_SECONDS", "Loss", "Losses"]


LOG_SECONDS = 60.0
"""Seconds between log lines about one cause."""


@dataclass(slots=True)
class Loss:
    """The spans lost for one cause."""

    cause: str
    since: int = field(default_factory=clock.wall)
    """When the loss began, in nanoseconds since the Unix epoch."""
    spans: int = 0
    episodes: int = 0
    whole: bool = True
    """Whether whole episodes were lost."""


class Losses:
    """
    Counts lost spans by cause.

    An episode that lost a span is dropped whole: some of its steps without the others would mislead.
    """

    def __init__(self, stats: TransportStats) -> None:
        self._stats = stats
        self._causes: dict[int, str] = {}
        self._counted: set[int] = set()
        self._unreported: dict[str, Loss] = {}
        self._logged: dict[str, float] = {}
        self._mute_at = -1

    def __bool__(self) -> bool:
        """Whether an open episode lost a span."""
        return bool(self._causes)

    def __contains__(self, trace_id: int) -> bool:
        return trace_id in self._causes

    def add(self, trace_id: int, spans: Sequence[Frame], cause: str = "") -> None:
        """Count spans of one trace as lost; the cause of its first loss holds."""
        cause = self._causes.setdefault(trace_id, cause)
        self._lose(cause, len(spans), self._episodes(trace_id, spans))
        if any(span.is_last for span in spans):
            del self._causes[trace_id]  # the trace has no later spans

    def reject(self, rejection: RejectedSpans, spans: Sequence[Frame]) -> None:
        """Count spans that a receiver rejected; the rest of their episodes may still be accepted."""
        episodes = {span.trace_id for span in spans if span.of_episode} - self._counted
        if rejection.spans == len(spans):  # else the receiver does not say which
            self._counted |= episodes
        lost = min(rejection.episodes, len(episodes))
        self._lose(rejection.cause, rejection.spans, lost).whole = False
        self._mute_at = self._stats.delivered

    def forget(self, spans: Sequence[Frame]) -> None:
        """Forget the episodes that end with these delivered or rejected spans."""
        if self._counted:
            self._counted -= {span.trace_id for span in spans if span.is_last}

    def leave(self, trace_id: int, spans: Sequence[Frame], cause: str) -> None:
        """Count spans as lost after the last gap record."""
        self._stats.lose(cause, len(spans), episodes=self._episodes(trace_id, spans))

    def _episodes(self, trace_id: int, spans: Sequence[Frame]) -> int:
        """How many episodes lose something for the first time with these spans: one or none."""
        is_first = trace_id not in self._counted and any(span.of_episode for span in spans)
        if any(span.is_last for span in spans):
            self._counted.discard(trace_id)
        elif is_first:
            self._counted.add(trace_id)
        return int(is_first)

    def _lose(self, cause: str, spans: int, episodes: int) -> Loss:
        loss = self._unreported.setdefault(cause, Loss(cause))
        loss.spans += spans
        loss.episodes += episodes
        self._stats.lose(cause, spans, episodes=episodes)
        return loss

    def unreported(self) -> list[Loss]:
        """Return the losses since the last call; none until the transport accepts spans again."""
        if not self._unreported or self._mute_at == self._stats.delivered:
            return []
        self._mute_at = self._stats.delivered
        reported, self._unreported = self._unreported, {}
        return list(reported.values())

    def log(self) -> None:
        """Log each cause of a loss, at most once per `LOG_SECONDS`."""
        for loss in list(self._unreported.values()) if self._unreported else ():
            now = clock.seconds()
            if now - self._logged.get(loss.cause, float("-inf")) > LOG_SECONDS:
                self._logged[loss.cause] = now
                what = "whole episodes" if loss.whole else "spans"
                log.warning("mttp: %s: %s are lost, and counted in session.stats", loss.cause, what)

"""A stretch of a process's time that is recorded apart from the rest, as tests need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from mttp.pipeline import Transport

if TYPE_CHECKING:
    from mttp.session import Session

__all__ = ["Apart"]


@dataclass(slots=True)
class Apart:
    """What is different meanwhile."""

    transports: tuple[Transport, ...]
    """Given what every session records besides its own transport; one that names none has the first."""
    before: Session | None
    """The session that was open; it is set aside, and goes on afterwards."""
    outer: Apart | None
    """The stretch that this one is part of."""
    session: Session | None = None
    """Open all the time: a session that is configured takes its place, and does not close it."""
    opened: list[Session] = field(default_factory=list)
    """The sessions that were opened meanwhile."""
    published: dict[str, str] = field(default_factory=dict)
    """Variables that are set for child processes, and mean nothing to this one."""

    def with_others(self, transport: Transport) -> Transport:
        """A session's own transport together with those that are given everything."""
        others = [other for other in self.transports if other is not transport]
        return _Together(transport, others) if others else transport

    def sessions(self) -> list[Session]:
        """All sessions that this stretch and those around it know of."""
        around = [] if self.outer is None else self.outer.sessions()
        return [*self.opened, *([] if self.before is None else [self.before]), *around]


class _Together:
    """A session's own transport, which answers for all, and others, which belong to other sessions."""

    def __init__(self, own: Transport, others: Sequence[Transport]) -> None:
        self._own = own
        self._others = others

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Give the spans to all."""
        for other in self._others:
            other.export(spans)
        return self._own.export(spans)

    def shutdown(self) -> None:
        """Release the session's own."""
        self._own.shutdown()

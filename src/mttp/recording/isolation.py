"""A stretch of a process's time that is recorded apart from the rest, as tests need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mttp.transports.export_target import ExportTarget, Transport

if TYPE_CHECKING:
    from mttp.recording.session import Session

__all__ = ["IsolatedRecording"]


@dataclass(slots=True)
class IsolatedRecording:
    """What is different meanwhile."""

    transports: tuple[Transport, ...]
    """Given what every session records besides its own transport; one that names none has the first."""
    before: Session | None
    """The session that was open; it is set aside, and goes on afterwards."""
    outer: IsolatedRecording | None
    """The stretch that this one is part of."""
    session: Session | None = None
    """Open all the time: a session that is configured takes its place, and does not close it."""
    opened: list[Session] = field(default_factory=list)
    """The sessions that were opened meanwhile."""
    published: dict[str, str] = field(default_factory=dict)
    """Variables that are set for child processes, and mean nothing to this one."""

    def with_others(self, lanes: Sequence[ExportTarget]) -> list[ExportTarget]:
        """A session's own targets, and the outer session's, which get everything."""
        own = [lane.transport for lane in lanes]
        others = [other for other in self.transports if not any(other is transport for transport in own)]
        return [*lanes, *(replace(ExportTarget.of(other), owned=False) for other in others)]

    def sessions(self) -> list[Session]:
        """All sessions that this stretch and those around it know of."""
        around = [] if self.outer is None else self.outer.sessions()
        return [*self.opened, *([] if self.before is None else [self.before]), *around]

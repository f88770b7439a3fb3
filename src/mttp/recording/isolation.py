"""The state of an isolated recording, which tests use."""

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
    """The transports and sessions of one `configuration.isolated` block."""

    transports: tuple[Transport, ...]
    """They get the spans of every session of the block; the first is the default transport."""
    before: Session | None
    """The session that was open before the block, and is restored after it."""
    outer: IsolatedRecording | None
    """The enclosing block."""
    session: Session | None = None
    """The session that is open during the block; `configure` replaces it without closing it."""
    opened: list[Session] = field(default_factory=list)
    """The sessions that were opened in the block."""
    published: dict[str, str] = field(default_factory=dict)
    """Variables that are set for child processes, and ignored in this one."""

    def with_others(self, targets: Sequence[ExportTarget]) -> list[ExportTarget]:
        """Return a session's own targets, and those of this block, which get everything."""
        own = [target.transport for target in targets]
        others = [other for other in self.transports if not any(other is transport for transport in own)]
        return [*targets, *(replace(ExportTarget.of(other), owned=False) for other in others)]

    def sessions(self) -> list[Session]:
        """Return all sessions of this block and of the enclosing ones."""
        outer = [] if self.outer is None else self.outer.sessions()
        return [*self.opened, *([] if self.before is None else [self.before]), *outer]

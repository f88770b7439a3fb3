"""The options of `instrument` and `wrap`, which all integrations share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from typing_extensions import Self

from mttp.codec.plain import scalar_text
from mttp.errors import InstrumentError
from mttp.model.episodes import Episode
from mttp.model.switches import check_switches

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `instrument` and `wrap`; a library ignores options that do not apply to it."""

    observations: bool = True
    """Whether observations are recorded."""
    actions: bool = True
    """Whether actions are recorded."""
    max_bytes: int = 65536
    """The size in bytes above which only the dtype and shape of an observation or action are recorded."""
    frames: int | None = None
    """Of every how many steps the rendered picture is recorded; of none by default."""
    policy: object = None
    """The policy's id, recorded on every episode."""
    group: object = None
    """The group's id, recorded on every episode."""
    task: object = None
    """The task's id, recorded on every episode."""
    metadata: Mapping[str, object] | None = None
    """Metadata of the user, recorded on every episode."""

    _SWITCHES: ClassVar[tuple[str, ...]] = ("observations", "actions")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Build options from keyword arguments; raises InstrumentError for an unknown name."""
        known = [item.name for item in fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise InstrumentError(f"there is no option {unknown[0]!r}; the options are {', '.join(known)}")
        return cls(**given)

    def __post_init__(self) -> None:
        if type(self.max_bytes) is not int or self.max_bytes < 0:
            raise InstrumentError(
                f"max_bytes={scalar_text(self.max_bytes):.80} is not a non-negative integer"
            )
        if self.frames is not None and (type(self.frames) is not int or self.frames < 1):
            raise InstrumentError(f"frames={scalar_text(self.frames):.80} is not a positive integer")
        if self.metadata is not None and not isinstance(self.metadata, Mapping):
            raise InstrumentError(f"metadata={scalar_text(self.metadata):.80} is not a mapping")
        check_switches(InstrumentError, {name: getattr(self, name) for name in self._SWITCHES})

    def applied(self, episode: Episode) -> Episode:
        """Return a finished episode with the stated ids and metadata, and the content that is wanted."""
        identity = {name: value for name, value in self.identity().items() if value is not None}
        dropped = [name for name in ("observation", "action") if not getattr(self, f"{name}s")]
        steps = episode.steps
        if dropped:
            without: dict[str, Any] = dict.fromkeys(dropped)
            steps = tuple(replace(step, **without) for step in steps)
        metadata = {**episode.metadata, **(self.metadata or {})}
        return replace(episode, steps=steps, metadata=metadata, **identity)

    def identity(self) -> dict[str, Any]:
        """Return the ids that are recorded on every episode."""
        return {"policy": self.policy, "group": self.group, "task": self.task}

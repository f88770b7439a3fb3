"""What the user decides about recording, whichever library it is of: one word means one thing everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from typing_extensions import Self

from mttp.errors import InstrumentError

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `instrument` and `wrap`; a library for which one says nothing ignores it."""

    observations: bool = True
    """Whether observations are recorded."""
    actions: bool = True
    """Whether actions are recorded."""
    max_bytes: int = 65536
    """Size of one observation or action beyond which only its dtype and shape are recorded."""
    policy: object = None
    """The policy's id, stated with every episode."""
    group: object = None
    """The group that every episode is compared within."""
    task: object = None
    """The task's id, stated with every episode."""
    metadata: Mapping[str, object] | None = None
    """Facts of the user's own, stated with every episode."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The options that are given by name; raises InstrumentError for one that there is not."""
        known = [item.name for item in fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise InstrumentError(f"there is no option {unknown[0]!r}; there are {', '.join(known)}")
        return cls(**given)

    def __post_init__(self) -> None:
        if type(self.max_bytes) is not int or self.max_bytes < 0:
            raise InstrumentError(f"max_bytes is a number of bytes, not {self.max_bytes!r}")
        if self.metadata is not None and not isinstance(self.metadata, Mapping):
            raise InstrumentError(f"metadata maps names to facts; it can't be {self.metadata!r}")

    def identity(self) -> dict[str, Any]:
        """What is stated with every episode."""
        return {"policy": self.policy, "group": self.group, "task": self.task}

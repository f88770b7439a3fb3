"""An episode that has ended, as far as a summary wants to know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from mttp.codec import outline
from mttp.spans import Scope

__all__ = ["Ended", "IsOpen"]

IsOpen: TypeAlias = Callable[[str], bool]
"""Whether some spans of an episode, by its trace id, were read already, and not all."""


class Ended(NamedTuple):
    """A whole episode of one process: it stands for all its spans, at the place of the last."""

    trace_id: str
    spans: int
    """How many different ones there are."""
    duplicates: int
    """How many came again until then."""
    tokens: tuple[int, int]
    """Given and sampled."""
    call_tokens: tuple[int, int]
    """Read and written by called models."""
    place: tuple[int, int, str]
    """When it began and ended, and its root's id."""
    ending: outline.Ending
    scoring: outline.Scored | None
    """The last scoring of the whole, with all its components."""
    scope: Scope
    name: str = ""
    """Empty, so that it is not taken for a span of any kind."""

    def plain(self) -> tuple[Any, ...]:
        """Without its scope, as plain data."""
        scoring = None if self.scoring is None else tuple(self.scoring)
        return (*self[:6], tuple(self.ending), scoring)

    @classmethod
    def of_plain(cls, values: tuple[Any, ...], scope: Scope) -> Ended:
        """What `plain` was made of."""
        *facts, ending, scoring = values
        found = None if scoring is None else outline.Scored(*scoring)
        return cls._make((*facts, outline.Ending(*ending), found, scope, ""))

"""An episode that has ended, as far as a summary wants to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from mttp.codec import outline
from mttp.gradings import Grading
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
    faults: tuple[tuple[str, int], ...]
    """How many faults of each kind its spans state."""
    omissions: tuple[tuple[str, int], ...]
    """How many times its spans say of each attribute that it is missing."""
    place: tuple[int, int, str]
    """When it began and ended, and its root's id."""
    ending: outline.Ending
    scoring: outline.Scored | None
    """The last scoring of the whole, with all its components."""
    gradings: tuple[Grading, ...]
    """Those of the last scoring of each step and agent."""
    scope: Scope
    name: str = ""
    """Empty, so that it is not taken for a span of any kind."""

    def plain(self) -> tuple[Any, ...]:
        """Without its scope, as plain data."""
        scoring = None
        if self.scoring is not None:
            scoring = tuple(self.scoring._replace(gradings=_plain(self.scoring.gradings)))
        return (*self[:8], tuple(self.ending), scoring, _plain(self.gradings))

    @classmethod
    def of_plain(cls, values: tuple[Any, ...], scope: Scope) -> Ended:
        """What `plain` was made of."""
        *facts, ending, scoring, gradings = values
        found = None
        if scoring is not None:
            found = outline.Scored(*scoring)
            found = found._replace(gradings=_gradings(found.gradings))
        return cls._make((*facts, outline.Ending(*ending), found, _gradings(gradings), scope, ""))


def _plain(gradings: Iterable[Grading]) -> tuple[Any, ...]:
    return tuple(map(tuple, gradings))


def _gradings(plain: Iterable[Any]) -> tuple[Grading, ...]:
    return tuple(map(Grading._make, plain))

"""What a file of another library's format holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from mttp.model.episodes import Episode
    from mttp.model.evaluations import Evaluation

__all__ = ["ImportedRecord", "UnreadableRecord"]


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record of a file that is not an episode of the file's format."""

    place: str
    """The place in the file: `line 3`, `row 17` or `samples/a_epoch_1.json`."""
    reason: str
    """The reason, for people."""


ImportedRecord: TypeAlias = "Episode | Evaluation | UnreadableRecord"
"""An episode or an evaluation of a file, or a record that can't be read."""

"""What a recording consists of, counted, and the bytes of one of each."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Quantities"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """
    Numbers of each part of a recording, in total or per second; or the bytes that one of each takes.

    Some parts cost more in the first one of a segment, since a compressed segment starts without a history.
    """

    processes: float = 0.0
    """Processes: spans of the run."""
    segments: float = 0.0
    """Writes to a file, or requests: each repeats the resource."""
    episodes: float = 0.0
    """Episodes: a root, and a reward of three components."""
    cold_episodes: float = 0.0
    """Segments in which an episode ends."""
    markers: float = 0.0
    """Start markers: an episode that is open when a segment is written has one."""
    steps: float = 0.0
    """Steps, without what follows."""
    token_blocks: float = 0.0
    """Steps with sampled tokens."""
    token_ids: float = 0.0
    """Token ids that are written."""
    logprobs: float = 0.0
    """Log probabilities that are written, float32."""
    contents: float = 0.0
    """Steps with an observation of two messages and an action, that are written."""
    characters: float = 0.0
    """Characters of these."""
    calls: float = 0.0
    """Tool calls, with arguments of 40 characters and results of 200."""
    cold_calls: float = 0.0
    """Segments with a call."""
    cold_token_blocks: float = 0.0
    """Segments with sampled tokens."""
    cold_contents: float = 0.0
    """Segments with content."""
    cold_characters: float = 0.0
    """Characters of the first content of each segment, up to 2,000 of each."""
    withheld_ids: float = 0.0
    """Steps whose token ids, or all of whose token arrays, are withheld: the span says so."""
    withheld_contents: float = 0.0
    """Steps whose content is withheld."""
    withheld_calls: float = 0.0
    """Calls whose content is withheld."""

    @property
    def spans(self) -> float:
        """Number of spans, without those of the run."""
        return 2 * self.episodes + self.markers + self.steps + self.calls

    def dot(self, other: Quantities) -> float:
        """Return the sum of products: bytes, if one of both is bytes of one of each."""
        products: list[float] = [getattr(self, one.name) * getattr(other, one.name) for one in fields(self)]
        return sum(products)

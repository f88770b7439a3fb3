"""A workload: the number of workers, their steps per second, the size of a step, and what is withheld."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError
from mttp.study.sizing.quantities import Quantities

__all__ = ["MOST", "Workload"]

MOST = 1e12
"""The largest number that is computed with."""
_LEAST = {"workers": 1, "steps": 1, "rate": 1e-9, "tokens": 0, "characters": 0, "calls": 0}
"""The smallest number of each kind."""
_COLD_CHARACTERS = 2000
"""Characters after which a compressed segment knows the words."""
_WRITE_SECONDS = 0.2
"""How long a process gathers spans before it writes them."""
_ID_BYTES, _LOGPROB_BYTES = 8, 4
"""Bytes of an array's elements, which count towards the limit of an episode."""
_SPAN_BYTES = 256
"""What the limit of a trace counts for a span, besides its values."""
_ROOT_SHARE = 15 / 16
"""The share of a trace's limit that is for all but its root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What workers record; the defaults are the chats of the benchmarks."""

    workers: float = 1
    """Processes that record."""
    steps: float = 8.0
    """Steps of an episode."""
    rate: float = 1.0
    """Steps per second of each worker."""
    tokens: float = 256.0
    """Sampled tokens of a step."""
    logprobs: bool = True
    """Whether each token has a log probability."""
    characters: float = 1300.0
    """Characters of a step's observation and action."""
    calls: float = 0.0
    """Tool calls of a step."""
    content: bool = True
    """Whether observations, actions and contents of calls are written."""
    token_ids: bool = True
    """Whether token ids are written."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if not (isinstance(value := getattr(self, name), (int, float)) and least <= value <= MOST):
                raise ConfigureError(f"{name} is {value!r}; it must be a number from {least:g} to {MOST:g}")

    @property
    def episode_seconds(self) -> float:
        """Seconds that an episode takes."""
        return self.steps / self.rate

    @property
    def writes(self) -> float:
        """Writes per second of a worker, unless they are urgent: a span that ends waits for others."""
        ends = self.rate * (1 + self.calls)
        return ends / max(1.0, 0.5 + _WRITE_SECONDS * ends)

    def of_episode(self, limits: Withholding | None = None) -> Quantities:
        """Return the parts of an episode, of which `limits` withhold some; without its segments."""
        blocks = self.steps if self.tokens else 0.0
        written = self._written_blocks(limits) if self.tokens else 0.0
        contents = self.steps if self.content and self.characters else 0.0
        return Quantities(
            episodes=1,
            markers=min(1.0, self.episode_seconds / _WRITE_SECONDS),
            steps=self.steps,
            token_blocks=blocks,
            token_ids=written * self.tokens * self.token_ids,
            logprobs=written * self.tokens * self.logprobs,
            contents=contents,
            characters=contents * self.characters,
            calls=self.steps * self.calls,
            withheld_ids=blocks if not self.token_ids else blocks - written,
            withheld_contents=0.0 if contents or not self.characters else self.steps,
            withheld_calls=0.0 if self.content else self.steps * self.calls,
        )

    def with_segments(self, whole: Quantities, segments: float) -> Quantities:
        """Return the quantities written in so many segments: what comes first in one costs more."""
        contents = min(segments, whole.contents)
        return replace(
            whole,
            segments=segments,
            cold_episodes=min(segments, whole.episodes),
            cold_calls=min(segments, whole.calls),
            cold_token_blocks=min(segments, whole.token_blocks),
            cold_contents=contents,
            cold_characters=contents * min(self.characters, _COLD_CHARACTERS),
        )

    def _written_blocks(self, limits: Withholding | None) -> float:
        """Return the steps of an episode whose token arrays are within the limits."""
        if limits is None:
            return self.steps
        if limits.max_elements is not None and self.tokens > limits.max_elements:
            return 0.0
        size = self.tokens * (self.token_ids * _ID_BYTES + self.logprobs * _LOGPROB_BYTES)
        blocks = self.steps
        if limits.max_episode_bytes is not None and size:
            blocks = min(blocks, limits.max_episode_bytes // size)
        if limits.max_trace_bytes is not None:
            span = _SPAN_BYTES + size + self.content * self.characters
            blocks = min(blocks, limits.max_trace_bytes * _ROOT_SHARE // span)
        return blocks

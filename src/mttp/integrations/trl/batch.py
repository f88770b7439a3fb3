"""One batch of completions while it is generated and scored: what was seen of it so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import Context

__all__ = ["RewardFunctionResult", "CompletionBatch", "Use"]


@dataclass(slots=True)
class RewardFunctionResult:
    """What a reward function answered."""

    values: Sequence[Any] | None = None
    """A reward per completion, as the function gave it; None where there was no answer."""
    error: BaseException | None = None
    """What it raised."""
    results: Sequence[Any] = ()
    """Where it is a reward spec: how each reward came about."""


@dataclass(slots=True)
class Use:
    """One call of a tool."""

    name: str
    """The tool's name."""
    arguments: Mapping[str, Any]
    """What it was called with."""
    start: int
    """When, in nanoseconds since the Unix epoch."""
    end: int | None = None
    """When it returned."""
    result: Any = None
    """What it answered."""
    error: BaseException | None = None
    """What it raised."""


@dataclass(slots=True)
class CompletionBatch:
    """The completions that one process generates at a time; lists have one element per completion."""

    number: int
    """Position among the batches of this trainer, from 0."""
    version: int
    """Updates that the policy has had."""
    is_training: bool
    """Whether it is to be learned from; else the trainer evaluates."""
    began: int
    """When generation began, in nanoseconds since the Unix epoch."""
    context: Context
    """What was current for OpenTelemetry then, on the trainer's thread."""
    scoring: int | None = None
    """When generation was over and scoring began."""
    inputs: Sequence[Mapping[str, Any]] = ()
    """Rows of the dataset, with what a rollout function adds to them."""
    prompts: Sequence[Any] = ()
    """Text, or messages."""
    completions: Sequence[Any] = ()
    """Text, or messages."""
    completion_ids: Sequence[Sequence[int]] = ()
    """Token ids, those of tools included."""
    rewards: Any = None
    """What each function pays, of all processes' completions: float32, shape [completions, functions]."""
    answers: dict[int, RewardFunctionResult] = field(default_factory=dict)
    """What reward functions answered, by their position."""
    extras: dict[str, list[Any]] = field(default_factory=dict)
    """What reward functions said of completions by `log_extra`."""
    uses: dict[int, list[Use]] = field(default_factory=dict)
    """Calls of tools by completion, in order."""
    tool_mask: Sequence[Sequence[int]] | None = None
    """1 where the policy sampled a token, 0 for those of tools; None where there are no tools."""
    logprobs: list[Any] = field(default_factory=list)
    """What RLOO computes: log probabilities under the policy, then those under the reference, per token."""

    @property
    def documents(self) -> set[str]:
        """The documents of the reward specs that paid."""
        results = (result for answer in self.answers.values() for result in answer.results)
        return {result.document for result in results}

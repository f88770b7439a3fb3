"""One batch of completions while it is generated and scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import Context

from mttp.model.episodes import Call

__all__ = ["CompletionBatch", "RewardFunctionResult", "ToolUse"]


@dataclass(slots=True)
class RewardFunctionResult:
    """What a reward function returned for a batch."""

    values: Sequence[Any] | None = None
    """One reward per completion, as returned; None without a result."""
    error: BaseException | None = None
    """The exception that the function raised."""
    raised: int | None = None
    """The row whose completion made the function raise, if that is known."""
    results: Sequence[Any] = ()
    """The results of a reward spec, one per completion; empty for other functions."""
    calls: Sequence[Call] = ()
    """The model calls of the function, unless they are in the results of a reward spec."""


@dataclass(slots=True)
class ToolUse:
    """One call of a tool."""

    name: str
    """The tool's name."""
    arguments: Mapping[str, Any]
    """The keyword arguments."""
    start: int
    """The start time in nanoseconds since the Unix epoch."""
    end: int | None = None
    """The end time in nanoseconds since the Unix epoch."""
    result: Any = None
    """The returned value."""
    error: BaseException | None = None
    """The exception that the tool raised."""


@dataclass(slots=True)
class CompletionBatch:
    """The completions that one process generates at a time; sequences have one element per completion."""

    number: int
    """The index among the trainer's batches."""
    version: int
    """The number of updates before the batch."""
    is_training: bool
    """Whether the trainer trains, and does not evaluate."""
    began: int
    """The start of generation in nanoseconds since the Unix epoch."""
    context: Context
    """The OpenTelemetry context of the trainer's thread."""
    scoring: int | None = None
    """The start of scoring in nanoseconds since the Unix epoch."""
    inputs: Sequence[Mapping[str, Any]] = ()
    """The rows of the dataset, with the fields that a rollout function adds."""
    prompts: Sequence[Any] = ()
    """Text or messages."""
    completions: Sequence[Any] = ()
    """Text or messages."""
    completion_ids: Sequence[Sequence[int]] = ()
    """Token ids, with those of tool results."""
    rewards: Any = None
    """Rewards of all processes' completions: float32, shape [completions, reward functions]."""
    function_results: dict[int, RewardFunctionResult] = field(default_factory=dict)
    """The results of reward functions, by position."""
    extras: dict[str, list[Any]] = field(default_factory=dict)
    """The values that reward functions pass to `log_extra`, by column."""
    uses: dict[int, list[ToolUse]] = field(default_factory=dict)
    """The tool calls of each completion, in order."""
    tool_mask: Sequence[Sequence[int]] | None = None
    """Per token 1 if the policy sampled it, 0 if it is from a tool; None without tools."""
    logprobs: list[Any] = field(default_factory=list)
    """RLOO's log probabilities per token: under the policy, then under the reference model."""

    @property
    def documents(self) -> set[str]:
        """The documents of the reward specs among the reward functions."""
        results = (result for function in self.function_results.values() for result in function.results)
        return {result.document for result in results}

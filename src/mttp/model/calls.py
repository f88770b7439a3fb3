"""A call of a model or a tool as a frozen value: no I/O, no attribute names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mttp.model.values import Value

__all__ = ["Call"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Call(Value):
    """One call of a model or a tool within a step."""

    operation: str
    """chat, text_completion, execute_tool, …: the GenAI conventions' operation name."""
    name: str | None = None
    """The requested model, or the tool."""
    provider: str | None = None
    """Who serves the model."""
    id: str | None = None
    """The response's id, or the tool call's."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters by name: temperature, top_p, top_k, max_tokens, seed."""
    arguments: Any = None
    """What the tool was called with."""
    result: Any = None
    """What the tool answered."""
    response_model: str | None = None
    """The model that answered."""
    finish_reasons: tuple[str, ...] = ()
    """Why generation stopped, one per choice."""
    input_tokens: int | None = None
    """Tokens that the model read."""
    output_tokens: int | None = None
    """Tokens that the model wrote."""
    time_to_first_chunk: float | None = None
    """Seconds from the request to the first piece of a streamed answer."""
    error_type: str | None = None
    """Class of the exception that ended the call."""
    error_message: str | None = None
    """That exception's message."""
    span_id: str = field(default="", compare=False)
    """The call's span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When the call began."""
    end_time: int | None = field(default=None, compare=False)
    """When it returned."""

    @property
    def time_per_output_token(self) -> float | None:
        """Seconds per output token after the first piece; None where that piece is not timed."""
        first, tokens = self.time_to_first_chunk, self.output_tokens
        if first is None or not tokens or tokens < 2 or self.start_time is None or self.end_time is None:
            return None
        return max((self.end_time - self.start_time) / 1e9 - first, 0.0) / (tokens - 1)

"""A call of a model or a tool as a frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from mttp.model.values import Value
from mttp.semconv import attributes as a

__all__ = ["Call"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Call(Value):
    """
    A call of a model or a tool within a step.

    Of two attributes of a field, the second is for a tool.
    """

    operation: str
    """The operation name of the GenAI conventions: chat, text_completion, execute_tool, ..."""
    name: Annotated[str | None, a.GEN_AI_REQUEST_MODEL, a.GEN_AI_TOOL_NAME] = None
    """The name of the requested model or of the tool."""
    provider: Annotated[str | None, a.GEN_AI_PROVIDER_NAME] = None
    """The provider of the model."""
    id: Annotated[str | None, a.GEN_AI_RESPONSE_ID, a.GEN_AI_TOOL_CALL_ID] = None
    """The id of the response or of the tool call."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters by name: temperature, top_p, top_k, max_tokens, seed."""
    arguments: Annotated[Any, a.GEN_AI_INPUT_MESSAGES, a.GEN_AI_TOOL_CALL_ARGUMENTS] = None
    """The arguments of the tool; for a model the messages it was given, with a `history` the new ones."""
    result: Annotated[Any, a.GEN_AI_OUTPUT_MESSAGES, a.GEN_AI_TOOL_CALL_RESULT] = None
    """The result of the tool; for a model its answer."""
    history: Annotated[tuple[int, ...], a.CALL_HISTORY_RANGES] = ()
    """
    The messages of the request as ranges, start and end of each, among all that the agent's calls recorded.

    `(0, n)` has all of the first n; several ranges are a request that has left out or changed something.
    """
    response_model: Annotated[str | None, a.GEN_AI_RESPONSE_MODEL] = None
    """The model that generated the response."""
    finish_reasons: Annotated[tuple[str, ...], a.GEN_AI_RESPONSE_FINISH_REASONS] = ()
    """The finish reason of each choice."""
    input_tokens: Annotated[int | None, a.GEN_AI_USAGE_INPUT_TOKENS] = None
    """The number of input tokens."""
    output_tokens: Annotated[int | None, a.GEN_AI_USAGE_OUTPUT_TOKENS] = None
    """The number of output tokens."""
    reasoning_tokens: Annotated[int | None, a.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS] = None
    """The number of output tokens that were reasoning."""
    time_to_first_chunk: Annotated[float | None, a.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = None
    """Seconds from the request to the first chunk of a streamed response."""
    error_type: str | None = None
    """The class of the exception that ended the call."""
    error_message: str | None = None
    """The message of that exception."""
    span_id: str = field(default="", compare=False)
    """The span id of the call, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The start of the call, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The end of the call, in nanoseconds since the Unix epoch."""

    @property
    def time_per_output_token(self) -> float | None:
        """Seconds per output token after the first chunk; None without `time_to_first_chunk`."""
        first, tokens = self.time_to_first_chunk, self.output_tokens
        if first is None or not tokens or tokens < 2 or self.start_time is None or self.end_time is None:
            return None
        return max((self.end_time - self.start_time) / 1e9 - first, 0.0) / (tokens - 1)

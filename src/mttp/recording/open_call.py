"""`OpenCall`, the handle of an open call of a model or a tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from opentelemetry.trace import SpanKind

from mttp.codec import calls
from mttp.model.episodes import Call
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording.handle import Handle, Host

__all__ = ["OpenCall", "span_kind"]


def span_kind(call: Call) -> SpanKind:
    """Return the kind of a call's span: client for a model, internal for a tool."""
    return SpanKind.INTERNAL if call.operation == calls.EXECUTE_TOOL else SpanKind.CLIENT


class OpenCall(Handle):
    """An open call of a model or a tool within a step."""

    def __init__(self, host: Host | None, span: RecordingSpan | None, call: Call | None = None) -> None:
        super().__init__(host, span)
        self._call = call
        self._before_end: Callable[[], object] | None = None
        """Called before the end, to complete a streamed response."""
        self._response: dict[str, Any] = {}

    @quiet
    def response(
        self,
        *,
        model: str | None = None,
        id: str | None = None,
        finish_reasons: Sequence[str] = (),
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        time_to_first_chunk: float | None = None,
    ) -> None:
        """
        Record the facts of the model's response.

        `time_to_first_chunk` is in seconds, from the request to the first chunk of a streamed response.
        """
        if self._accepts("response"):
            given = {
                "response_model": model,
                "id": id,
                "finish_reasons": tuple(finish_reasons),
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "time_to_first_chunk": time_to_first_chunk,
            }
            self._response |= {name: value for name, value in given.items() if value is not None}

    @quiet
    def result(self, value: object) -> None:
        """Record the tool's result."""
        if self._accepts("result"):
            self._response["result"] = value

    @quiet
    def end(self) -> None:
        """End the call."""
        if self._accepts("end"):
            self._finish()

    def _conclude(self) -> None:
        """End a finished call with the error and the end time of its value."""
        assert self._call is not None
        call = self._call
        self._finish(
            error_type=call.error_type, error_message=call.error_message or "", end_time=call.end_time
        )

    def _finish(
        self,
        *,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        **_: Any,
    ) -> None:
        if self._before_end is not None:
            self._before_end()
        span = cast(RecordingSpan, self._span)
        assert self._call is not None
        span.encoded |= span.checked(calls.encode, replace(self._call, **self._response))
        if error_type is not None:
            span.fail(error_type, error_message)
        self._end_span(end_time)

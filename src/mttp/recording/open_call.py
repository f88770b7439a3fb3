"""`OpenCall`, the handle of an open call of a model or a tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from opentelemetry.trace import SpanKind

from mttp.codec import calls, fields
from mttp.codec.plain import Faults, listed
from mttp.model.chat import from_text
from mttp.model.episodes import Call
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording.handle import Handle

if TYPE_CHECKING:
    from mttp.recording.conversation import Conversation
    from mttp.recording.run_recorder import RunRecorder

__all__ = ["OpenCall", "no_call"]


_StartsSpan: TypeAlias = Callable[..., RecordingSpan]
"""Starts the span of a call, given its name, `kind` and `start_time`."""


class OpenCall(Handle):
    """An open call of a model or a tool within a step; what it is given is copied at once."""

    _operation = ""
    _conversation: Conversation | None = None
    """The messages of the episode, to which the result is added."""
    _before_end: Callable[[], object] | None = None
    """Called before the end, to complete a streamed response."""

    @classmethod
    def _open(
        cls, host: RunRecorder | None, start_span: _StartsSpan, operation: object, arguments: dict[str, Any]
    ) -> OpenCall:
        """Start a call with fields of its value; a tool's arguments as JSON text are those of the text."""
        faults: Faults = []
        named = fields.optional_text("operation", operation, faults)
        if named == calls.EXECUTE_TOOL:
            arguments = {**arguments, "arguments": from_text(arguments["arguments"])}
        return cls._start(host, named, arguments, faults, start_span)

    @classmethod
    def _record_finished(
        cls,
        host: RunRecorder | None,
        call: Call,
        start_span: _StartsSpan,
        *,
        start_time: int | None = None,
        end_time: int | None = None,
    ) -> None:
        """Record a finished call; the times are for a call without its own."""
        faults: Faults = []
        call = fields.checked_value(call, faults)
        start, end = call.start_time or start_time, call.end_time or end_time
        if start and end and start > end:  # a time that was given stays
            start, end = (start, end if call.end_time else start) if call.start_time else (end, end)
        call = replace(call, start_time=start, end_time=end)
        cls._start(host, call.operation, call, faults, start_span, start_time=call.start_time)._finish(
            error_type=call.error_type, error_message=call.error_message or "", end_time=call.end_time
        )

    @classmethod
    def _start(
        cls,
        host: RunRecorder | None,
        operation: str,
        source: Any,
        faults: Faults,
        start_span: _StartsSpan,
        *,
        start_time: int | None = None,
    ) -> OpenCall:
        attributes = calls.encode(operation, source, faults)
        kind = SpanKind.INTERNAL if operation == calls.EXECUTE_TOOL else SpanKind.CLIENT
        name = calls.span_name(operation, attributes)
        opened = cls(host, start_span(name, kind=kind, start_time=start_time))
        opened._operation = operation
        opened._record(attributes, faults)
        return opened

    @quiet
    def response(
        self,
        *,
        model: str | None = None,
        id: str | None = None,
        finish_reasons: Sequence[str] = (),
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        time_to_first_chunk: float | None = None,
    ) -> None:
        """
        Record the facts of the model's response.

        `time_to_first_chunk` is in seconds, from the request to the first chunk of a streamed response.
        """
        if self._accepts("response"):
            self._add(
                response_model=model,
                id=id,
                finish_reasons=finish_reasons,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                reasoning_tokens=reasoning_tokens,
                time_to_first_chunk=time_to_first_chunk,
            )

    @quiet
    def result(self, value: object) -> None:
        """Record the tool's result, or the model's answer as a message."""
        if self._accepts("result"):
            if self._conversation is not None:
                for message in value if isinstance(value, (list, tuple)) else (value,):
                    self._conversation.answer(message)
            self._add(result=value)

    def _ask(self, conversation: Conversation, messages: object) -> None:
        """Record the messages of a request that are new in the conversation, and which ones it had."""
        faults: Faults = []
        asked = listed("messages", messages, faults)
        if asked is None:
            cast(RecordingSpan, self._span).note(faults)
            return
        self._conversation = conversation
        request = conversation.ask(asked)
        self._add(arguments=request.new or None, history=request.history)

    def _add(self, **values: Any) -> None:
        faults: Faults = []
        self._record(calls.encode_fields(self._operation, values, faults), faults)

    def _record(self, attributes: dict[str, Any], faults: Faults) -> None:
        span = cast(RecordingSpan, self._span)
        for key in calls.CONTENT:
            if key in attributes:
                attributes[key] = span.bounded(key, attributes[key])
        span.encoded.update(attributes)
        if faults:
            span.note(faults)

    @quiet
    def end(self) -> None:
        """End the call."""
        if self._accepts("end"):
            self._finish()

    def _finish(
        self,
        *,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        **_: Any,
    ) -> None:
        if self._before_end is not None:
            self._attempt(self._before_end)
        span = cast(RecordingSpan, self._span)
        if error_type is not None:
            span.fail(error_type, error_message)
        self._end_span(end_time)


def no_call(*_: object, **__: object) -> OpenCall:
    """Return an inert call, which records nothing."""
    return OpenCall(None, None)

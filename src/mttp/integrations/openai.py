"""
OpenAI clients, of any server: a request within a step is recorded as a model call.

A request within an episode but outside a step is a step of its own; outside episodes nothing is recorded.
Where OpenTelemetry's own instrumentation is active, its spans are the calls, and only token ids and log
probabilities are added, where the server returns them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from opentelemetry import trace

from mttp.codec.plain import scalar_text
from mttp.errors import InstrumentError, MissingExtra
from mttp.integrations.faults import fault, guard
from mttp.integrations.foreign_models import as_data, fields
from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.patching import handle_in
from mttp.integrations.scoring_calls import LoggedCall, log_here
from mttp.integrations.stream_assembly import ResponseAssembler
from mttp.integrations.streams import listen
from mttp.model import clock
from mttp.model.episodes import Call
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.spans import RecordingSpan
from mttp.recording.current import current_episode, current_step, inert_step
from mttp.recording.open_call import OpenCall
from mttp.recording.open_step import OpenStep
from mttp.rewards.call_log import CallLog

try:
    import openai
    from openai.resources import completions as _text
    from openai.resources.chat import completions as _chat
except ImportError as error:
    raise MissingExtra(package="openai>=1.66", extra="openai", purpose="recording model calls") from error

__all__ = ["attach", "attach_all"]

_LIBRARY = "openai"
_PARAMETERS = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed")
_OPERATIONS = {"messages": "chat", "prompt": "text_completion"}
"""The operation, by the argument that holds the prompt."""
_PARSED = frozenset({"parsed", "parsed_arguments"})
"""What the client parsed; `content` and `arguments` have it as it came."""
_OFFICIAL = ("opentelemetry.instrumentation.genai.openai", "opentelemetry.instrumentation.openai_v2")

_IN_REQUEST: ContextVar[bool] = ContextVar("mttp-openai-request", default=False)
"""Whether an outer patched method already records the request."""


class ClientPatches(LibraryPatches):
    """The patches of the request methods of one client or of all clients."""

    LIBRARY = _LIBRARY

    def __init__(self, options: Mapping[str, Any], is_official: Callable[[], bool] | None = None) -> None:
        super().__init__(options)
        self._is_official = is_official or _is_official_active

    def patch_library(self) -> None:
        """Patch the methods of all clients."""
        kinds = (_chat.Completions, _chat.AsyncCompletions, _text.Completions, _text.AsyncCompletions)
        self.patch((f"{kind.__module__}.{kind.__name__}", kind) for kind in kinds)

    def patch(self, places: Iterable[tuple[str, Any]]) -> None:
        """Patch the methods of these owners, by label."""
        self.install_existing(
            self.LIBRARY,
            (
                (f"{label}.{method}", owner, method, self._around(owner))
                for label, owner in places
                for method in ("create", "parse")
                if method == "create" or hasattr(owner, method)  # only chats of newer versions have `parse`
            ),
        )

    def _around(self, owner: Any) -> Callable[..., Any]:
        kind = owner if isinstance(owner, type) else type(owner)
        return self._create_async if kind.__name__.startswith("Async") else self._create

    def _create(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        call = guard(_LIBRARY, self._recorded_call, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        with call.in_progress():
            response = wrapped(*args, **call.recorded_arguments(kwargs))
            guard(_LIBRARY, call.take, response)
            return response

    async def _create_async(
        self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        call = guard(_LIBRARY, self._recorded_call, kwargs)
        if call is None:
            return await wrapped(*args, **kwargs)
        with call.in_progress():
            response = await wrapped(*args, **call.recorded_arguments(kwargs))
            guard(_LIBRARY, call.take, response)
            return response

    def _recorded_call(self, arguments: Mapping[str, Any]) -> _ModelCall | None:
        """Return the recorder of a request; None if the request is not recorded."""
        if _IN_REQUEST.get() or is_suppressed():
            return None
        log = log_here()
        if log is None and not current_episode():
            return None
        is_official = "messages" in arguments and self._is_official()
        return _ModelCall(arguments, self._options, log, is_official=is_official)


class _ModelCall:
    """One request, until its response is complete; with a `log`, the request is part of a scoring."""

    def __init__(
        self, arguments: Mapping[str, Any], options: Options, log: CallLog | None, *, is_official: bool
    ) -> None:
        self._arguments = arguments
        self._options = options
        self._log = log
        self._chunks: ResponseAssembler | None = None
        self._began = clock.seconds()
        self._time_to_first_chunk: float | None = None
        self._owns_step = log is None and not current_step()
        self._step: OpenStep = inert_step() if log is not None else current_step()
        if self._owns_step:
            self._step = current_episode().step()
        self._call: OpenCall | LoggedCall | None = None if is_official else self._open_call()

    def recorded_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """
        Record the prompt, and return the arguments for the library.

        A prompt that can be read only once, such as a generator, is replaced by a list; its errors propagate.
        """
        name = next((name for name in _OPERATIONS if name in arguments), None)
        if name is None:
            return arguments
        if isinstance(arguments[name], Iterator):
            arguments = {**arguments, name: list(arguments[name])}
        if self._options.observations:
            guard(_LIBRARY, self._record_observation, arguments[name])
        return arguments

    def _record_observation(self, prompt: Any) -> None:
        is_text = isinstance(prompt, (str, bytes, Mapping)) or not isinstance(prompt, Iterable)
        messages = prompt if is_text else list(map(as_data, prompt))
        if self._owns_step:
            self._step.observation(messages)
        elif isinstance(self._call, LoggedCall):
            self._call.exchange(arguments=messages)

    def _open_call(self) -> OpenCall | LoggedCall:
        given = self._arguments
        parameters = {name: given[name] for name in _PARAMETERS if _is_number(given.get(name))}
        if "max_completion_tokens" in parameters:
            parameters["max_tokens"] = parameters.pop("max_completion_tokens")
        operation = next((word for name, word in _OPERATIONS.items() if name in given), "chat")
        model = given.get("model")
        if self._log is None:
            return self._step.model_call(model, operation=operation, provider=_LIBRARY, **parameters)
        call = Call(operation=operation, name=model, provider=_LIBRARY, parameters=parameters)
        return LoggedCall(self._log, call)

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """The block of the request; an exception ends the call in error and propagates."""
        token = _IN_REQUEST.set(True)
        try:
            with _parent(self._call or self._step):
                yield
        except BaseException as error:
            self.on_end(error)
            raise
        else:
            if self._chunks is None:
                self.on_end()
        finally:
            _IN_REQUEST.reset(token)

    def take(self, response: Any) -> None:
        """Record a response; a stream is recorded while the user reads it."""
        try:
            response = _parsed(response)
        except Exception as error:  # the caller meets the same error
            raise_interrupt(error)
            self._record_fault("answer_unrecorded", scalar_text(error))
            return
        stream = _stream(response)
        if stream is None:
            self._record_response(response)
            return
        is_async = isinstance(stream, openai.AsyncStream)
        chunks = ResponseAssembler()
        listen(_LIBRARY, stream, self, iterator="_iterator", is_async=is_async)
        self._chunks = chunks
        if self._call is not None:
            self._call._before_end = partial(guard, _LIBRARY, self._record_chunks)

    def on_chunk(self, chunk: Any) -> None:
        """Take a chunk of a stream."""
        if self._time_to_first_chunk is None:
            self._time_to_first_chunk = clock.seconds() - self._began
        if self._chunks is not None:
            self._chunks.add(chunk)

    def on_end(self, error: BaseException | None = None) -> None:
        """End the call, and the step if it is the request's own."""
        guard(_LIBRARY, self._record_chunks)
        for handle in (self._call, self._step if self._owns_step else None):
            if handle is not None:
                handle.__exit__(None if error is None else type(error), error, None)

    def _record_chunks(self) -> None:
        """Record the chunks that a stream has yielded by now, unless the step has ended."""
        chunks, self._chunks = self._chunks, None
        if chunks is None or (self._log is None and self._step.ended):
            return
        for problem in chunks.problems:
            self._record_fault("answer_unrecorded", problem)
        self._record_response(chunks.response)

    def _record_response(self, response: Any) -> None:
        """Record the parts of a response; one that fails costs no other."""
        choices = getattr(response, "choices", None)
        if choices is None:
            kind = type(response)
            detail = f"a {kind.__module__}.{kind.__qualname__} is not a completion"
            self._record_fault("answer_unrecorded", detail)
            return
        if self._call is not None:
            guard(_LIBRARY, self._record_facts, self._call, response, choices)
        if choices and self._options.actions:
            guard(_LIBRARY, self._record_action, choices)
        if self._log is None:
            guard(_LIBRARY, self._record_tokens, response, choices)

    def _record_facts(self, call: OpenCall | LoggedCall, response: Any, choices: Sequence[Any]) -> None:
        usage = fields(getattr(response, "usage", None))
        reasons = [getattr(choice, "finish_reason", None) for choice in choices]
        call.response(
            model=getattr(response, "model", None),
            id=getattr(response, "id", None),
            finish_reasons=[reason for reason in reasons if reason],
            input_tokens=usage.get("prompt_tokens"),
            output_tokens=usage.get("completion_tokens"),
            time_to_first_chunk=self._time_to_first_chunk,
        )

    def _record_action(self, choices: Sequence[Any]) -> None:
        contents = [_content(choice) for choice in choices]
        answer = contents[0] if len(contents) == 1 else contents
        if self._owns_step:
            self._step.action(answer)
        elif isinstance(self._call, LoggedCall):
            self._call.exchange(result=answer)

    def _record_tokens(self, response: Any, choices: Sequence[Any]) -> None:
        """
        Record token ids and log probabilities, as vLLM returns them (`return_token_ids`, `logprobs`).

        Log probabilities without token ids are not recorded.
        A step has one token block, so that token ids of several choices are counted as a fault.
        """
        found = [
            (ids, choice) for choice in choices if (ids := getattr(choice, "token_ids", None)) is not None
        ]
        if len(found) > 1:
            detail = f"{len(found)} choices have token ids, a step has one block"
            self._record_fault("tokens_unrecorded", detail)
            return
        for ids, choice in found:
            self._record_block(response, ids, choice)

    def _record_block(self, response: Any, ids: Any, choice: Any) -> None:
        prompt_ids = getattr(response, "prompt_token_ids", None)
        prompt_ids = getattr(choice, "prompt_token_ids", None) if prompt_ids is None else prompt_ids
        self._step.tokens(ids, logprobs=_logprobs(choice), prompt_ids=prompt_ids)

    def _record_fault(self, kind: str, detail: str) -> None:
        """Count a fault, and name it on the step, if the request belongs to one."""
        if self._log is None:
            cast(RecordingSpan, self._step.span).fault(kind, detail)
        else:
            fault(kind, detail)


def _logprobs(choice: Any) -> list[float] | None:
    """Return the log probabilities of a chat or text choice, one per token."""
    logprobs = getattr(choice, "logprobs", None)
    content = getattr(logprobs, "content", None)
    if content is not None:
        return [fields(token).get("logprob") for token in content]  # type: ignore[misc]  # None is a fault
    return getattr(logprobs, "token_logprobs", None)


def _content(choice: Any) -> Any:
    """Return the message of a chat choice as data, or the text of a text choice."""
    message = getattr(choice, "message", None)
    return getattr(choice, "text", None) if message is None else as_data(message, _PARSED)


def _parsed(response: Any) -> Any:
    """Return the parsed form of a raw response, which caches it; other responses unchanged."""
    return response.parse() if type(response).__name__ == "LegacyAPIResponse" else response


def _stream(response: Any) -> Any:
    """Return the stream in a response, also inside a wrapper of OpenTelemetry's instrumentation, or None."""
    for found in (getattr(response, "__wrapped__", None), getattr(response, "stream", None), response):
        if issubclass(type(found), (openai.Stream, openai.AsyncStream)):
            return found
    return None


def _parent(handle: OpenCall | LoggedCall | OpenStep) -> AbstractContextManager[object]:
    """Make the handle's span the parent of spans in the block, if it has one."""
    if not handle:
        return nullcontext()
    return trace.use_span(handle.span, record_exception=False, set_status_on_exception=False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_official_active() -> bool:
    """Return whether OpenTelemetry's own instrumentation records these requests."""
    for name in _OFFICIAL:
        kind = getattr(sys.modules.get(name), "OpenAIInstrumentor", None)
        if kind is not None and kind().is_instrumented_by_opentelemetry:
            return True
    return False


attach_all = ClientPatches.attach_all


def attach(target: Any, /, **options: Any) -> ClientPatches:
    """
    Record a client's requests within episodes.

    A client that is already recorded keeps its handle and gets the new options.
    Raises InstrumentError if the target is not an OpenAI or AsyncOpenAI client.
    """
    Options.of(options)
    if not isinstance(target, (openai.OpenAI, openai.AsyncOpenAI)):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise InstrumentError(f"{kind} is not a client; instrument an OpenAI or AsyncOpenAI object")
    found = handle_in(target.chat.completions, ClientPatches, "create")
    if found is not None:
        if options:
            found.use(options)
        return found.claim()
    is_official = _is_official_active()  # once: later patches of the class are not called through this one
    handle = ClientPatches(options, lambda: is_official)
    handle.patch([("chat.completions", target.chat.completions), ("completions", target.completions)])
    return handle

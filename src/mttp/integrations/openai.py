"""
OpenAI clients, of any server: a request within a step is recorded as a model call.

A request within an episode but outside a step is a step of its own; outside episodes nothing is recorded.
Where OpenTelemetry's own instrumentation is active, its spans are the calls, and only token ids and log
probabilities are added, where the server returns them.
"""

from __future__ import annotations

import re
import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, cast

from opentelemetry import trace

from mttp.codec import content
from mttp.codec.plain import scalar_text
from mttp.errors import InstrumentError, MissingExtra
from mttp.integrations.faults import fault, guard
from mttp.integrations.foreign_models import as_data, fields
from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.openai_responses import EventAssembler, as_chat, is_continued, messages_of
from mttp.integrations.options import Options
from mttp.integrations.patching import handle_in
from mttp.integrations.scoring_calls import LoggedCall, log_here
from mttp.integrations.stream_assembly import ResponseAssembler
from mttp.integrations.streams import listen
from mttp.model import clock
from mttp.model.call_log import CallLog
from mttp.model.episodes import Call
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.spans import RecordingSpan, qualified_name
from mttp.recording.conversation import Conversation
from mttp.recording.current import current_episode, current_step, current_trajectory, inert_step
from mttp.recording.handle import Handle
from mttp.recording.open_call import OpenCall
from mttp.recording.open_step import OpenStep

try:
    import openai
    from openai._base_client import AsyncAPIClient, SyncAPIClient
    from openai.resources import completions as _text
    from openai.resources.chat import completions as _chat
    from openai.resources.responses import responses as _responses
except ImportError as error:
    raise MissingExtra(package="openai>=1.66", extra="openai", purpose="recording model calls") from error

__all__ = ["attach", "attach_all"]

_LIBRARY = "openai"
_PARAMETERS = ("temperature", "top_p", "max_tokens", "seed")
_SAME = {"max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens"}
"""Other names of parameters."""
_PARSED = frozenset({"parsed", "parsed_arguments"})
"""What the client parsed; `content` and `arguments` have it as it came."""
_OFFICIAL = ("opentelemetry.instrumentation.genai.openai", "opentelemetry.instrumentation.openai_v2")

_IN_REQUEST: ContextVar[bool] = ContextVar("mttp-openai-request", default=False)
"""Whether an outer patched method already records the request."""


class _Api(NamedTuple):
    """One of the interfaces of the library that are recorded."""

    operation: str
    """The operation, as the GenAI conventions name it."""
    prompt: str
    """The argument that holds the prompt."""
    messages: Callable[[Mapping[str, Any]], list[Any] | None]
    """Returns the messages of a request; None if its prompt is none."""
    is_continued: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Returns whether the server keeps the earlier messages."""


def _chat_messages(arguments: Mapping[str, Any]) -> list[Any] | None:
    listed = arguments.get("messages")
    if not isinstance(listed, Iterable) or isinstance(listed, (str, bytes, Mapping)):
        return None
    return [as_data(message, _PARSED) for message in listed]


_CHAT = _Api("chat", "messages", _chat_messages)
_TEXT = _Api("text_completion", "prompt", lambda _: None)
_RESPONSES = _Api("chat", "input", messages_of, is_continued)


class ClientPatches(LibraryPatches):
    """The patches of the request methods of one client or of all clients."""

    LIBRARY = _LIBRARY

    def __init__(self, options: Mapping[str, Any], is_official: Callable[[], bool] | None = None) -> None:
        super().__init__(options)
        self._is_official = is_official or _is_official_active

    def patch_library(self) -> None:
        """Patch the methods of all clients."""
        kinds = {
            _CHAT: (_chat.Completions, _chat.AsyncCompletions, *_earlier_parsers()),
            _TEXT: (_text.Completions, _text.AsyncCompletions),
            _RESPONSES: (_responses.Responses, _responses.AsyncResponses),
        }
        self.patch((_label(kind), kind, api) for api, owners in kinds.items() for kind in owners)
        self.watch((_label(kind), kind) for kind in (SyncAPIClient, AsyncAPIClient))
        SocketPatches.attach_all()

    def patch(self, places: Iterable[tuple[str, Any, _Api]]) -> None:
        """Patch the methods of these owners, by label."""
        self.install_existing(
            self.LIBRARY,
            (
                (f"{label}.{method}", owner, method, partial(self._around(owner), api))
                for label, owner, api in places
                for method in ("create", "parse")
                if hasattr(owner, method)  # only chats of newer versions have `parse`
            ),
        )

    def watch(self, clients: Iterable[tuple[str, Any]]) -> None:
        """Name the requests of these clients that no other patch records."""
        places = ((f"{label}.request", client, "request", self._request) for label, client in clients)
        self.install_existing(self.LIBRARY, places)

    def copies(self, label: str, client: Any) -> None:
        """Also record the clients that this one makes of itself."""
        methods = ("copy", "with_options")
        places = ((f"{label}.{method}", client, method, self._copy) for method in methods)
        self.install_existing(self.LIBRARY, places)

    def _around(self, owner: Any) -> Callable[..., Any]:
        kind = owner if isinstance(owner, type) else type(owner)
        return self._create_async if kind.__name__.startswith("Async") else self._create

    def _create(
        self, api: _Api, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        call = guard(_LIBRARY, self._recorded_call, api, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        with call.in_progress():
            response = wrapped(*args, **call.recorded_arguments(kwargs))
            guard(_LIBRARY, call.take, response)
            return response

    async def _create_async(
        self, api: _Api, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        call = guard(_LIBRARY, self._recorded_call, api, kwargs)
        if call is None:
            return await wrapped(*args, **kwargs)
        with call.in_progress():
            response = await wrapped(*args, **call.recorded_arguments(kwargs))
            guard(_LIBRARY, call.take, response)
            return response

    def _recorded_call(self, api: _Api, arguments: Mapping[str, Any]) -> _ModelCall | None:
        """Return the recorder of a request; None if the request is not recorded."""
        if _IN_REQUEST.get() or is_suppressed():
            return None
        log = log_here()
        if log is None and not current_episode():
            return None
        return _ModelCall(
            api, arguments, self._options, log, is_official=api is _CHAT and self._is_official()
        )

    def _request(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        options = fields(kwargs.get("options", args[1] if len(args) > 1 else None))
        method = str(options.get("method", "get")).upper()
        guard(_LIBRARY, _note_unrecorded, f"{method} {options.get('url')}")
        return wrapped(*args, **kwargs)

    def _copy(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        client = wrapped(*args, **kwargs)
        self.attach_made(attach, client)
        return client


class SocketPatches(LibraryPatches):
    """The patches that name the web sockets of recorded clients; they stay, and do nothing for others."""

    LIBRARY = _LIBRARY

    def patch_library(self) -> None:
        """Patch the resources that open web sockets, whose modules the library imports when they are used."""
        for module in _SOCKETS:
            self.patch_on_import(module, self._patch_module)

    def _patch_module(self, module: Any) -> None:
        kinds = [kind for kind in vars(module).values() if isinstance(kind, type)]
        kinds = [kind for kind in kinds if kind.__module__ == module.__name__ and hasattr(kind, "connect")]
        self.install_existing(
            self.LIBRARY, ((f"{_label(kind)}.connect", kind, "connect", self._connect) for kind in kinds)
        )

    def _connect(self, wrapped: Callable[..., Any], resource: Any, args: Any, kwargs: Any) -> Any:
        client = getattr(resource, "_client", None)
        if ClientPatches.active() or handle_in(client, ClientPatches, "request"):
            guard(_LIBRARY, _note_unrecorded, f"{type(resource).__name__}.connect")
        return wrapped(*args, **kwargs)


class _ModelCall:
    """One request, until its response is complete; with a `log`, the request is part of a scoring."""

    def __init__(
        self,
        api: _Api,
        arguments: Mapping[str, Any],
        options: Options,
        log: CallLog | None,
        *,
        is_official: bool,
    ) -> None:
        self._api = api
        self._arguments = arguments
        self._options = options
        self._log = log
        self._chunks: ResponseAssembler | EventAssembler | None = None
        self._began = clock.seconds()
        self._time_to_first_chunk: float | None = None
        self._owns_step = log is None and not current_step()
        self._step: OpenStep = inert_step() if log is not None else current_step()
        if self._owns_step:
            self._step = current_trajectory().step()
        self._call: OpenCall | LoggedCall | None = None if is_official else self._open_call()

    def recorded_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """
        Record the prompt, and return the arguments for the library.

        A prompt that can be read only once, such as a generator, is replaced by a list; its errors propagate.
        """
        name = self._api.prompt
        if isinstance(arguments.get(name), Iterator):
            arguments = {**arguments, name: list(arguments[name])}
        guard(_LIBRARY, self._record_prompt, arguments)
        return arguments

    def _record_prompt(self, arguments: Mapping[str, Any]) -> None:
        """Record the messages that are new in the request; in a grader, all messages."""
        messages = self._api.messages(arguments)
        prompt = arguments.get(self._api.prompt) if messages is None else messages
        if self._log is None:
            self._conversation.step = self._step
        if not self._options.observations:
            return
        if isinstance(self._call, LoggedCall):
            self._call.exchange(arguments=prompt)
        elif self._log is not None:
            return
        elif messages is None:
            self._record_content(content.OBSERVATION, arguments=prompt)
        else:
            request = self._conversation.ask(messages, is_continued=self._api.is_continued(arguments))
            self._record_content(content.OBSERVATION, arguments=request.new or None, history=request.history)

    def _record_content(self, keys: content.ContentKeys, **facts: Any) -> None:
        """Record a prompt or an answer on the call; on the step where another library records the call."""
        if isinstance(self._call, OpenCall):
            self._call._add(**facts)
        elif self._owns_step or not cast(RecordingSpan, self._step.span).has(keys.value):
            record = self._step.observation if keys is content.OBSERVATION else self._step.action
            record(next(iter(facts.values())))

    @property
    def _conversation(self) -> Conversation:
        return self._step._owner._conversation

    def _open_call(self) -> OpenCall | LoggedCall:
        arguments = self._arguments
        numbers = {_SAME.get(name, name): value for name, value in arguments.items() if _is_number(value)}
        parameters = {name: numbers[name] for name in _PARAMETERS if name in numbers}
        operation, model = self._api.operation, arguments.get("model")
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
            if type(response).__name__ == "LegacyAPIResponse":  # a raw response, which caches its parsed form
                response = response.parse()
        except Exception as error:  # the caller meets the same error
            raise_interrupt(error)
            self._record_fault("answer_unrecorded", scalar_text(error))
            return
        stream = _stream(response)
        if stream is None:
            self._record_response(response)
            return
        is_async = isinstance(stream, openai.AsyncStream)
        chunks = EventAssembler() if self._api is _RESPONSES else ResponseAssembler()
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
            if isinstance(error, CancelledError) and isinstance(handle, Handle) and not handle.ended:
                handle._attempt(handle._finish, error_type=qualified_name(error))
            elif handle is not None:
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
        if getattr(response, "output", None) is not None:
            response = as_chat(response)
        choices = getattr(response, "choices", None)
        if choices is None:
            kind = type(response)
            detail = f"a {kind.__module__}.{kind.__qualname__} is not a completion"
            self._record_fault("answer_unrecorded", detail)
            return
        if self._call is not None:
            guard(_LIBRARY, self._record_facts, self._call, response, choices)
        if choices:
            guard(_LIBRARY, self._record_action, choices)
        if self._log is None:
            guard(_LIBRARY, self._record_tokens, response, choices)

    def _record_facts(self, call: OpenCall | LoggedCall, response: Any, choices: Sequence[Any]) -> None:
        usage = fields(getattr(response, "usage", None))
        details = usage.get("completion_tokens_details", usage.get("output_tokens_details"))
        reasons = [getattr(choice, "finish_reason", None) for choice in choices]
        call.response(
            model=getattr(response, "model", None),
            id=getattr(response, "id", None),
            finish_reasons=[reason for reason in reasons if reason],
            input_tokens=usage.get("prompt_tokens", usage.get("input_tokens")),
            output_tokens=usage.get("completion_tokens", usage.get("output_tokens")),
            reasoning_tokens=fields(details).get("reasoning_tokens"),
            time_to_first_chunk=self._time_to_first_chunk,
        )

    def _record_action(self, choices: Sequence[Any]) -> None:
        answers = [_content(choice) for choice in choices]
        answer = answers[0] if len(answers) == 1 else answers
        if self._log is None:
            for each in answers:
                self._conversation.answer(each)
        if not self._options.actions:
            return
        if isinstance(self._call, LoggedCall):
            self._call.exchange(result=answer)
        elif self._log is None:
            self._record_content(content.ACTION, result=answer)

    def _record_tokens(self, response: Any, choices: Sequence[Any]) -> None:
        """
        Record token ids, log probabilities and texts, as vLLM returns them (`return_token_ids`, `logprobs`).

        A step has one token block, so that tokens of several choices are counted as a fault.
        """
        blocks = [block for choice in choices if (block := _tokens(choice))]
        if len(blocks) > 1:
            what = "token ids" if "ids" in blocks[0] else "log probabilities"
            detail = f"{len(blocks)} choices have {what}, a step has one block"
            self._record_fault("tokens_unrecorded", detail)
            return
        for block in blocks:
            prompt_ids = getattr(response, "prompt_token_ids", None)
            if prompt_ids is None:
                prompt_ids = getattr(choices[0], "prompt_token_ids", None)
            self._step.tokens(**block, prompt_ids=prompt_ids)

    def _record_fault(self, kind: str, detail: str) -> None:
        """Count a fault, and name it on the step, if the request belongs to one."""
        if self._log is None:
            cast(RecordingSpan, self._step.span).fault(kind, detail)
        else:
            fault(kind, detail)


def _tokens(choice: Any) -> dict[str, Any]:
    """Return the token ids, log probabilities and token texts of a choice, those that it has."""
    tokens, logprobs = {"ids": getattr(choice, "token_ids", None)}, getattr(choice, "logprobs", None)
    listed = getattr(logprobs, "content", None)
    if listed is not None:  # of a chat
        listed = [*map(fields, listed)]
        tokens["logprobs"] = [token.get("logprob") for token in listed]  # None is a fault
        tokens["texts"] = [token.get("token") for token in listed]
    else:
        tokens["logprobs"] = getattr(logprobs, "token_logprobs", None)
        tokens["texts"] = getattr(logprobs, "tokens", None)
    texts = tokens["texts"]
    if texts and all(isinstance(text, str) for text in texts):
        ids = [int(text[len(_AS_ID) :]) for text in texts if _ID_TEXT.fullmatch(text)]
        if len(ids) == len(texts):  # vLLM's `return_tokens_as_token_ids`
            tokens |= {"ids": ids if tokens["ids"] is None else tokens["ids"], "texts": None}
    else:
        tokens["texts"] = None
    block = {name: value for name, value in tokens.items() if value is not None}
    if block and "ids" not in block and tokens["logprobs"]:
        block["count"] = len(tokens["logprobs"])
    return block


_AS_ID = "token_id:"
_ID_TEXT = re.compile(f"{_AS_ID}[0-9]+")


def _content(choice: Any) -> Any:
    """Return the message of a chat choice as data, or the text of a text choice."""
    message = getattr(choice, "message", None)
    return getattr(choice, "text", None) if message is None else as_data(message, _PARSED)


def _stream(response: Any) -> Any:
    """Return the stream in a response, also inside a wrapper of OpenTelemetry's instrumentation, or None."""
    for candidate in (getattr(response, "__wrapped__", None), getattr(response, "stream", None), response):
        if issubclass(type(candidate), (openai.Stream, openai.AsyncStream)):
            return candidate
    return None


def _parent(handle: OpenCall | LoggedCall | OpenStep) -> AbstractContextManager[object]:
    """Make the handle's span the parent of spans in the block, if it has one."""
    if not handle:
        return nullcontext()
    return trace.use_span(handle.span, record_exception=False, set_status_on_exception=False)


def _label(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def _note_unrecorded(detail: str) -> None:
    """Count a request of an episode or a scoring that no patch has recorded."""
    if _IN_REQUEST.get() or is_suppressed():
        return
    if log_here() is not None:
        fault(_UNRECORDED, detail)
    elif handle := current_step() or current_trajectory():
        cast(RecordingSpan, handle.span).fault(_UNRECORDED, detail)


_UNRECORDED = "call_unrecorded"
_SOCKETS = (
    "openai.resources.responses.responses",
    "openai.resources.realtime.realtime",
    "openai.resources.beta.realtime.realtime",
    "openai.resources.live.live",
)
"""Modules whose resources open web sockets."""


def _earlier_parsers() -> Iterator[Any]:
    """Yield the classes that parse chats in earlier versions, where they are not those of chats."""
    for name in ("Completions", "AsyncCompletions"):
        with suppress(ImportError, AttributeError):
            kind = getattr(import_module("openai.resources.beta.chat.completions"), name)
            if not issubclass(kind, (_chat.Completions, _chat.AsyncCompletions)):
                yield kind


def _earlier_parser(client: Any) -> Iterator[tuple[str, Any, _Api]]:
    """Yield what parses the chats of a client in earlier versions."""
    with suppress(ImportError, AttributeError):
        parser = client.beta.chat.completions
        if isinstance(parser, tuple(_earlier_parsers())):
            yield "beta.chat.completions", parser, _CHAT


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
    patches = handle_in(target.chat.completions, ClientPatches, "create")
    if patches is not None:
        if options:
            patches.use(options)
        return patches.claim()
    is_official = _is_official_active()  # once: later patches of the class are not called through this one
    handle = ClientPatches(options, lambda: is_official)
    handle.patch(
        [
            ("chat.completions", target.chat.completions, _CHAT),
            ("completions", target.completions, _TEXT),
            ("responses", target.responses, _RESPONSES),
            *_earlier_parser(target),
        ]
    )
    handle.watch([("client", target)])
    SocketPatches.attach_all()
    handle.copies("client", target)
    return handle

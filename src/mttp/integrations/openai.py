"""
Clients of OpenAI's kind, whichever server they talk to: each call within a step becomes a model call.

Outside an episode nothing is recorded. Within an episode but outside a step, a call is a step of its own.
Where OpenTelemetry's own instrumentation is at work its spans are the calls, and ours adds what it does not
know: token ids and log probabilities, where the server returns them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from opentelemetry import trace

from mttp.codec.plain import scalar_text
from mttp.errors import InstrumentError, MissingExtra
from mttp.integrations.faults import fault, guard
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches, handle_in
from mttp.integrations.scoring_calls import LoggedCall, log_here
from mttp.integrations.stream_assembly import Gathered
from mttp.integrations.streams import listen
from mttp.model.episodes import Call
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
"""What a call is, by the argument that it has."""
_OFFICIAL = ("opentelemetry.instrumentation.genai.openai", "opentelemetry.instrumentation.openai_v2")

_ASKING: ContextVar[bool] = ContextVar("mttp-openai-asking", default=False)
"""Whether a call is recorded already, by another of its surroundings."""

_everything: ClientPatches | None = None


class ClientPatches(Patches):
    """The methods that ask a model, of one client or of all, surrounded."""

    def __init__(
        self, places: Iterable[tuple[str, Any]], options: Options, is_official: Callable[[], bool]
    ) -> None:
        super().__init__(lambda: None)
        self._options = options
        self._is_official = is_official
        self.expect(
            _LIBRARY,
            (
                (f"{label}.{method}", owner, method, self._around(owner))
                for label, owner in places
                for method in ("create", "parse")
                if method == "create" or hasattr(owner, method)  # chats alone, and not of old
            ),
        )

    def use(self, options: Options) -> None:
        """Take other options from here on."""
        self._options = options

    def _around(self, owner: Any) -> Callable[..., Any]:
        kind = owner if isinstance(owner, type) else type(owner)
        return self._create_async if kind.__name__.startswith("Async") else self._create

    def _create(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        asked = guard(_LIBRARY, self._asked, kwargs)
        if asked is None:
            return wrapped(*args, **kwargs)
        with asked.going_on():
            answer = wrapped(*args, **asked.told(kwargs))
            guard(_LIBRARY, asked.take, answer)
            return answer

    async def _create_async(
        self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        asked = guard(_LIBRARY, self._asked, kwargs)
        if asked is None:
            return await wrapped(*args, **kwargs)
        with asked.going_on():
            answer = await wrapped(*args, **asked.told(kwargs))
            guard(_LIBRARY, asked.take, answer)
            return answer

    def _asked(self, given: Mapping[str, Any]) -> _ModelCall | None:
        """What is recorded of a call; None where nothing is."""
        if _ASKING.get() or is_suppressed():
            return None
        log = log_here()
        if log is None and not current_episode():
            return None
        return _ModelCall(given, self._options, log, is_official="messages" in given and self._is_official())


class _ModelCall:
    """One call, from the question to the end of the answer; one that has a `log` is part of a scoring."""

    def __init__(
        self, given: Mapping[str, Any], options: Options, log: CallLog | None, *, is_official: bool
    ) -> None:
        self._given = given
        self._options = options
        self._log = log
        self._gathered: Gathered | None = None
        self._began = time.perf_counter()
        self._time_to_first_chunk: float | None = None
        self._is_ours = log is None and not current_step()
        self._step: OpenStep = inert_step() if log is not None else current_step()
        if self._is_ours:
            self._step = current_episode().step()
        self._call: OpenCall | LoggedCall | None = None if is_official else self._opened()

    def told(self, given: dict[str, Any]) -> dict[str, Any]:
        """
        The call's arguments, of which the question is recorded.

        What can be gone through only once, such as a generator, is a list from here on; what it raises is
        the caller's.
        """
        name = next((name for name in _OPERATIONS if name in given), None)
        if name is None:
            return given
        if isinstance(given[name], Iterator):
            given = {**given, name: list(given[name])}
        if self._is_ours and self._options.observations:
            guard(_LIBRARY, self._shown, given[name])
        return given

    def _shown(self, question: Any) -> None:
        is_text = isinstance(question, (str, bytes, Mapping)) or not isinstance(question, Iterable)
        self._step.observation(question if is_text else list(map(_plain, question)))

    def _opened(self) -> OpenCall | LoggedCall:
        parameters = {name: self._given[name] for name in _PARAMETERS if _is_stated(self._given.get(name))}
        if "max_completion_tokens" in parameters:
            parameters["max_tokens"] = parameters.pop("max_completion_tokens")
        operation = next((word for name, word in _OPERATIONS.items() if name in self._given), "chat")
        model = self._given.get("model")
        if self._log is None:
            return self._step.model_call(model, operation=operation, provider=_LIBRARY, **parameters)
        call = Call(operation=operation, name=model, provider=_LIBRARY, parameters=parameters)
        return LoggedCall(self._log, call)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """While the model is asked; what is raised goes on, and ends the call in error."""
        token = _ASKING.set(True)
        try:
            with _within(self._call or self._step):
                yield
        except BaseException as error:
            self.over(error)
            raise
        else:
            if self._gathered is None:
                self.over()
        finally:
            _ASKING.reset(token)

    def take(self, answer: Any) -> None:
        """The model answered, or begins to: a stream is heard as the user reads it."""
        try:
            answer = _parsed(answer)
        except Exception as error:  # the caller will find it out, too
            self._missed("answer_unrecorded", scalar_text(error))
            return
        stream = _stream(answer)
        if stream is None:
            self._answered(answer)
            return
        is_async = isinstance(stream, openai.AsyncStream)
        gathered = Gathered()
        listen(_LIBRARY, stream, self, iterator="_iterator", is_async=is_async)
        self._gathered = gathered
        if self._call is not None:
            self._call._before_end = partial(guard, _LIBRARY, self._tell)

    def heard(self, piece: Any) -> None:
        """A piece of a stream."""
        if self._time_to_first_chunk is None:
            self._time_to_first_chunk = time.perf_counter() - self._began
        if self._gathered is not None:
            self._gathered.add(piece)

    def over(self, error: BaseException | None = None) -> None:
        """The answer is complete, or as complete as it will be."""
        guard(_LIBRARY, self._tell)
        for handle in (self._call, self._step if self._is_ours else None):
            if handle is not None:
                handle.__exit__(None if error is None else type(error), error, None)

    def _tell(self) -> None:
        """Record what a stream said; if its step ends before it does, what it said until then."""
        gathered, self._gathered = self._gathered, None
        if gathered is not None and (self._log is not None or not self._step.ended):
            self._answered(gathered.answer)

    def _answered(self, answer: Any) -> None:
        choices = getattr(answer, "choices", None)
        if choices is None:
            self._unknown(answer)
            return
        usage = getattr(answer, "usage", None)
        if self._call is not None:
            self._call.response(
                model=getattr(answer, "model", None),
                id=getattr(answer, "id", None),
                finish_reasons=[choice.finish_reason for choice in choices if choice.finish_reason],
                input_tokens=getattr(usage, "prompt_tokens", None),
                output_tokens=getattr(usage, "completion_tokens", None),
                time_to_first_chunk=self._time_to_first_chunk,
            )
        if choices and self._is_ours and self._options.actions:
            said = [_said(choice) for choice in choices]
            self._step.action(said[0] if len(said) == 1 else said)
        if self._log is None:
            self._take_tokens(answer, choices)

    def _take_tokens(self, answer: Any, choices: Sequence[Any]) -> None:
        """
        Token ids and log probabilities, as vLLM returns them (`return_token_ids`, `logprobs`).

        Log probabilities without the ids that they are of are no token block.
        A step has one block, so that those of several choices are not recorded, which is said on the step.
        """
        found = [
            (ids, choice) for choice in choices if (ids := getattr(choice, "token_ids", None)) is not None
        ]
        if len(found) > 1:
            self._missed("tokens_unrecorded", f"{len(found)} choices have token ids, a step has one block")
            return
        for ids, choice in found:
            self._take_block(answer, ids, choice)

    def _take_block(self, answer: Any, ids: Any, choice: Any) -> None:
        prompt_ids = getattr(answer, "prompt_token_ids", None)
        prompt_ids = getattr(choice, "prompt_token_ids", None) if prompt_ids is None else prompt_ids
        self._step.tokens(ids, logprobs=_logprobs(choice), prompt_ids=prompt_ids)

    def _unknown(self, answer: Any) -> None:
        """The answer is no completion: a text, say, or one that the caller reads by other means."""
        kind = type(answer)
        self._missed("answer_unrecorded", f"a {kind.__module__}.{kind.__qualname__} is no completion")

    def _missed(self, kind: str, detail: str) -> None:
        """Count what is not recorded, and say it on the step, where the call is of one."""
        if self._log is None:
            cast(RecordingSpan, self._step.span).fault(kind, detail)
        else:
            fault(kind, detail)


def _logprobs(choice: Any) -> list[float] | None:
    """One per token, of a chat's answer or a text's."""
    found = getattr(choice, "logprobs", None)
    content = getattr(found, "content", None)
    if content is not None:
        return [token.logprob for token in content]
    return getattr(found, "token_logprobs", None)


def _said(choice: Any) -> Any:
    message = getattr(choice, "message", None)
    if message is None:
        return getattr(choice, "text", None)
    if isinstance(message, dict):
        return message
    return message.model_dump(exclude_none=True, exclude={"parsed"})  # `content` has it as it came


def _parsed(answer: Any) -> Any:
    """A raw response holds the parsed one, which is parsed once."""
    return answer.parse() if type(answer).__name__ == "LegacyAPIResponse" else answer


def _stream(answer: Any) -> Any:
    """The stream that an answer is, or that OpenTelemetry's own instrumentation put something around."""
    for found in (getattr(answer, "__wrapped__", None), getattr(answer, "stream", None), answer):
        if issubclass(type(found), (openai.Stream, openai.AsyncStream)):
            return found
    return None


def _within(handle: OpenCall | LoggedCall | OpenStep) -> AbstractContextManager[object]:
    """A block whose spans are children of what goes on after it."""
    if not handle:
        return nullcontext()
    return trace.use_span(handle.span, record_exception=False, set_status_on_exception=False)


def _plain(message: Any) -> Any:
    """A message as data; what the model answered before is asked with again as the object that it was."""
    return message.model_dump(exclude_none=True) if hasattr(message, "model_dump") else message


def _is_stated(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_official_at_work() -> bool:
    """Whether OpenTelemetry's own instrumentation records these calls."""
    for name in _OFFICIAL:
        kind = getattr(sys.modules.get(name), "OpenAIInstrumentor", None)
        if kind is not None and kind().is_instrumented_by_opentelemetry:
            return True
    return False


def attach(target: Any, /, **options: Any) -> ClientPatches:
    """
    Record what a client asks within episodes.

    A client that is recorded already keeps its handle, and takes the options that are given.
    """
    chosen = Options.of(options)
    if not isinstance(target, (openai.OpenAI, openai.AsyncOpenAI)):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise InstrumentError(f"{kind} is no client; instrument an OpenAI or an AsyncOpenAI")
    found = handle_in(target.chat.completions, ClientPatches, "create")
    if found is not None:
        if options:
            found.use(chosen)
        return found.claim()
    is_within = _is_official_at_work()  # what is put over its methods later is not called through ours
    return ClientPatches(
        [("chat.completions", target.chat.completions), ("completions", target.completions)],
        chosen,
        lambda: is_within,
    )


def attach_all(**options: Any) -> ClientPatches:
    """Record what all clients ask within episodes; called again, it gives the same handle back."""
    global _everything
    chosen = Options.of(options)
    if _everything is None or not _everything.attached:
        kinds = (_chat.Completions, _chat.AsyncCompletions, _text.Completions, _text.AsyncCompletions)
        places = [(f"{kind.__module__}.{kind.__name__}", kind) for kind in kinds]
        _everything = ClientPatches(places, chosen, _is_official_at_work)
    elif options:
        _everything.use(chosen)
    return _everything

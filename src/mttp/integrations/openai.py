"""
Clients of OpenAI's kind, whichever server they talk to: each call within a step becomes a model call.

Outside an episode nothing is recorded. Within an episode but outside a step, a call is a step of its own.
Where OpenTelemetry's own instrumentation is at work its spans are the calls, and ours adds what it does not
know: token ids and log probabilities, where the server returns them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

from opentelemetry import trace

from mttp.errors import InstrumentError, MissingExtra
from mttp.integrations.covering import is_suppressed
from mttp.integrations.faults import guard
from mttp.integrations.options import Options
from mttp.integrations.pieces import Gathered
from mttp.integrations.seams import Handle, Seam
from mttp.integrations.streams import listen
from mttp.recorder import OpenCall, OpenStep, current_episode, current_step

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

_everything: Client | None = None


class Client(Handle):
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
            answer = wrapped(*args, **kwargs)
            guard(_LIBRARY, asked.take, answer)
            return answer

    async def _create_async(
        self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        asked = guard(_LIBRARY, self._asked, kwargs)
        if asked is None:
            return await wrapped(*args, **kwargs)
        with asked.going_on():
            answer = await wrapped(*args, **kwargs)
            guard(_LIBRARY, asked.take, answer)
            return answer

    def _asked(self, given: Mapping[str, Any]) -> _Asked | None:
        """What is recorded of a call; None where nothing is."""
        if not self.attached or _ASKING.get() or is_suppressed() or not current_episode():
            return None
        return _Asked(given, self._options, is_official="messages" in given and self._is_official())


class _Asked:
    """One call, from the question to the end of the answer."""

    def __init__(self, given: Mapping[str, Any], options: Options, *, is_official: bool) -> None:
        self._given = given
        self._options = options
        self._gathered: Gathered | None = None
        self._began = time.perf_counter()
        self._time_to_first_chunk: float | None = None
        self._is_ours = not current_step()
        self._step: OpenStep = current_episode().step() if self._is_ours else current_step()
        if self._is_ours and options.observations:
            self._step.observation(self._question())
        self._call: OpenCall | None = None if is_official else self._opened()

    def _question(self) -> Any:
        asked = next((self._given[name] for name in _OPERATIONS if name in self._given), None)
        return list(map(_plain, asked)) if isinstance(asked, (list, tuple)) else asked

    def _opened(self) -> OpenCall:
        parameters = {name: self._given[name] for name in _PARAMETERS if _is_stated(self._given.get(name))}
        if "max_completion_tokens" in parameters:
            parameters["max_tokens"] = parameters.pop("max_completion_tokens")
        operation = next((word for name, word in _OPERATIONS.items() if name in self._given), "chat")
        return self._step.model_call(
            self._given.get("model"), operation=operation, provider="openai", **parameters
        )

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
        answer = _parsed(answer)
        stream = _stream(answer)
        if stream is None:
            self._answered(answer)
            return
        is_async = isinstance(stream, openai.AsyncStream)
        gathered = Gathered()
        listen(_LIBRARY, stream, self, iterator="_iterator", is_async=is_async)
        self._gathered = gathered
        if self._call is not None:
            self._call.at_end = partial(guard, _LIBRARY, self._tell)

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
        if gathered is not None and not self._step.ended:
            self._answered(gathered.answer)

    def _answered(self, answer: Any) -> None:
        choices = getattr(answer, "choices", None) or []
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
        if len(choices) == 1:
            if self._is_ours and self._options.actions:
                self._step.action(_said(choices[0]))
            self._take_tokens(answer, choices[0])

    def _take_tokens(self, answer: Any, choice: Any) -> None:
        """
        Token ids and log probabilities, as vLLM returns them (`return_token_ids`, `logprobs`).

        Log probabilities without the ids that they are of are no token block.
        """
        ids = getattr(choice, "token_ids", None)
        if ids is None:
            return
        prompt_ids = getattr(answer, "prompt_token_ids", None)
        prompt_ids = getattr(choice, "prompt_token_ids", None) if prompt_ids is None else prompt_ids
        self._step.tokens(ids, logprobs=_logprobs(choice), prompt_ids=prompt_ids)


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
    """What `with_raw_response` asked for is in what it gives, which is parsed once for whoever asks."""
    return answer.parse() if type(answer).__name__ == "LegacyAPIResponse" else answer


def _stream(answer: Any) -> Any:
    """The stream that an answer is, or that OpenTelemetry's own instrumentation put something around."""
    for found in (getattr(answer, "__wrapped__", None), getattr(answer, "stream", None), answer):
        if issubclass(type(found), (openai.Stream, openai.AsyncStream)):
            return found
    return None


def _within(handle: OpenCall | OpenStep) -> AbstractContextManager[object]:
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


def attach(target: Any, /, **options: Any) -> Client:
    """
    Record what a client asks within episodes.

    A client that is recorded already keeps its handle, and takes the options that are given.
    """
    chosen = Options.of(options)
    if not isinstance(target, (openai.OpenAI, openai.AsyncOpenAI)):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise InstrumentError(f"{kind} is no client; instrument an OpenAI or an AsyncOpenAI")
    found = vars(target.chat.completions).get("create")
    if isinstance(found, Seam) and isinstance(found.handle, Client):
        if options:
            found.handle.use(chosen)
        return found.handle.claim()
    is_within = _is_official_at_work()  # what is put over its methods later is not called through ours
    return Client(
        [("chat.completions", target.chat.completions), ("completions", target.completions)],
        chosen,
        lambda: is_within,
    )


def attach_all(**options: Any) -> Client:
    """Record what all clients ask within episodes; called again, it gives the same handle back."""
    global _everything
    chosen = Options.of(options)
    if _everything is None or not _everything.attached:
        kinds = (_chat.Completions, _chat.AsyncCompletions, _text.Completions, _text.AsyncCompletions)
        places = [(f"{kind.__module__}.{kind.__name__}", kind) for kind in kinds]
        _everything = Client(places, chosen, _is_official_at_work)
    elif options:
        _everything.use(chosen)
    return _everything

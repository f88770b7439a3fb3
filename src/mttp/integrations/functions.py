"""
Functions of the user's own: a call of one is an episode, or what it returns is what an episode is paid.

Nothing is known of such a function but that it is called, so that it is replaced where it is named:
`rollout = mttp.instrument(rollout)`, or as a decorator.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import wrapt
from typing_extensions import Self

from mttp.errors import InstrumentError
from mttp.integrations.faults import fault, guard
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.patching import Bound, by_name
from mttp.recording import configuration, feedback
from mttp.recording.current import current_episode, current_step
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.rewards.call_log import CallLog

__all__ = ["FunctionOptions", "RecordedFunction", "attach"]

_LIBRARY = "function"
EPISODE, REWARD = KINDS = ("episode", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionOptions(Options):
    """The options of `instrument` for a function; `task` and `group` may be functions of its arguments."""

    records: str | None = None
    """
    What a call is: "episode", or "reward", what it returns being what an episode or a step is paid.

    By default it is a reward where an episode goes on, and an episode where none does.
    """
    env: str | None = None
    """The environment that its episodes name; by default the function's name."""
    inputs: bool = True
    """Whether its arguments are recorded as the inputs of its episodes."""

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.records is not None and self.records not in KINDS:
            raise InstrumentError(f"records={self.records!r} is none of {', '.join(KINDS)}")


class RecordedFunction(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # generic since wrapt 2 only
    """A function that is recorded, which looks like the original; it undoes itself by `detach`."""

    __bound_function_wrapper__ = Bound

    def __init__(self, wrapped: Callable[..., Any], options: FunctionOptions) -> None:
        is_async = inspect.iscoroutinefunction(_function(wrapped)) or inspect.iscoroutinefunction(
            getattr(wrapped, "__call__", None)  # noqa: B004 - an instance's, which may be async
        )
        super().__init__(wrapped, self._around_async if is_async else self._around)
        self._self_options = options
        self._self_attached = True

    def use(self, options: FunctionOptions) -> None:
        """Take other options from here on."""
        self._self_options, self._self_attached = options, True

    def detach(self) -> None:
        """Record no more calls; a second call of this does nothing."""
        self._self_attached = False

    def status(self) -> dict[str, bool]:
        """The function by name, and whether its calls are recorded."""
        return {_name(self.__wrapped__): self._self_attached}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    def __copy__(self) -> Any:
        return self._like(copy.copy(self.__wrapped__))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._like(copy.deepcopy(self.__wrapped__, memo))

    def _like(self, wrapped: Callable[..., Any]) -> RecordedFunction:
        """Another one recorded likewise; a plain function, of which there are no copies, is itself."""
        return self if wrapped is self.__wrapped__ else RecordedFunction(wrapped, self._self_options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not inspect.isroutine(self.__wrapped__) or inspect.ismethod(self.__wrapped__):
            return RecordedFunction, (self.__wrapped__, self._self_options)
        return by_name(self.__wrapped__)

    def _around(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        call = self._call(wrapped, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        with call:
            result = wrapped(*args, **kwargs)
            call.returned(result)
            return result

    async def _around_async(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        call = self._call(wrapped, args, kwargs)
        if call is None:
            return await wrapped(*args, **kwargs)
        with call:
            result = await wrapped(*args, **kwargs)
            call.returned(result)
            return result

    def _call(self, wrapped: Callable[..., Any], args: Any, kwargs: Any) -> _Call | None:
        """What is recorded of a call; None where nothing is."""
        if not self._self_attached or is_suppressed():
            return None
        return guard(_LIBRARY, _opened, self._self_options, wrapped, args, kwargs)


def _opened(options: FunctionOptions, wrapped: Callable[..., Any], args: Any, kwargs: Any) -> _Call | None:
    kind = options.records or (REWARD if current_episode() else EPISODE)
    if kind == REWARD:
        return _Scoring(_name(wrapped), [*args, *kwargs.values()])
    episode = configuration.episode(
        env=options.env or _name(wrapped),
        task=_of_call(options.task, args, kwargs),
        group=_of_call(options.group, args, kwargs),
        policy=options.policy,
        inputs=_arguments(wrapped, args, kwargs) if options.inputs else None,
        metadata=options.metadata,
    )
    return _Playing(episode) if episode else None


class _Call:
    """What is recorded of one call."""

    def returned(self, result: Any) -> None:
        """It returned this."""

    def __enter__(self) -> None:
        """It begins."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It is over; what it raised goes on."""


class _Playing(_Call):
    """A call that is an episode."""

    def __init__(self, episode: OpenEpisode) -> None:
        self._episode = episode

    def __enter__(self) -> None:
        self._episode.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._episode.__exit__(kind, error, trace)


class _Scoring(_Call):
    """A call that scores: the episodes or steps among its arguments, or else the current one."""

    def __init__(self, name: str, arguments: list[Any]) -> None:
        self._name = name
        self._targets, self._is_batch = _targets(arguments)
        self._log = CallLog()

    def __enter__(self) -> None:
        self._log.__enter__()

    def returned(self, result: Any) -> None:
        """Each target is paid its score."""
        guard(_LIBRARY, self._score, result)

    def _score(self, result: Any) -> None:
        if not self._targets:
            fault("reward_without_episode", f"{self._name} was called where no episode goes on")
            return
        scores = _each(result, len(self._targets)) if self._is_batch else [result]
        if len(scores) != len(self._targets):
            answer = f"{len(scores)} in a {type(result).__name__}"
            fault("rewards_unaligned", f"{self._name}: {answer} for {len(self._targets)} episodes")
            return
        for target, score in zip(self._targets, scores, strict=True):
            self._pay(target, score, **({"status": "abstained"} if score is None else {}))

    def _pay(self, target: OpenEpisode | OpenStep, score: Any, **more: Any) -> None:
        """The calls that were made for several are the first one's."""
        if target is self._targets[0] and self._log.calls:
            more["calls"] = self._log.calls
        if target.ended:
            feedback.score(target, score, grader=self._name, **more)
        else:
            target.reward(score, grader=self._name, **more)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.__exit__()
        if isinstance(error, Exception):
            for target in self._targets:
                guard(_LIBRARY, self._pay, target, None, status="error", error=error)


def _targets(arguments: list[Any]) -> tuple[list[OpenEpisode | OpenStep], bool]:
    """What is scored, and whether it is a batch, of which each member has a score of its own."""
    for argument in arguments:
        if isinstance(argument, (OpenEpisode, OpenStep)):
            return [argument], False
        if isinstance(argument, (list, tuple)) and _is_batch(argument):
            return [*argument], True
    step, episode = current_step(), current_episode()
    return [step] if step else [episode] if episode else [], False


def _is_batch(argument: Any) -> bool:
    return bool(argument) and all(isinstance(item, (OpenEpisode, OpenStep)) for item in argument)


def _each(result: Any, count: int) -> list[Any]:
    """
    The scores of so many; none where they can't be gone through, or only once, which is the caller's to do.
    """
    if result is None:
        return [None] * count
    if isinstance(result, (Iterator, Mapping)) or not isinstance(result, Iterable):
        return []
    return list(result)


def _of_call(given: object, args: Any, kwargs: Any) -> Any:
    return given(*args, **kwargs) if callable(given) else given


def _arguments(wrapped: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Its arguments by name; where it has no signature, or refuses them, as they are."""
    try:
        bound = inspect.signature(wrapped).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {"args": args, **kwargs}
    return {name: value for name, value in bound.arguments.items() if name != "self"}


def _function(target: Any) -> Any:
    """What a static method or a class method is made of; all else is itself."""
    return getattr(target, "__func__", target)


def _name(wrapped: Callable[..., Any]) -> str:
    while isinstance(wrapped, partial):
        wrapped = wrapped.func
    return getattr(wrapped, "__name__", None) or type(wrapped).__name__


def attach(target: Any, /, **options: Any) -> RecordedFunction:
    """
    The function, recorded: its calls are episodes, or rewards.

    One that is recorded already comes back as it is, and takes the options that are given.
    Raises InstrumentError for a generator function: it has not played when it returns.
    """
    chosen = FunctionOptions.of(options)
    if isinstance(target, RecordedFunction):
        if options or not target._self_attached:
            target.use(chosen)
        return target
    if inspect.isgeneratorfunction(_function(target)) or inspect.isasyncgenfunction(_function(target)):
        raise InstrumentError(f"{_name(target)} is a generator; write `with mttp.episode():` in it instead")
    return RecordedFunction(target, chosen)

"""
Recorded functions: a call is an episode, or its return value is a reward.

A function cannot be patched in place, so that the recorded function replaces it by name:
`rollout = mttp.instrument(rollout)`, or as a decorator.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, ClassVar

import wrapt
from typing_extensions import Self

from mttp.codec.plain import scalar_text
from mttp.errors import InstrumentError
from mttp.integrations.faults import fault, guard
from mttp.integrations.nesting import is_suppressed
from mttp.integrations.options import Options
from mttp.integrations.patching import Bound, by_name
from mttp.model.call_log import CallLog
from mttp.recording import configuration, feedback
from mttp.recording.current import current_episode, current_step
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep

__all__ = ["FunctionOptions", "RecordedFunction", "attach"]

_LIBRARY = "function"
EPISODE, REWARD = KINDS = ("episode", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionOptions(Options):
    """The options of `instrument` for a function; `task` and `group` may be functions of its arguments."""

    records: str | None = None
    """
    "episode": each call is an episode; "reward": the return value is the reward of a step or an episode.

    By default a call inside an episode is a reward, and any other call is an episode.
    """
    env: str | None = None
    """The environment's name; by default the function's name."""
    inputs: bool = True
    """Whether the arguments are recorded as the episode's inputs."""

    _SWITCHES: ClassVar[tuple[str, ...]] = (*Options._SWITCHES, "inputs")

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        records: object = self.records
        if records is not None and not (isinstance(records, str) and records in KINDS):
            raise InstrumentError(f"records={scalar_text(self.records):.80} is not one of {', '.join(KINDS)}")


class RecordedFunction(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # generic since wrapt 2 only
    """A recorded function with the name, signature and result of the original; `detach` stops recording."""

    __bound_function_wrapper__ = Bound

    def __init__(self, wrapped: Callable[..., Any], options: FunctionOptions) -> None:
        is_async = inspect.iscoroutinefunction(_function(wrapped)) or inspect.iscoroutinefunction(
            getattr(wrapped, "__call__", None)  # noqa: B004 - an instance's, which may be async
        )
        super().__init__(wrapped, self._record_async if is_async else self._record)
        self._self_options = options
        self._self_attached = True

    def use(self, options: FunctionOptions) -> None:
        """Use new options from now on, and record again after `detach`."""
        self._self_options, self._self_attached = options, True

    def detach(self) -> None:
        """Stop recording; a second call does nothing."""
        self._self_attached = False

    def status(self) -> dict[str, bool]:
        """Return the function's name, and whether its calls are recorded."""
        return {_name(self.__wrapped__): self._self_attached}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    def __copy__(self) -> Any:
        return self._recording(copy.copy(self.__wrapped__))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._recording(copy.deepcopy(self.__wrapped__, memo))

    def _recording(self, wrapped: Callable[..., Any]) -> RecordedFunction:
        """Return a recorded copy; this object where copying returned the function itself."""
        return self if wrapped is self.__wrapped__ else RecordedFunction(wrapped, self._self_options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not inspect.isroutine(self.__wrapped__) or inspect.ismethod(self.__wrapped__):
            return RecordedFunction, (self.__wrapped__, self._self_options)
        return by_name(self.__wrapped__)

    def _record(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        call = self._start(wrapped, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        with call:
            result = wrapped(*args, **kwargs)
            call.returned(result)
            return result

    async def _record_async(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        call = self._start(wrapped, args, kwargs)
        if call is None:
            return await wrapped(*args, **kwargs)
        with call:
            result = await wrapped(*args, **kwargs)
            call.returned(result)
            return result

    def _start(self, wrapped: Callable[..., Any], args: Any, kwargs: Any) -> _FunctionCall | None:
        """Start recording a call; returns None if it is not recorded."""
        if not self._self_attached or is_suppressed():
            return None
        return guard(_LIBRARY, _recorded_call, self._self_options, wrapped, args, kwargs)


def _recorded_call(
    options: FunctionOptions, wrapped: Callable[..., Any], args: Any, kwargs: Any
) -> _FunctionCall | None:
    kind = options.records or (REWARD if current_episode() else EPISODE)
    if kind == REWARD:
        return _RewardCall(_name(wrapped), [*args, *kwargs.values()])
    episode = configuration.episode(
        env=options.env or _name(wrapped),
        task=_evaluated(options.task, args, kwargs),
        group=_evaluated(options.group, args, kwargs),
        policy=options.policy,
        inputs=_arguments(wrapped, args, kwargs) if options.inputs else None,
        metadata=options.metadata,
    )
    return _EpisodeCall(episode) if episode else None


class _FunctionCall:
    """One recorded call of a function."""

    def returned(self, result: Any) -> None:
        """Record the return value."""

    def __enter__(self) -> None:
        """Start the call."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the call; an exception propagates."""


class _EpisodeCall(_FunctionCall):
    """A call that is recorded as an episode."""

    def __init__(self, episode: OpenEpisode) -> None:
        self._episode = episode

    def __enter__(self) -> None:
        self._episode.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._episode.__exit__(kind, error, trace)


class _RewardCall(_FunctionCall):
    """A call that returns rewards: of the episodes or steps in its arguments, or of the current one."""

    def __init__(self, name: str, arguments: list[Any]) -> None:
        self._name = name
        self._targets, self._is_batch = _targets(arguments)
        self._log = CallLog()

    def __enter__(self) -> None:
        self._log.__enter__()

    def returned(self, result: Any) -> None:
        """Record the reward of each target."""
        guard(_LIBRARY, self._record_rewards, result)

    def _record_rewards(self, result: Any) -> None:
        if not self._targets:
            fault("reward_without_episode", f"{self._name} was called outside an episode")
            return
        rewards = _per_target(result, len(self._targets)) if self._is_batch else [result]
        if len(rewards) != len(self._targets):
            returned = f"{len(rewards)} rewards in a {type(result).__name__}"
            fault("rewards_unaligned", f"{self._name}: {returned} for {len(self._targets)} episodes")
            return
        for target, reward in zip(self._targets, rewards, strict=True):
            self._record_reward(target, reward, **({"status": "abstained"} if reward is None else {}))

    def _record_reward(self, target: OpenEpisode | OpenStep, reward: Any, **more: Any) -> None:
        """Record one reward; model calls made for several targets are recorded on the first."""
        if target is self._targets[0] and self._log.calls:
            more["calls"] = self._log.calls
        if target.ended:
            feedback.score(target, reward, grader=self._name, **more)
        else:
            target.reward(reward, grader=self._name, **more)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.__exit__()
        if isinstance(error, Exception):
            for target in self._targets:
                guard(_LIBRARY, self._record_reward, target, None, status="error", error=error)


def _targets(arguments: list[Any]) -> tuple[list[OpenEpisode | OpenStep], bool]:
    """Return the episodes or steps to reward, and whether they are a batch with one reward each."""
    for argument in arguments:
        if isinstance(argument, (OpenEpisode, OpenStep)):
            return [argument], False
        if isinstance(argument, (list, tuple)) and _is_batch(argument):
            return [*argument], True
    step, episode = current_step(), current_episode()
    return [step] if step else [episode] if episode else [], False


def _is_batch(argument: Any) -> bool:
    return bool(argument) and all(isinstance(item, (OpenEpisode, OpenStep)) for item in argument)


def _per_target(result: Any, count: int) -> list[Any]:
    """Return the rewards of a batch; an iterator is left to the caller, and gives an empty list."""
    if result is None:
        return [None] * count
    if isinstance(result, (Iterator, Mapping)) or not isinstance(result, Iterable):
        return []
    return list(result)


def _evaluated(option: object, args: Any, kwargs: Any) -> Any:
    """Return an option's value for one call: the option itself, or its result if it is a function."""
    return option(*args, **kwargs) if callable(option) else option


def _arguments(wrapped: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments by name; without a signature that accepts them, unnamed ones under "args"."""
    try:
        bound = inspect.signature(wrapped).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {"args": args, **kwargs}
    return {name: value for name, value in bound.arguments.items() if name != "self"}


def _function(target: Any) -> Any:
    """Return the function inside a static method or class method, or the target itself."""
    return getattr(target, "__func__", target)


def _name(wrapped: Callable[..., Any]) -> str:
    while isinstance(wrapped, partial):
        wrapped = wrapped.func
    return getattr(wrapped, "__name__", None) or type(wrapped).__name__


def attach(target: Any, /, **options: Any) -> RecordedFunction:
    """
    Return the recorded function; a function that is already recorded gets the new options.

    Raises InstrumentError for a generator function, which returns before its rollout runs.
    """
    chosen = FunctionOptions.of(options)
    if isinstance(target, RecordedFunction):
        if options or not target._self_attached:
            target.use(chosen)
        return target
    if inspect.isgeneratorfunction(_function(target)) or inspect.isasyncgenfunction(_function(target)):
        raise InstrumentError(
            f"{_name(target)} is a generator function; write `with mttp.episode():` in it instead"
        )
    return RecordedFunction(target, chosen)

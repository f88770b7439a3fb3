"""The wrappers around one environment's `reset`, `step` and `close`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from opentelemetry.context import Context

from mttp.integrations.faults import hook_failed
from mttp.integrations.gymnasium import workers
from mttp.integrations.gymnasium.env_steps import EnvSteps
from mttp.integrations.nesting import (
    ACTIVE_RECORDERS_KEY,
    EVERYTHING,
    ActiveRecorder,
    active_recorders,
    is_suppressed,
)
from mttp.integrations.options import Options
from mttp.model.clock import Clock
from mttp.model.interrupts import raise_interrupt, suppress_errors
from mttp.recording.handle import attach, current, detach

__all__ = ["CopiedRecorder", "EnvRecorder", "RecordedEnv"]

_T = TypeVar("_T")


class RecordedEnv(Protocol):
    """What an `EnvRecorder` records: an environment, or the environments of a vector environment."""

    key: Any
    """The base environment; its other recorders do not record while this one does."""

    @property
    def buffered_steps(self) -> EnvSteps | None:
        """Records the steps of the open episode without handles; None where they have handles."""

    def use(self, options: Options) -> None:
        """Use new options from now on."""

    def before_reset(self, seed: Any, options: Any, *, at: int) -> None:
        """Called before a reset."""

    def after_reset(self, result: Any, *, at: int) -> None:
        """Called with the result of a reset."""

    def before_step(self, action: Any, *, at: int) -> None:
        """Called before a step."""

    def after_step(self, result: Any, *, at: int) -> None:
        """Called with the result of a step."""

    def on_error(self, error: BaseException) -> None:
        """Called with an exception of a reset or step."""

    def abort(self, reason: str, *, at: int) -> None:
        """Abort all open episodes."""


class EnvRecorder:
    """
    Passes an environment's calls and results to its `RecordedEnv`.

    The caller gets exactly what the environment returns or raises.
    An error in recording is counted as a fault, and nothing is recorded until the next reset.
    `owner` is the object whose methods are patched, and `library` the name under which faults are counted.
    """

    def __init__(self, env: RecordedEnv, owner: Any, library: str = "gymnasium") -> None:
        self._env = env
        self._library = library
        self._is_muted = workers.mute_check(owner)
        self._clock = Clock()
        self._active = True
        self._is_silenced = False
        self._buffered_steps: EnvSteps | None = None

    @property
    def key(self) -> Any:
        """The base environment, or EVERYTHING for a vector environment."""
        return self._env.key

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._env.use(options)

    def silence(self, *, silent: bool) -> None:
        """Stop recording in favour of another recorder, or record again from the next reset on."""
        self._abort("recorded_elsewhere")
        self._is_silenced, self._buffered_steps = silent, None

    def stop(self) -> None:
        """Stop recording."""
        self._abort("detached")
        self._active, self._buffered_steps = False, None

    # Wrappers of the environment's methods.

    def reset(self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _T:
        """Wrap `reset`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        self._before_reset(args, kwargs)
        return self._call_and_record(self._env.after_reset, wrapped, args, kwargs)

    def reset_async(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Wrap `reset_async`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        self._before_reset(args, kwargs)
        return self._call(wrapped, args, kwargs)

    def reset_wait(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Wrap `reset_wait`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        return self._call_and_record(self._env.after_reset, wrapped, args, kwargs)

    def step(self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _T:
        """Wrap `step`."""
        steps = self._buffered_steps
        if steps is not None and steps.is_current() and len(args) == 1 and not kwargs:
            return steps.step(wrapped, args[0])
        if self._is_silent():
            return wrapped(*args, **kwargs)
        self._before_step(args, kwargs)
        steps = self._env.buffered_steps
        if steps is None:
            return self._call_and_record(self._env.after_step, wrapped, args, kwargs)
        steps.set_context({ACTIVE_RECORDERS_KEY: (*active_recorders(), self)}, self._clock, self._failed)
        # In a worker process each step checks whether the environment was muted.
        self._buffered_steps = steps if self._is_muted is bool else None
        return steps.step(lambda _: wrapped(*args, **kwargs), _action(args, kwargs))

    def step_async(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Wrap `step_async`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        self._before_step(args, kwargs)
        return self._call(wrapped, args, kwargs)

    def step_wait(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Wrap `step_wait`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        return self._call_and_record(self._env.after_step, wrapped, args, kwargs)

    def close(self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _T:
        """Wrap `close`."""
        if not self._is_silent():
            self._abort("closed")
        return wrapped(*args, **kwargs)

    def _before_reset(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seed = args[0] if args else kwargs.get("seed")
        options = args[1] if len(args) > 1 else kwargs.get("options")
        self._clock = Clock()
        self._guard(self._env.before_reset, seed, options, at=self._clock.now())

    def _before_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._guard(self._env.before_step, _action(args, kwargs), at=self._clock.now())

    def _is_silent(self) -> bool:
        """Return whether this recorder does not record the call, and abort an episode that it left open."""
        others = active_recorders()
        if self in others:  # the environment calls its own method
            return True
        if is_suppressed():
            self._abort("suppressed")
            return True
        if self._is_silenced:
            return True
        if self._active and not self._is_muted() and not (others and self._is_nested_in(others)):
            return False
        self._abort("detached")
        return True

    def _is_nested_in(self, others: tuple[ActiveRecorder, ...]) -> bool:
        return any(other.key is EVERYTHING or other.key is self.key for other in others)

    def _call_and_record(
        self,
        hook: Callable[..., None],
        wrapped: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _T:
        result = self._call(wrapped, args, kwargs)
        self._guard(hook, result, at=self._clock.now())
        return result

    def _call(self, wrapped: Callable[..., _T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _T:
        token = attach(Context({**current(), ACTIVE_RECORDERS_KEY: (*active_recorders(), self)}))
        try:
            try:
                return wrapped(*args, **kwargs)
            finally:
                detach(token)
        except BaseException as error:
            self._guard(self._env.on_error, error)
            raise

    def _abort(self, reason: str) -> None:
        self._guard(self._env.abort, reason, at=self._clock.now())

    def _guard(self, hook: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        try:
            hook(*args, **kwargs)
        except Exception as error:
            raise_interrupt(error)
            self._failed(hook.__name__, error)

    def _failed(self, hook: str, error: Exception) -> None:
        hook_failed(self._library, hook, error)
        with suppress_errors():
            self._env.abort("recording_failed", at=self._clock.now())


class CopiedRecorder:
    """A wrapper whose copies have a recorder of their own."""

    _recorder: EnvRecorder

    def _new_recorder(self) -> EnvRecorder:
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_recorder"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._recorder = self._new_recorder()


def _action(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else next(iter(kwargs.values()), None)

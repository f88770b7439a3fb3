"""The seams of one environment: what runs around its reset, step and close."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from opentelemetry.context import Context

from mttp.integrations.faults import failed
from mttp.integrations.gymnasium import workers
from mttp.integrations.gymnasium.env_steps import EnvSteps
from mttp.integrations.nesting import EVERYTHING, WITHIN_KEY, ActiveRecorder, is_suppressed, within
from mttp.integrations.options import Options
from mttp.model.clock import Clock
from mttp.recording.handle import attach, current, detach

__all__ = ["EnvRecorder", "RecordedEnv"]

_T = TypeVar("_T")


class RecordedEnv(Protocol):
    """What one recorder watches: an environment, or the environments of a vector environment."""

    key: Any
    """The base environment; its other recorders are muted while this one's environment is called."""

    @property
    def lane(self) -> EnvSteps | None:
        """What takes the steps of an episode that is packed, once a step was announced."""

    def use(self, options: Options) -> None:
        """Take other options from here on."""

    def resets(self, seed: Any, options: Any, *, at: int) -> None:
        """A reset is about to be made."""

    def was_reset(self, result: Any, *, at: int) -> None:
        """It was made, and gave this."""

    def acts(self, action: Any, *, at: int) -> None:
        """A step is about to be taken."""

    def reacts(self, result: Any, *, at: int) -> None:
        """It was taken, and gave this."""

    def fails(self, error: BaseException) -> None:
        """It raised."""

    def leaves(self, reason: str, *, at: int) -> None:
        """Whatever goes on is left unfinished."""


class EnvRecorder:
    """
    Tells a scene what is done to its environment.

    The caller gets what the environment returns or raises.
    Whatever goes wrong here is counted as a fault, and nothing is recorded until the next reset.
    `owner` is the object whose methods are surrounded.
    """

    def __init__(self, scene: RecordedEnv, owner: Any) -> None:
        self._scene = scene
        self._is_muted = workers.switch(owner)
        self._clock = Clock()
        self._active = True
        self._is_silenced = False
        self._lane: EnvSteps | None = None

    @property
    def key(self) -> Any:
        """The base environment, or EVERYTHING where it is a vector's."""
        return self._scene.key

    def use(self, options: Options) -> None:
        """Take other options from here on."""
        self._scene.use(options)

    def silence(self, *, silent: bool) -> None:
        """Stop recording, since another recorder does, or record again from the next reset on."""
        self._leave("recorded_elsewhere")
        self._is_silenced, self._lane = silent, None

    def stop(self) -> None:
        """Record nothing from here on."""
        self._leave("detached")
        self._active, self._lane = False, None

    # What runs around the environment's methods.

    def reset(self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _T:
        """Around `reset`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        self._before_reset(args, kwargs)
        return self._tell(self._scene.was_reset, wrapped, args, kwargs)

    def reset_async(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Around the first half of `reset`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        self._before_reset(args, kwargs)
        return self._call(wrapped, args, kwargs)

    def reset_wait(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Around the second half of `reset`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        return self._tell(self._scene.was_reset, wrapped, args, kwargs)

    def step(self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _T:
        """Around `step`."""
        lane = self._lane
        if lane is not None and lane.goes_on() and len(args) == 1 and not kwargs:
            return lane.step(wrapped, args[0])
        if self._is_silent():
            return wrapped(*args, **kwargs)
        self._before_step(args, kwargs)
        lane = self._scene.lane
        if lane is None:
            return self._tell(self._scene.reacts, wrapped, args, kwargs)
        lane.enter({WITHIN_KEY: (*within(), self)}, self._clock, self._failed)
        self._lane = lane if self._is_muted is bool else None  # else each step has to be asked about
        return lane.step(lambda _: wrapped(*args, **kwargs), _action(args, kwargs))

    def step_async(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Around the first half of `step`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        self._before_step(args, kwargs)
        return self._call(wrapped, args, kwargs)

    def step_wait(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Around the second half of `step`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        return self._tell(self._scene.reacts, wrapped, args, kwargs)

    def close(self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _T:
        """Around `close`."""
        if not self._is_silent():
            self._leave("closed")
        return wrapped(*args, **kwargs)

    # How.

    def _before_reset(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seed = args[0] if args else kwargs.get("seed")
        options = args[1] if len(args) > 1 else kwargs.get("options")
        self._clock = Clock()
        self._guard(self._scene.resets, seed, options, at=self._clock.now())

    def _before_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._guard(self._scene.acts, _action(args, kwargs), at=self._clock.now())

    def _is_silent(self) -> bool:
        """Whether another recorder records this call, or none does."""
        others = within()
        if self in others:  # the environment calls itself
            return True
        if is_suppressed():
            self._leave("suppressed")
            return True
        if self._is_silenced:
            return True
        if self._active and not self._is_muted() and not (others and self._is_covered(others)):
            return False
        self._leave("detached")
        return True

    def _is_covered(self, others: tuple[ActiveRecorder, ...]) -> bool:
        return any(other.key is EVERYTHING or other.key is self.key for other in others)

    def _tell(
        self,
        tell: Callable[..., None],
        wrapped: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _T:
        result = self._call(wrapped, args, kwargs)
        self._guard(tell, result, at=self._clock.now())
        return result

    def _call(self, wrapped: Callable[..., _T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _T:
        token = attach(Context({**current(), WITHIN_KEY: (*within(), self)}))
        try:
            try:
                return wrapped(*args, **kwargs)
            finally:
                detach(token)
        except BaseException as error:
            self._guard(self._scene.fails, error)
            raise

    def _leave(self, reason: str) -> None:
        self._guard(self._scene.leaves, reason, at=self._clock.now())

    def _guard(self, tell: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        try:
            tell(*args, **kwargs)
        except Exception as error:
            self._failed(tell.__name__, error)

    def _failed(self, what: str, error: Exception) -> None:
        failed("gymnasium", what, error)
        with contextlib.suppress(Exception):
            self._scene.leaves("recording_failed", at=self._clock.now())


def _action(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else next(iter(kwargs.values()), None)

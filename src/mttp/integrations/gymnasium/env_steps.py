"""Steps taken with the least there is to do for each: they gather, and are packed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Protocol, TypeVar

import numpy as np
from opentelemetry import context as otel_context
from opentelemetry.context import Context

from mttp.codec import blocks, transitions
from mttp.codec.content import NUMBER_BYTES
from mttp.codec.plain import Faults, as_array
from mttp.codec.structures import Flattened
from mttp.codec.transitions import Row
from mttp.integrations.gymnasium import infos
from mttp.integrations.options import Options
from mttp.model.clock import Clock, monotonic
from mttp.otlp.step_columns import MAX_BYTES
from mttp.recording.current import inert_step
from mttp.recording.handle import SPAN_KEY, STEP_KEY, TRAJECTORY_KEY
from mttp.recording.lazy_step import LazyStep
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.recording.session import Session

__all__ = ["EnvSteps", "EnvStepsOwner"]

_T = TypeVar("_T")
Failed = Callable[[str, Exception], None]
"""Called with what could not be recorded of a step, and why."""
_Kind = tuple[Any, tuple[int, ...]]
"""An array's dtype and shape."""
_NONE = (None, None)  # as a dtype that is float64, but no array has such a shape
_ndarray = np.ndarray
_AT_ONCE = frozenset({int, float, bool, type(None), np.bool_, np.int64, np.int32, np.float32, np.float64})
"""Observations and actions that need neither a copy nor a second look."""


class EnvStepsOwner(Protocol):
    """What a lane needs of the track that it is part of."""

    def keep(self, observation: Any, faults: Faults) -> Any:
        """An observation as it is recorded, safe from later changes; None where none is to be."""

    def keep_action(self, action: Any, faults: Faults) -> Any:
        """The same of an action."""

    def enter(self, observation: Any, action: Any, faults: Faults, *, at: int) -> OpenStep:
        """Open a step that began at that time."""

    def pay(
        self, step: OpenStep, reward: Any, terminated: Any, truncated: Any, info: Any, *, at: int
    ) -> None:
        """End a step."""

    def finish(self, observation: Any, terminated: Any, truncated: Any, info: Any, *, at: int) -> None:
        """End the episode."""

    def fail(self, error: BaseException) -> None:
        """End the step that goes on, if there is one, and the episode in error."""


class EnvSteps:
    """
    Takes the steps of one environment's episodes as rows of a buffer.

    A step has a handle only where the program uses one while the environment computes, and where it says
    what columns don't hold; then it is recorded as any other.
    """

    # Without them its dict has too many names for the quick way to each.
    __slots__ = (
        "_action",
        "_at",
        "_base",
        "_buffer",
        "_claims",
        "_context",
        "_dtype",
        "_entering",
        "_failed",
        "_faults",
        "_form",
        "_has_left",
        "_is_alike",
        "_is_odd",
        "_kind",
        "_most",
        "_offset",
        "_options",
        "_owner",
        "_quick_actions",
        "_quick_scalars",
        "_recorder",
        "_rows",
        "_session",
        "_shape",
        "_shown",
        "_step",
        "_unopened",
        "_variable",
    )

    _rows: list[Row]
    _unopened: LazyStep
    _claims: list[None]
    """Holds one object while a step without a handle goes on; each episode has its own."""
    _shown: Any
    _at: int
    _faults: Faults
    _failed: Failed

    def __init__(self, owner: EnvStepsOwner, session: Session, observation: Any, options: Options) -> None:
        """For episodes of that session whose first observation is like this one."""
        self._owner = owner
        self._session = session
        self._recorder = session._recorder
        self._options = options
        self._kind = _kind(observation, options.max_bytes)
        self._form = _form(self._kind, options.max_bytes)
        usual: tuple[Any, Any] = self._kind if options.observations and self._kind else _NONE
        self._dtype, self._shape = usual
        is_number = not self._kind and options.max_bytes >= NUMBER_BYTES
        self._quick_scalars = _AT_ONCE if options.observations and is_number else frozenset()
        self._quick_actions = _AT_ONCE if options.actions else frozenset()
        nbytes = observation.nbytes if self._kind or isinstance(observation, Flattened) else 1
        self._most = max(1, min(blocks.MAX_STEPS, MAX_BYTES // max(nbytes, 1)))
        self._variable = _variable()
        self._entering = threading.RLock()
        self._base: Context | None = None
        self._context = Context()
        self._step: OpenStep | None = None
        self._action: Any = None
        self._has_left = self._is_odd = self._is_alike = False
        self._offset = 0

    def takes(self, session: Session, observation: Any, options: Options) -> bool:
        """Whether it may take the next episode, too: one of that session, with such observations."""
        return (
            self._recorder is session._recorder
            and self._options is options
            and self._kind == _kind(observation, options.max_bytes)
        )

    def begin(self, episode: OpenEpisode, observation: Any, faults: Faults, *, at: int) -> bool:
        """Take the steps of an episode that is shown this observation first; False where it takes none."""
        buffer = episode._open_buffer(self._form, at)
        if buffer is None:
            return False
        self._buffer, self._rows = buffer, buffer.rows
        self._at, self._step, self._has_left = at, None, False
        self._claims = []
        self._unopened = LazyStep(partial(self._open, self._claims))
        self._context = Context({SPAN_KEY: self._unopened, STEP_KEY: self._unopened, TRAJECTORY_KEY: episode})
        self._take_over(observation, faults)
        return True

    # What the environment is surrounded with.

    def goes_on(self) -> bool:  # which is called in half the time that a property takes
        """Whether nothing has changed around the calls: the context, the session, the process."""
        session = self._session
        return (
            self._variable.get() is self._base and session._recorder is self._recorder and not session._closed
        )

    def leave(self) -> None:
        """Take nothing more; a step that goes on is recorded as far as it went."""
        step = self._open(self._claims)
        # It gives the step and not this lane, which has it: both would wait for the garbage collector.
        self._unopened.open = lambda: step
        self._base, self._has_left = None, True

    def enter(self, marks: Mapping[str, Any], since: Clock, failed: Failed) -> None:
        """Go on in the context that is current, in which `marks` say who records."""
        self._failed, self._offset = failed, since.offset
        self._base = self._variable.get()
        # OpenTelemetry only reads it: a copy of its own type would cost as much again.
        places: Any = self._base.copy()
        places.update(marks)
        places.update(self._context)
        self._context = places

    def step(self, wrapped: Callable[[Any], _T], action: Any) -> _T:
        """
        Around the environment's `step`.

        What nearly every step gives is taken in one go: between an environment's calls each of ours is cold.
        """
        try:
            self._action = action if type(action) in self._quick_actions else self._kept(action)
            claims = self._claims
            claims.append(None)
            token = self._variable.set(self._context)
        except Exception as error:
            self._failed("acts", error)
            return wrapped(action)
        try:
            result: Any = wrapped(action)
        except BaseException as error:
            try:
                self._fail(error)
            except Exception as failure:
                self._failed("fails", failure)
            raise
        finally:
            self._variable.reset(token)
        try:
            observation, reward, terminated, truncated, info = result
            if terminated is not False or truncated is not False:
                terminated, truncated = bool(terminated), bool(truncated)
            try:
                claims.pop()
                is_odd = self._is_odd
            except IndexError:  # the handle was used
                is_odd = True
            rows = self._rows
            if (
                not (terminated or truncated or is_odd)
                and type(info) is dict
                and not info
                and type(observation) is _ndarray
                and observation.dtype is self._dtype
                and observation.shape == self._shape
                and type(reward) in _AT_ONCE
            ):
                self._at = at = self._offset + monotonic()
                rows.append((self._shown, self._action, reward, False, False, None, at))
                self._shown = observation.tobytes()
                if (count := len(rows)) == 1:
                    self._buffer.schedule()
                elif count >= self._most:
                    self._buffer.write()
            else:
                self._take(observation, reward, terminated, truncated, info, is_odd=is_odd)
        except Exception as error:
            self._failed("reacts", error)
        return result  # type: ignore[no-any-return]  # what was wrapped gives it

    def _take(
        self, observation: Any, reward: Any, terminated: bool, truncated: bool, info: Any, *, is_odd: bool
    ) -> None:
        """The step was taken, and this came of it, which may be anything."""
        if self._has_left:
            return
        at = self._offset + monotonic()
        if is_odd or infos.is_told(info):
            self._owner.pay(self._entered(), reward, terminated, truncated, info, at=at)
            self._step, self._buffer.start_time = None, at
            self._is_odd, self._is_alike, self._faults = False, True, []
        else:
            paid = reward if type(reward) in _AT_ONCE else _settled(reward)
            self._rows.append((self._shown, self._action, paid, terminated, truncated, None, at))
        if terminated or truncated:
            self._base = None
            self._owner.finish(observation, terminated, truncated, info, at=at)
            return
        count = len(self._rows)
        if count == 1:
            self._buffer.schedule()
        elif count >= self._most:
            self._buffer.write()
        self._at = at
        self._show(observation)

    # Observations and actions.

    def _is_usual(self, observation: Any) -> bool:
        """Whether it needs but a copy of its elements."""
        is_array = type(observation) is _ndarray
        return is_array and observation.dtype == self._dtype and observation.shape == self._shape

    def _show(self, observation: Any) -> None:
        """Begin the next step with an observation."""
        if self._is_usual(observation):
            self._shown, self._is_alike = observation.tobytes(), True
        elif type(observation) in self._quick_scalars:
            self._shown, self._is_alike = observation, True
        else:
            faults: Faults = []
            self._take_over(self._owner.keep(observation, faults), faults)

    def _take_over(self, kept: Any, faults: Faults) -> None:
        """Begin the next step with an observation that is no longer changed."""
        self._faults = faults
        kind = _kind(kept, self._options.max_bytes)
        self._is_alike = kind == self._kind
        self._is_odd = bool(faults) or not self._is_alike
        self._shown = kept.tobytes() if kind and self._is_alike else kept

    def _kept(self, action: Any) -> Any:
        kept = self._owner.keep_action(action, self._faults)
        self._is_odd = self._is_odd or bool(self._faults)
        return kept

    @property
    def at(self) -> int:
        """When it was there."""
        return self._at

    @property
    def faults(self) -> Faults:
        """What is wrong with the observation that the next step begins with."""
        return self._faults

    @property
    def shown(self) -> Any:
        """The observation that the next step begins with."""
        if self._kind is None or not self._is_alike:
            return self._shown
        dtype, shape = self._kind
        return np.frombuffer(self._shown, dtype).reshape(shape)

    # Steps that are recorded like others.

    def _open(self, claims: list[None]) -> OpenStep:
        """The handle of the step that goes on in the episode with these claims, or else an inert one."""
        with self._entering:
            try:
                claims.pop()
            except IndexError:
                return (self._step if claims is self._claims else None) or inert_step()
            return self._entered()

    def _entered(self) -> OpenStep:
        with self._entering:  # another thread may be using the handle
            if self._step is None:
                self._step = self._owner.enter(self.shown, self._action, self._faults, at=self._at)
            return self._step

    def _fail(self, error: BaseException) -> None:
        self._claims.clear()
        self._entered()
        self._owner.fail(error)


def _form(kind: _Kind | None, max_bytes: int) -> transitions.RowSchema:
    dtype, shape = kind or (None, ())
    return transitions.RowSchema(dtype, shape, max_bytes)


def _settled(reward: Any) -> Any:
    """A reward that stays what it is, whatever the environment does with its array."""
    found = as_array(reward)
    return reward if found is None else found.copy()


def _kind(value: Any, max_bytes: int) -> _Kind | None:
    """An array's dtype and shape, where arrays like it are recorded as they are."""
    if type(value) is not np.ndarray or not value.ndim or value.nbytes > max_bytes:
        return None
    is_plain = value.dtype.kind in "biuf" and value.dtype.itemsize <= 8 and value.dtype.isnative
    return (value.dtype, value.shape) if is_plain else None


@cache
def _variable() -> ContextVar[Context]:
    """The variable that holds the OpenTelemetry context: by way of the API it costs several times as much."""
    token = otel_context.attach(otel_context.get_current())
    token.var.reset(token)
    return token.var

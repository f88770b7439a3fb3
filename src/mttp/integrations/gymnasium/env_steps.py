"""Recording the steps of environments as rows of the buffers of their episodes, at a low cost per step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from opentelemetry.context import Context
from opentelemetry.trace import Span

from mttp.codec import blocks, transitions
from mttp.codec.content import NUMBER_BYTES
from mttp.codec.plain import Faults, as_array, scalar_text
from mttp.codec.structures import Flattened
from mttp.codec.transitions import PolicyOutput, Row
from mttp.integrations.gymnasium import infos
from mttp.integrations.gymnasium.env_episodes import EnvEpisodes, note_faults
from mttp.integrations.options import Options
from mttp.model.clock import Clock, monotonic
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.step_columns import MAX_BYTES
from mttp.recording.current import inert_step
from mttp.recording.handle import SPAN_KEY, STEP_KEY, TRAJECTORY_KEY, attach, current, restore
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.recording.session import Session
from mttp.recording.trajectory import StepBuffer

__all__ = ["EnvSteps", "MemberSteps", "RowSteps", "raw_kind"]

_T = TypeVar("_T")
Failed = Callable[[str, Exception], None]
"""Called with the name of a hook and the exception that it raised."""
_Kind = tuple[Any, tuple[int, ...]]
"""An array's dtype and shape."""
_NO_KIND = (None, None)  # numpy compares the dtype None like float64, but no array has the shape None
_ndarray = np.ndarray
_IMMUTABLE = frozenset({int, float, bool, type(None), np.bool_, np.int64, np.int32, np.float32, np.float64})
"""Types of observations and actions that are recorded without a copy."""


def _forwarded(name: str) -> Any:
    """Return a method that calls this method of the step's span."""

    def method(self: UnopenedStep, *args: Any, **kwargs: Any) -> Any:
        return getattr(self().span, name)(*args, **kwargs)

    return method


class UnopenedStep(Span):
    """
    The step and its span in the context, until either is used.

    The step's handle is opened on first use, because most steps end unused.
    """

    def __init__(self, open: Callable[[], OpenStep]) -> None:
        self.open = open
        """Returns the step's handle; an inert one after the step has ended."""

    def __call__(self) -> OpenStep:
        """Return the step's handle."""
        return self.open()

    def is_recording(self) -> bool:
        """Return True."""
        return True

    get_span_context = _forwarded("get_span_context")
    set_attribute = _forwarded("set_attribute")
    set_attributes = _forwarded("set_attributes")
    add_event = _forwarded("add_event")
    add_link = _forwarded("add_link")
    update_name = _forwarded("update_name")
    set_status = _forwarded("set_status")
    record_exception = _forwarded("record_exception")
    end = _forwarded("end")


class RowSteps:
    """Steps as rows of an episode's buffer, whose observations have the dtype and shape of the first one."""

    __slots__ = ("_action", "_buffer", "_is_of_kind", "_kind", "_max_rows", "_observation", "_schema")

    _buffer: StepBuffer
    _kind: _Kind | None
    _is_of_kind: bool
    """Whether the next step's observation has that dtype and shape."""
    _observation: Any
    _action: Any

    def _expect(self, observation: Any, options: Options) -> None:
        """Prepare for observations like this one."""
        self._kind = raw_kind(observation, options.max_bytes)
        dtype, shape = self._kind or (None, ())
        self._schema = transitions.RowSchema(dtype, shape, options.max_bytes)
        nbytes = observation.nbytes if self._kind or isinstance(observation, Flattened) else 1
        self._max_rows = max(1, min(blocks.MAX_STEPS, MAX_BYTES // max(nbytes, 1)))

    def _add(self, reward: Any, terminated: bool, truncated: bool, output: Any, scores: Any, at: int) -> None:
        """Add the row of the step that ends at `at`."""
        rows, reward_copy = self._buffer.rows, _kept_reward(reward)
        rows.append(
            (self._observation, self._action, reward_copy, terminated, truncated, output, scores or None, at)
        )
        if len(rows) == 1:
            self._buffer.schedule()
        elif len(rows) >= self._max_rows:
            self._buffer.write()

    @property
    def observation(self) -> Any:
        """The next step's observation."""
        if self._kind is None or not self._is_of_kind:
            return self._observation
        dtype, shape = self._kind
        return np.frombuffer(self._observation, dtype).reshape(shape)


class EnvSteps(RowSteps):
    """
    Records steps as rows of the episode's buffer.

    A step gets a handle and a span if the program uses the current step while the environment computes, or if
    the step has values that a row does not hold.
    """

    # Attribute access is slower through a `__dict__` with this many names.
    __slots__ = (
        "_base_context",
        "_claims",
        "_context",
        "_dtype",
        "_episode",
        "_failed",
        "_faults",
        "_immutable_actions",
        "_immutable_observations",
        "_is_stopped",
        "_lock",
        "_needs_handle",
        "_observed_at",
        "_offset",
        "_options",
        "_owner",
        "_recorder",
        "_rows",
        "_session",
        "_shape",
        "_step",
        "_unopened",
    )

    _rows: list[Row]
    _unopened: UnopenedStep
    _claims: list[None]
    """Has one element while a step without a handle is open; popping it decides whether it gets one."""
    _observed_at: int
    _faults: Faults
    _failed: Failed

    def __init__(self, owner: EnvEpisodes, session: Session, observation: Any, options: Options) -> None:
        """Prepare for episodes of a session whose first observation has this dtype and shape."""
        self._owner = owner
        self._session = session
        self._recorder = session._recorder
        self._options = options
        self._expect(observation, options)
        expected_kind: tuple[Any, Any] = self._kind if options.observations and self._kind else _NO_KIND
        self._dtype, self._shape = expected_kind
        is_number = not self._kind and options.max_bytes >= NUMBER_BYTES
        self._immutable_observations = _IMMUTABLE if options.observations and is_number else frozenset()
        self._immutable_actions = _IMMUTABLE if options.actions else frozenset()
        self._lock = threading.RLock()
        self._base_context: Context | None = None
        self._context: Any = None
        self._step: OpenStep | None = None
        self._action: Any = None
        self._is_stopped = self._needs_handle = self._is_of_kind = False
        self._offset = 0

    def can_take(self, session: Session, observation: Any, options: Options) -> bool:
        """Return whether this object can record another episode: same session, options, dtype and shape."""
        return (
            self._recorder is session._recorder
            and self._options is options
            and self._kind == raw_kind(observation, options.max_bytes)
        )

    def begin(self, episode: OpenEpisode, observation: Any, faults: Faults, *, at: int) -> bool:
        """Record an episode's steps from this observation on; returns False if the episode has no buffer."""
        buffer = episode._open_buffer(self._schema, at)
        if buffer is None:
            return False
        self._episode, self._buffer, self._rows = episode, buffer, buffer.rows
        self._observed_at, self._step, self._is_stopped = at, None, False
        self._claims = []
        self._unopened = UnopenedStep(partial(self._open, self._claims))
        self._observation = observation if self._kind is None else observation.tobytes()
        self._faults, self._is_of_kind, self._needs_handle = faults, True, bool(faults)
        return True

    # Around the environment's calls.

    def is_current(self) -> bool:  # a method: a property takes twice as long
        """Return whether the context, the session and the process are those of `set_context`."""
        session = self._session
        return current() is self._base_context and session._recorder is self._recorder and not session._closed

    def stop(self) -> None:
        """Stop recording; a step that is open gets a handle."""
        step = self._open(self._claims)
        # Returning the step, instead of a method of this object, avoids a reference cycle.
        self._unopened.open = lambda: step
        self._base_context, self._is_stopped = None, True

    def set_context(self, marks: Mapping[str, Any], since: Clock, failed: Failed) -> None:
        """Use the current context for further steps, with `marks` added."""
        self._failed, self._offset = failed, since.offset
        self._base_context = current()
        # A plain dict: OpenTelemetry only reads it, and a `Context` copy would take twice as long.
        self._context = {
            **self._base_context,
            **marks,
            SPAN_KEY: self._unopened,
            STEP_KEY: self._unopened,
            TRAJECTORY_KEY: self._episode,
        }

    def step(self, wrapped: Callable[[Any], _T], action: Any) -> _T:
        """
        Call the environment's `step` and record it.

        The usual result is recorded inline: between an environment's calls, each function call is slow.
        """
        try:
            self._action = action if type(action) in self._immutable_actions else self._copied_action(action)
            claims = self._claims
            claims.append(None)
            token = attach(self._context)
        except Exception as error:
            raise_interrupt(error)
            self._failed("before_step", error)
            return wrapped(action)
        try:
            result: Any = wrapped(action)
        except BaseException as error:
            try:
                self._fail(error)
            except Exception as failure:
                raise_interrupt(failure)
                self._failed("on_error", failure)
            raise
        finally:
            restore(token)
        try:
            observation, reward, terminated, truncated, info = result
            try:
                claims.pop()
                needs_handle = self._needs_handle
            except IndexError:  # the program used the step's handle
                needs_handle = True
            if terminated is not False or truncated is not False:
                faults: Faults = []
                terminated, truncated = infos.flags(terminated, truncated, faults)
                if faults:
                    note_faults(self._opened_step(), faults)
                    needs_handle = True
            rows = self._rows
            if (
                not (terminated or truncated or needs_handle)
                and type(info) is dict
                and not info
                and type(observation) is _ndarray
                and observation.dtype is self._dtype
                and observation.shape == self._shape
                and type(reward) in _IMMUTABLE
            ):
                self._observed_at = at = self._offset + monotonic()
                rows.append((self._observation, self._action, reward, False, False, None, None, at))
                self._observation = observation.tobytes()
                if (count := len(rows)) == 1:
                    self._buffer.schedule()
                elif count >= self._max_rows:
                    self._buffer.write()
            else:
                self._take(observation, reward, terminated, truncated, info, needs_handle=needs_handle)
        except Exception as error:
            raise_interrupt(error)
            self._failed("after_step", error)
        return result  # type: ignore[no-any-return]  # the environment's own result

    def _take(
        self,
        observation: Any,
        reward: Any,
        terminated: bool,
        truncated: bool,
        info: Any,
        *,
        needs_handle: bool,
    ) -> None:
        """Record the result of a step, of any types."""
        if self._is_stopped:
            return
        at = self._offset + monotonic()
        scores = None if needs_handle else infos.scores(reward, info, self._episode)
        if scores is None:
            self._owner.end_step(self._opened_step(), reward, terminated, truncated, info, at=at)
            self._step, self._buffer.start_time = None, at
            self._needs_handle, self._is_of_kind, self._faults = False, True, []
        else:
            self._add(reward, terminated, truncated, None, scores, at)
        if terminated or truncated:
            self._base_context = None
            self._owner.end_episode(observation, terminated, truncated, info, at=at)
            return
        self._observed_at = at
        self._observe(observation)

    # Observations and actions.

    def _is_expected(self, observation: Any) -> bool:
        """Return whether an observation has the dtype and shape of the rows."""
        is_array = type(observation) is _ndarray
        return is_array and observation.dtype == self._dtype and observation.shape == self._shape

    def _observe(self, observation: Any) -> None:
        """Set the next step's observation."""
        if self._is_expected(observation):
            self._observation, self._is_of_kind = observation.tobytes(), True
        elif type(observation) in self._immutable_observations:
            self._observation, self._is_of_kind = observation, True
        else:
            faults: Faults = []
            self._set_observation(self._owner.keep_observation(observation, faults), faults)

    def _set_observation(self, observation: Any, faults: Faults) -> None:
        """Set the next step's observation to a copy that is not changed any more."""
        self._faults = faults
        kind = raw_kind(observation, self._options.max_bytes)
        self._is_of_kind = kind == self._kind
        self._needs_handle = bool(faults) or not self._is_of_kind
        self._observation = observation.tobytes() if kind and self._is_of_kind else observation

    def _copied_action(self, action: Any) -> Any:
        copy = self._owner.keep_action(action, self._faults)
        self._needs_handle = self._needs_handle or bool(self._faults)
        return copy

    @property
    def observed_at(self) -> int:
        """When the next step's observation was available, in nanoseconds since the Unix epoch."""
        return self._observed_at

    @property
    def faults(self) -> Faults:
        """The faults of the next step's observation."""
        return self._faults

    # Steps with a handle.

    def _open(self, claims: list[None]) -> OpenStep:
        """Return the handle of the open step of the episode with these claims, or an inert one."""
        with self._lock:
            try:
                claims.pop()
            except IndexError:
                return (self._step if claims is self._claims else None) or inert_step()
            return self._opened_step()

    def _opened_step(self) -> OpenStep:
        with self._lock:  # another thread may be using the handle
            if self._step is None:
                self._step = self._owner.open_step(
                    self.observation, self._action, self._faults, at=self._observed_at
                )
            return self._step

    def _fail(self, error: BaseException) -> None:
        self._claims.clear()
        self._opened_step()
        self._owner.fail(error)


def _kept_reward(reward: Any) -> Any:
    """Return a copy of a reward array, which the environment may change; other rewards, or their text."""
    if type(reward) in _IMMUTABLE:
        return reward
    try:
        array = as_array(reward)
        return reward if array is None else array.copy()
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        return scalar_text(reward)


class MemberSteps(RowSteps):
    """
    Records steps as rows of the episode's buffer.

    No code runs in a step of its own, so that none asks for its handle. A step gets a handle and a span if it
    has faults, a reward spec's result, or an observation of another dtype or shape than the first.
    """

    def __init__(self, episodes: EnvEpisodes, _: Session, observation: Any, options: Options) -> None:
        """Prepare for one episode whose first observation has this dtype and shape."""
        self._episodes = episodes
        self._max_bytes = options.max_bytes
        self._expect(observation, options)
        self.count = 0
        """The number of steps of the episode so far."""
        self.faults: Faults = []
        """The faults of the next step's observation and action."""
        self._is_acting = False

    def can_take(self, *_: Any) -> bool:
        """Return False: each episode has an object of its own."""
        return False

    def begin(self, episode: OpenEpisode, observation: Any, faults: Faults, *, at: int) -> bool:
        """Record an episode's steps from this observation on; returns False if the episode has no buffer."""
        self.count = episode.length
        buffer = episode._open_buffer(self._schema, at)
        if buffer is None:
            return False
        self._episode, self._buffer = episode, buffer
        self._observe(observation, faults, at)
        return True

    def stop(self) -> None:
        """Stop recording; the episode writes the buffered rows."""

    def act(self, action: Any) -> None:
        """Set the action of the next step."""
        self._action = self._episodes.keep_action(action, self.faults)
        self._is_acting = True

    def open_acting(self) -> None:
        """Open the step, with a handle, whose action has no result."""
        if self._is_acting:
            self._is_acting = False
            self._episodes.open_step(self.observation, self._action, self.faults, at=self.observed_at)

    def take(
        self,
        reward: Any,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
        estimates: PolicyOutput = None,
        *,
        at: int,
    ) -> None:
        """Record the result of the step with the last action."""
        self._is_acting = False
        self.count += 1
        needs_handle = bool(self.faults) or not self._is_of_kind
        scores = None if needs_handle else infos.scores(reward, info, self._episode)
        if scores is None:
            step = self._episodes.open_step(self.observation, self._action, self.faults, at=self.observed_at)
            if estimates is not None:
                step.record(value_estimate=estimates[0], logprob=estimates[1])
            self._episodes.end_step(step, reward, terminated, truncated, info, at=at)
            self._buffer.start_time = at
            return
        self._add(reward, terminated, truncated, estimates, scores, at)

    def observe(self, observation: Any, *, at: int) -> None:
        """Set the next step's observation."""
        if type(observation) is np.ndarray and (observation.dtype, observation.shape) == self._kind:
            self._observation, self._is_of_kind, self.faults, self.observed_at = (
                observation.tobytes(),
                True,
                [],
                at,
            )
        else:
            faults: Faults = []
            self._observe(self._episodes.keep_observation(observation, faults), faults, at)

    def _observe(self, observation: Any, faults: Faults, at: int) -> None:
        """Set the next step's observation to a copy that is not changed any more."""
        self._is_of_kind = raw_kind(observation, self._max_bytes) == self._kind
        self._observation = observation.tobytes() if self._kind and self._is_of_kind else observation
        self.faults, self.observed_at = faults, at


def raw_kind(value: Any, max_bytes: int) -> _Kind | None:
    """Return an array's dtype and shape; None for other values, and for arrays that are not recorded raw."""
    if type(value) is not np.ndarray or not value.ndim or value.nbytes > max_bytes:
        return None
    is_plain = value.dtype.kind in "biuf" and value.dtype.itemsize <= 8 and value.dtype.isnative
    return (value.dtype, value.shape) if is_plain else None

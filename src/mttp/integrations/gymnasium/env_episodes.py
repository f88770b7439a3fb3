"""The recorded episodes of one environment; each starts with the first step after a reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from mttp.codec.pictures import png
from mttp.codec.plain import Faults, Written, scalar_text, to_json
from mttp.integrations.faults import fault
from mttp.integrations.gymnasium import infos, spaces
from mttp.integrations.gymnasium.workers import split_of
from mttp.integrations.options import Options
from mttp.model.interrupts import raise_interrupt
from mttp.model.reprs import type_name
from mttp.otlp.spans import RecordingSpan
from mttp.recording import configuration
from mttp.recording.current import inert_episode
from mttp.recording.open_episode import OpenEpisode, Template
from mttp.recording.open_step import OpenStep
from mttp.recording.session import Session

__all__ = ["EnvEpisodes", "EpisodeOpener", "MISSING", "OpenEnvEpisode", "note_faults"]

MakeBufferedSteps: TypeAlias = Callable[..., Any]
"""Called with an `EnvEpisodes`, a session, the first observation and the options."""
MISSING: Any = object()
"""The value of an observation that the environment does not return."""
_MAX_FRAMES = 100
"""The maximum number of frames in an episode."""


class OpenEnvEpisode(NamedTuple):
    """An open episode and its session."""

    episode: OpenEpisode
    session: Session

    def is_recording(self) -> bool:
        """Return False if the session was closed, or if this is a forked child."""
        return self.session._records_for(self.episode._host)


class EpisodeOpener:
    """Opens the episodes of one environment; `identity` returns its facts and is called once."""

    def __init__(self, identity: Callable[[Faults], dict[str, Any]]) -> None:
        self._identity = identity
        self._env_facts: dict[str, Any] | None = None
        self._template: tuple[object, Template] | None = None
        """The attributes that all episodes share, and the run recorder that they are encoded for."""

    def open(self, options: Options, start: Mapping[str, Any]) -> OpenEnvEpisode | None:
        """Open an episode with the facts of its start; returns None without a session to record in."""
        session = configuration.recording_session()
        if session is None:
            return None
        faults: Faults = []
        if self._env_facts is None:
            self._env_facts = _with_encoded_documents(self._identity(faults), faults)
        if self._template is None or self._template[0] is not session._recorder:
            self._template = session._recorder, session._template(self._env_facts, faults)
        facts = {"split": split_of(session), **options.identity(), **start}
        if options.metadata:
            facts["metadata"] = {**(start.get("metadata") or {}), **options.metadata}
        episode = session._episode_from_template(self._template[1], facts)
        return OpenEnvEpisode(episode, session) if episode else None


def _with_encoded_documents(facts: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """Return an environment's facts with the documents among them as JSON text, encoded once."""
    documents = {name: facts[name] for name in ("env_kwargs", "env_spaces") if facts.get(name)}
    return facts | {name: Written(to_json(value, faults)) for name, value in documents.items()}


@dataclass(slots=True)
class _Observation:
    """The latest observation, which the policy acts on next."""

    value: Any
    faults: Faults
    at: int
    """When it was available, in nanoseconds since the Unix epoch."""


class EnvEpisodes:
    """
    Records the episodes of one environment.

    Call `begin` after a reset, `start_step` before and `finish_step` after each step, and `abort` to end an
    episode early.
    `identity` returns the environment's facts and is called once.
    `buffered_steps` creates the recorder of steps without handles; without it, each step has a handle.
    `render` returns the picture of the environment, if the options ask for frames.
    """

    def __init__(
        self,
        options: Options,
        identity: Callable[[Faults], dict[str, Any]],
        *,
        buffered_steps: MakeBufferedSteps | None = None,
        render: Callable[[], object] | None = None,
    ) -> None:
        self.end_facts: Mapping[str, Any] = {}
        """Further facts that are recorded at the episode's end."""
        self._make_buffered_steps = buffered_steps
        self._render = render
        self._opener = EpisodeOpener(identity)
        self._start_facts: dict[str, Any] | None = None
        self._observation: _Observation | None = None
        self._open: OpenEnvEpisode | None = None
        self._step: OpenStep | None = None
        self.buffered_steps: Any = None
        """Records the steps of the open episode without handles; None where they have handles."""
        self._previous_buffered_steps: Any = None
        """The one of an earlier episode, for reuse."""
        self.is_over = False
        """Whether the episode has ended, and the environment was not reset since."""
        self.use(options)

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._options = options
        steps = self.buffered_steps
        if steps is not None:
            self._observation = _Observation(steps.observation, steps.faults, steps.observed_at)
            self._leave_buffered_steps()

    @property
    def episode(self) -> OpenEpisode:
        """The open episode, or an inert one."""
        return inert_episode() if self._open is None else self._open.episode

    @property
    def step(self) -> OpenStep | None:
        """The open step, if it has a handle."""
        return self._step

    def begin(self, observation: Any, *, reset_at: int, observed_at: int, **facts: Any) -> None:
        """
        Prepare an episode after a reset at `reset_at`, whose observation was available at `observed_at`.

        `facts` are arguments for the new episode, which is opened by its first step.
        """
        self.forget()
        self.is_over = False
        if configuration.may_record():
            self._start_facts = {"start_time": reset_at, **facts}
            self._observe(observation, observed_at)

    def observe(self, observation: Any, *, at: int) -> None:
        """Set the observation that the policy acts on next."""
        if self.buffered_steps is not None:
            self.buffered_steps.observe(observation, at=at)
        else:
            self._observe(observation, at)

    def _observe(self, observation: Any, at: int) -> None:
        faults: Faults = []
        self._observation = _Observation(self.keep_observation(observation, faults), faults, at)

    def keep_observation(self, observation: Any, faults: Faults) -> Any:
        """Return a copy of an observation for recording; None if observations are not recorded."""
        options = self._options
        return spaces.keep(observation, faults, max_bytes=options.max_bytes) if options.observations else None

    def keep_action(self, action: Any, faults: Faults) -> Any:
        """Return a copy of an action for recording; None if actions are not recorded."""
        options = self._options
        return spaces.keep(action, faults, max_bytes=options.max_bytes) if options.actions else None

    def start_step(self, action: Any) -> None:
        """Start a step, and with the first step the episode."""
        self._step = None
        if self._start_facts is not None:
            self._open = self._opener.open(self._options, self._start_facts)
            self._start_facts = None
        if self._open is None or self._observation is None:
            return
        if not self._open.is_recording():
            self.forget()
            return
        first, has_frames = self._observation, bool(self._options.frames and self._render)
        if self.buffered_steps is None and self._make_buffered_steps is not None and not has_frames:
            self.buffered_steps = self._next_buffered_steps(self._make_buffered_steps, self._open, first)
        if self.buffered_steps is None:
            recorded_action = action if self._options.actions else None
            step = self.open_step(first.value, recorded_action, first.faults, at=first.at)
            if has_frames:
                self._record_frame(step)

    def _record_frame(self, step: OpenStep) -> None:
        """Record the rendered picture of each so many steps; after the first that is none, no more."""
        number, rest = divmod(step.index, self._options.frames or 1)
        if rest or number >= _MAX_FRAMES or self._render is None:
            return
        try:
            rendered: object = self._render()
            data = png(rendered)
            if data is None:
                raise TypeError(f"render returned {type_name(rendered)} and not an array of pixels")
            step._set_frame(f"data:image/png;base64,{data}")
        except Exception as error:  # whatever an environment raises when it renders
            raise_interrupt(error)
            self._render = None
            fault("frame_invalid", scalar_text(error))

    def _next_buffered_steps(
        self, make: MakeBufferedSteps, opened: OpenEnvEpisode, first: _Observation
    ) -> Any:
        steps = self._previous_buffered_steps
        if steps is None or not steps.can_take(opened.session, first.value, self._options):
            steps = make(self, opened.session, first.value, self._options)
        has_begun = steps.begin(opened.episode, first.value, first.faults, at=first.at)
        return steps if has_begun else None

    @property
    def is_recording(self) -> bool:
        """Whether there is an open episode in an open session of this process."""
        return self._open is not None and self._open.is_recording()

    def open_step(self, observation: Any, action: Any, faults: Faults, *, at: int) -> OpenStep:
        """Open a step with a handle that started at `at`."""
        assert self._open is not None
        step = self._step = self._open.episode.step(start_time=at)
        if observation is not None:
            step.observation(observation, max_bytes=self._options.max_bytes)
        if action is not None:
            step.action(action, max_bytes=self._options.max_bytes)
        note_faults(step, faults)
        return step

    def finish_step(
        self, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any, *, at: int
    ) -> None:
        """End the open step with the environment's result; an observation may be `MISSING`."""
        faults: Faults = []
        terminated, truncated = infos.flags(terminated, truncated, faults)
        self.is_over = terminated or truncated
        if self.buffered_steps is not None:
            self.buffered_steps.faults.extend(faults)
            self.buffered_steps.take(reward, terminated, truncated, info, at=at)
        elif self._step is not None and self._open is not None:
            note_faults(self._step, faults)
            self.end_step(self._step, reward, terminated, truncated, info, at=at)
        else:
            return
        if terminated or truncated:
            self.end_episode(observation, terminated, truncated, info, at=at)
        else:
            self.observe(observation, at=at)

    def end_step(
        self, step: OpenStep, reward: Any, terminated: bool, truncated: bool, info: Any, *, at: int
    ) -> None:
        """End a step that has a handle."""
        self._step = None
        infos.reward(step, reward, info, at=at)
        step.end(terminated=terminated, truncated=truncated, end_time=at)

    def end_episode(self, observation: Any, terminated: bool, truncated: bool, info: Any, *, at: int) -> None:
        """End the episode."""
        opened = self._open
        if opened is None:
            return
        self.is_over = True
        if observation is not MISSING and self._options.observations:
            opened.episode.final_observation(observation, max_bytes=self._options.max_bytes)
        opened.episode.end(
            terminated=terminated,
            truncated=truncated,
            outcome=infos.outcome(info),
            end_time=at,
            **self.end_facts,
        )
        self.forget()

    def fail(self, error: BaseException) -> None:
        """End the open step and its episode with an exception of the environment."""
        step, opened = self._step, self._open
        self.forget()
        if step is not None:
            step.__exit__(type(error), error, error.__traceback__)
        if opened is not None:
            opened.episode.__exit__(type(error), error, error.__traceback__)

    def abort(self, reason: str, at: int) -> None:
        """End the open episode, if there is one, with the status "aborted"."""
        opened = self._open
        if opened is None:
            self._start_facts = self._observation = None
            return
        observation = self._last_observation()
        self.forget()
        if not opened.is_recording():
            return
        if observation is not None:
            opened.episode.final_observation(observation, max_bytes=self._options.max_bytes)
        opened.episode.end(status="aborted", stop_reason=reason, end_time=at, **self.end_facts)

    def _last_observation(self) -> Any:
        if self.buffered_steps is not None:
            return self.buffered_steps.observation
        return None if self._observation is None else self._observation.value

    def close(self, reason: str, at: int) -> None:
        """Abort the open episode, and drop the reference cycle with the buffered steps."""
        self.abort(reason, at)
        self._previous_buffered_steps = None

    def forget(self) -> None:
        """Record nothing until the next reset."""
        self._leave_buffered_steps()
        self._start_facts = self._observation = self._open = self._step = None

    def _leave_buffered_steps(self) -> None:
        steps = self.buffered_steps
        if steps is not None:
            self.buffered_steps, self._previous_buffered_steps = None, steps
            steps.stop()


def note_faults(handle: OpenEpisode | OpenStep, faults: Faults) -> None:
    """Record faults with an episode or a step."""
    if faults and isinstance(handle.span, RecordingSpan):
        handle.span.note(faults)

"""One environment's episodes, one after the other: each starts with the first step after a reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from mttp.codec.plain import Faults, Written, to_json
from mttp.integrations.gymnasium import infos, spaces
from mttp.integrations.options import Options
from mttp.otlp.spans import RecordingSpan
from mttp.recording import configuration
from mttp.recording.arguments import ScoringFacts
from mttp.recording.current import inert_episode
from mttp.recording.open_episode import OpenEpisode, Template
from mttp.recording.open_step import OpenStep
from mttp.recording.session import Session

__all__ = ["MISSING", "EnvEpisodes"]

MakeLane: TypeAlias = Callable[..., Any]
"""Called with a track, its episode, the observation that is shown, its faults and `at` when."""
MISSING: Any = object()
"""Stands for a missing observation."""


@dataclass(slots=True)
class _Shown:
    """The observation that the policy acts on next."""

    value: Any
    faults: Faults
    at: int
    """When it was there."""


class _Open(NamedTuple):
    """The episode that goes on, and where."""

    episode: OpenEpisode
    session: Session
    share: object

    def lives(self) -> bool:
        """Whether it can take anything: its session may have been closed, or this may be a forked child."""
        return self.session._records_for(self.share)


class EnvEpisodes:
    """
    What is recorded of one environment.

    `begin` after a reset, then `act` before and `react` after each step; `abort` leaves one unfinished.
    `identity` says what the environment is, and is asked once.
    `lane` makes what takes the steps of packed episodes, where the caller lets it.
    """

    def __init__(
        self,
        options: Options,
        identity: Callable[[Faults], dict[str, Any]],
        *,
        lane: MakeLane | None = None,
    ) -> None:
        self.closing: Mapping[str, Any] = {}
        """What is stated at the episode's end, besides how it ended."""
        self._make_lane = lane
        self._identity = identity
        self._known: dict[str, Any] | None = None
        self._template: tuple[object, Template] | None = None
        """What all its episodes say, and in which share of a session."""
        self._start: dict[str, Any] | None = None
        self._shown: _Shown | None = None
        self._open: _Open | None = None
        self._step: OpenStep | None = None
        self.lane: Any = None
        """What takes the steps of an episode without handles."""
        self._last_lane: Any = None
        """What took the last such episode's, and may take the next one's."""
        self.over = False
        """Whether the episode has ended, and nothing was reset since."""
        self.use(options)

    def use(self, options: Options) -> None:
        """Take other options from here on."""
        self._options = options
        if self.lane is not None:
            self._shown = _Shown(self.lane.shown, [], self.lane.at)
            self._leave_lane()

    @property
    def episode(self) -> OpenEpisode:
        """The episode that goes on; an inert one where none does."""
        return inert_episode() if self._open is None else self._open.episode

    @property
    def step(self) -> OpenStep | None:
        """The step that goes on."""
        return self._step

    def begin(self, observation: Any, *, began: int, shown: int, **facts: Any) -> None:
        """
        A reset was made at `began` and showed an observation at `shown`.

        `facts` are the new episode's own; it starts when a step is taken.
        """
        self._leave_lane()
        self._open = self._step = None
        self.over = False
        if not configuration.may_record():
            self._start = self._shown = None
            return
        self._start = {"start_time": began, **facts}
        self._show(observation, shown)

    def show(self, observation: Any, *, at: int) -> None:
        """An observation is there, which the policy acts on next."""
        if self.lane is not None:
            self.lane.show(observation, at=at)
        else:
            self._show(observation, at)

    def _show(self, observation: Any, at: int) -> None:
        faults: Faults = []
        self._shown = _Shown(self.keep(observation, faults), faults, at)

    def keep(self, observation: Any, faults: Faults) -> Any:
        """An observation as it is recorded, safe from later changes; None where none is to be."""
        options = self._options
        return spaces.keep(observation, faults, max_bytes=options.max_bytes) if options.observations else None

    def keep_action(self, action: Any, faults: Faults) -> Any:
        """An action, as plain data."""
        options = self._options
        return spaces.keep(action, faults, max_bytes=options.max_bytes) if options.actions else None

    def act(self, action: Any) -> None:
        """A step is about to be taken: by the lane, where there is one then."""
        self._step = None
        if self._start is not None:
            self._open = self._opened(self._start)
            self._start = None
        if self._open is None or self._shown is None:
            return
        if not self._open.lives():
            self.forget()
            return
        if self.lane is None and self._make_lane is not None:
            self.lane = self._next_lane(self._make_lane, self._open, self._shown)
        if self.lane is None:
            faults = self._shown.faults
            given = action if self._options.actions else None
            self.enter(self._shown.value, given, faults, at=self._shown.at)

    def _next_lane(self, make: MakeLane, opened: _Open, shown: _Shown) -> Any:
        lane = self._last_lane
        if lane is None or not lane.takes(opened.session, shown.value, self._options):
            lane = make(self, opened.session, shown.value, self._options)
        takes = lane.begin(opened.episode, shown.value, shown.faults, at=shown.at)
        return lane if takes else None

    @property
    def lives(self) -> bool:
        """Whether an episode goes on that can take anything."""
        return self._open is not None and self._open.lives()

    def enter(self, observation: Any, action: Any, faults: Faults, *, at: int) -> OpenStep:
        """Open a step that began at that time."""
        assert self._open is not None
        step = self._step = self._open.episode.step(start_time=at)
        if observation is not None:
            step.observation(observation, max_bytes=self._options.max_bytes)
        if action is not None:
            step.action(action, max_bytes=self._options.max_bytes)
        _note(step, faults)
        return step

    def _opened(self, start: Mapping[str, Any]) -> _Open | None:
        session = configuration.recording_session()
        if session is None:
            return None
        faults: Faults = []
        if self._known is None:
            self._known = _written(self._identity(faults), faults)
        metadata = {**(start.get("metadata") or {}), **(self._options.metadata or {})}
        if self._template is None or self._template[0] is not session._recorder:
            self._template = session._recorder, session._template(self._known, faults)
        facts = {**self._options.identity(), **start, "metadata": metadata or None}
        episode = session._episode_from_template(self._template[1], facts)
        return _Open(episode, session, session._recorder) if episode else None

    def react(
        self, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any, *, at: int
    ) -> None:
        """The step was taken: what came of it, at that time; an observation may be `MISSING`."""
        if self._step is None or self._open is None:
            return
        self.pay(self._step, reward, terminated, truncated, info, at=at)
        if terminated or truncated:
            self.finish(observation, terminated, truncated, info, at=at)
        else:
            self._show(observation, at)

    def pay(
        self, step: OpenStep, reward: Any, terminated: Any, truncated: Any, info: Any, *, at: int
    ) -> None:
        """End a step."""
        self._step = None
        parts, result = infos.components(info), infos.scored(info)
        if result is not None:
            step.reward(result)
        else:
            scoring: ScoringFacts = {"components": parts, "start_time": at, "end_time": at} if parts else {}
            step.reward(reward, **scoring)
        step.end(terminated=bool(terminated), truncated=bool(truncated), end_time=at)

    def finish(self, observation: Any, terminated: Any, truncated: Any, info: Any, *, at: int) -> None:
        """End the episode."""
        opened = self._open
        if opened is None:
            return
        self.over = True
        if observation is not MISSING and self._options.observations:
            opened.episode.final_observation(observation, max_bytes=self._options.max_bytes)
        opened.episode.end(
            terminated=bool(terminated),
            truncated=bool(truncated),
            outcome=infos.outcome(info),
            end_time=at,
            **self.closing,
        )
        self.forget()

    def fail(self, error: BaseException) -> None:
        """The step raised: it and its episode end in error."""
        step, opened = self._step, self._open
        self.forget()
        if step is not None:
            step.__exit__(type(error), error, error.__traceback__)
        if opened is not None:
            opened.episode.__exit__(type(error), error, error.__traceback__)

    def abort(self, reason: str, at: int) -> None:
        """The episode that goes on, if one does, is left unfinished."""
        opened = self._open
        shown = self.lane.shown if self.lane is not None else self._shown and self._shown.value
        self.forget()
        if opened is None or not opened.lives():
            return
        if shown is not None:
            opened.episode.final_observation(shown, max_bytes=self._options.max_bytes)
        opened.episode.end(status="aborted", stop_reason=reason, end_time=at, **self.closing)

    def close(self, reason: str, at: int) -> None:
        """As `abort`, of an environment that is left."""
        self.abort(reason, at)
        self._last_lane = None  # which holds this, and neither is to wait for the garbage collector

    def forget(self) -> None:
        """Record nothing until the next reset."""
        self._leave_lane()
        self._start = self._shown = self._open = self._step = None

    def _leave_lane(self) -> None:
        lane, self.lane = self.lane, None
        if lane is not None:
            self._last_lane = lane
            lane.leave()


def _note(handle: OpenEpisode | OpenStep, faults: Faults) -> None:
    if faults and isinstance(handle.span, RecordingSpan):
        handle.span.note(faults)


def _written(known: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """What an environment is, its documents as text: each of its episodes says them."""
    documents = {name: known[name] for name in ("env_kwargs", "env_spaces") if known.get(name)}
    return known | {name: Written(to_json(value, faults)) for name, value in documents.items()}

"""Recording the steps of one environment of a vector as rows of the episode's buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.codec.plain import Faults
from mttp.codec.transitions import PolicyOutput
from mttp.integrations.gymnasium import infos
from mttp.integrations.gymnasium.env_episodes import EnvEpisodes
from mttp.integrations.gymnasium.env_steps import RowSteps, raw_kind
from mttp.integrations.options import Options
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.session import Session

__all__ = ["MemberSteps"]


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

    def _observe(self, kept: Any, faults: Faults, at: int) -> None:
        """Set the next step's observation to a copy that is not changed any more."""
        self._is_of_kind = raw_kind(kept, self._max_bytes) == self._kind
        self._observation = kept.tobytes() if self._kind and self._is_of_kind else kept
        self.faults, self.observed_at = faults, at

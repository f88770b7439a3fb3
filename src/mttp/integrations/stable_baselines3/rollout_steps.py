"""Recording the steps of one environment of a vector as rows of the episode's buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mttp.codec import blocks
from mttp.codec.plain import Faults
from mttp.codec.transitions import PolicyOutput, RowSchema
from mttp.integrations.gymnasium import infos
from mttp.integrations.gymnasium.env_episodes import EnvEpisodes
from mttp.integrations.options import Options
from mttp.otlp.step_columns import MAX_BYTES
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.session import Session

__all__ = ["RolloutSteps"]


class RolloutSteps:
    """
    Records steps as rows of the episode's buffer.

    A step with faults or a reward spec's result gets a handle and a span.
    """

    def __init__(self, episodes: EnvEpisodes, _: Session, observation: Any, options: Options) -> None:
        """Prepare for one episode with observations of this size."""
        self._episodes = episodes
        self._schema = RowSchema(None, (), options.max_bytes)
        self._max_rows = max(1, min(blocks.MAX_STEPS, MAX_BYTES // max(getattr(observation, "nbytes", 1), 1)))
        self.count = 0
        """The number of steps of the episode so far."""

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
        self.observation, self.observed_at, self.faults = observation, at, faults
        return True

    def stop(self) -> None:
        """Stop recording; the episode writes the buffered rows."""

    def take(
        self,
        action: Any,
        reward: Any,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
        estimates: PolicyOutput,
        *,
        at: int,
    ) -> None:
        """Record the action and the result of a step."""
        faults, self.faults = self.faults, []
        self.count += 1
        kept = self._episodes.keep_action(action, faults)
        scores = None if faults else infos.scores(reward, info, self._episode)
        if scores is None:
            step = self._episodes.open_step(self.observation, kept, faults, at=self.observed_at)
            if estimates is not None:
                step.record(value_estimate=estimates[0], logprob=estimates[1])
            self._episodes.end_step(step, reward, terminated, truncated, info, at=at)
            self._buffer.start_time = at
            return
        rows = self._buffer.rows
        rows.append((self.observation, kept, reward, terminated, truncated, estimates, scores or None, at))
        if len(rows) == 1:
            self._buffer.schedule()
        elif len(rows) >= self._max_rows:
            self._buffer.write()

    def observe(self, observation: Any, *, at: int) -> None:
        """Set the next step's observation."""
        self.faults = []
        self.observation, self.observed_at = self._episodes.keep_observation(observation, self.faults), at

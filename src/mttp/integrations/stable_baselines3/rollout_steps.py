"""The steps of one environment's episodes that are recorded without handles."""

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
    Takes steps as rows of an episode's buffer.

    A step whose info has parts of its reward is recorded as any other.
    """

    def __init__(self, track: EnvEpisodes, _: Session, observation: Any, options: Options) -> None:
        """For episodes whose observations are like this one."""
        self._track = track
        self._form = RowSchema(None, (), options.max_bytes)
        self._most = max(1, min(blocks.MAX_STEPS, MAX_BYTES // max(getattr(observation, "nbytes", 1), 1)))
        self.count = 0
        """Steps of the episode so far."""

    def takes(self, *_: Any) -> bool:
        """Whether it may take the next episode, too: each has one of its own."""
        return False

    def begin(self, episode: OpenEpisode, observation: Any, faults: Faults, *, at: int) -> bool:
        """Take the steps of an episode that is shown this observation first; False where it takes none."""
        self.count = episode.length
        buffer = episode._open_buffer(self._form, at)
        if buffer is None:
            return False
        self._buffer, self.shown, self.at, self._faults = buffer, observation, at, faults
        return True

    def leave(self) -> None:
        """Take nothing more; what gathered is written with the episode."""

    def take(
        self,
        action: Any,
        reward: Any,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
        thought: PolicyOutput,
        *,
        at: int,
    ) -> None:
        """A step was taken, and this came of it."""
        faults, self._faults = self._faults, []
        self.count += 1
        kept = self._track.keep_action(action, faults)
        if faults or infos.is_told(info):
            step = self._track.enter(self.shown, kept, faults, at=self.at)
            if thought is not None:
                step.record(value_estimate=thought[0], logprob=thought[1])
            self._track.pay(step, reward, terminated, truncated, info, at=at)
            self._buffer.start_time = at
            return
        rows = self._buffer.rows
        rows.append((self.shown, kept, reward, terminated, truncated, thought, at))
        if len(rows) == 1:
            self._buffer.gathers()
        elif len(rows) >= self._most:
            self._buffer.write()

    def show(self, observation: Any, *, at: int) -> None:
        """What the next step begins with."""
        self._faults = []
        self.shown, self.at = self._track.keep(observation, self._faults), at

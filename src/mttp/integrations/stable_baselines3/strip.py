"""The steps of one packed episode, taken with the least there is to do for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.codec import blocks, transitions
from mttp.codec.blocks import Column
from mttp.codec.plain import Faults
from mttp.integrations.gymnasium import infos
from mttp.integrations.gymnasium.track import Track
from mttp.recorder import Play
from mttp.recorder.packing import MAX_BYTES
from mttp.semconv import attributes as a

__all__ = ["Strip"]


class Strip:
    """
    Takes an episode's steps as rows, which gather and are written in columns.

    A step whose info has parts of its reward is recorded as any other.
    """

    def __init__(
        self, track: Track, episode: Play, observation: Any, faults: Faults, *, at: int, max_bytes: int
    ) -> None:
        """`observation` is what the first step begins with, at that time."""
        self.shown = observation
        self.at = at
        self._track = track
        self._episode = episode
        self._faults = faults
        self._max_bytes = max_bytes
        self._most = max(1, min(blocks.MAX_STEPS, MAX_BYTES // max(getattr(observation, "nbytes", 1), 1)))
        self._block = episode.gather(self, at)
        self.count = episode.count
        """Steps so far."""

    def columns(self, *facts: Any) -> Mapping[str, Column]:
        """The columns of rows that hold these."""
        *usual, thoughts = facts
        found = transitions.encode(*usual, max_bytes=self._max_bytes)
        if thoughts[0] is None:
            return found
        values, logprobs = np.array(thoughts, np.float64).T
        return {**found, a.STEP_VALUE_ESTIMATE: Column(values), a.STEP_LOGPROB: Column(logprobs)}

    def travelling(self, *_: Any) -> None:
        """They are laid out in this process."""

    def leave(self) -> None:
        """Take nothing more; what gathered is written with the episode."""

    def take(
        self,
        action: Any,
        reward: Any,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
        thought: tuple[float, float] | None,
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
            self._block.start_time = at
            return
        rows = self._block.rows
        rows.append((self.shown, kept, reward, terminated, truncated, thought, at))
        if len(rows) == 1:
            self._episode.gathers()
        elif len(rows) >= self._most:
            self._episode.write()

    def show(self, observation: Any, *, at: int) -> None:
        """What the next step begins with."""
        self._faults = []
        self.shown, self.at = self._track.keep(observation, self._faults), at

"""Environments that step many worlds at once on arrays of a device, such as those of Brax and MuJoCo."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mttp.codec.plain import as_array
from mttp.errors import InstrumentError
from mttp.integrations.faults import hook_failed
from mttp.integrations.options import Options
from mttp.model import Episode, Step
from mttp.model.clock import Clock
from mttp.model.interrupts import raise_interrupt
from mttp.recording import configuration
from mttp.recording.session import Session

__all__ = ["ArrayRollouts"]

_LIBRARY = "arrays"


@dataclass(slots=True)
class _World:
    """The open episode of one world."""

    start_time: int
    policy_version: str | None
    steps: list[Step] = field(default_factory=list)


class ArrayRollouts:
    """
    Records chosen worlds of an environment from the arrays of whole rollouts; an episode may span several.

    Nothing is copied off the device but by `record`, which copies the chosen worlds of each array once.
    Arrays are those of numpy, torch and jax, and of every library whose arrays can be indexed and have
    `__array__`.
    """

    def __init__(
        self,
        env: str,
        worlds: Sequence[int],
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        """
        Prepare to record the worlds with these indices.

        `seed` is recorded with each episode's metadata as `vector_seed`.
        Options are those of `mttp.wrap` but `max_bytes`: choose fewer worlds, or `observations=False`.
        Raises InstrumentError for a wrong option, and for worlds that are not different indices from 0.
        """
        if "max_bytes" in options:
            raise InstrumentError("max_bytes does not apply to rollouts; choose fewer worlds")
        self._worlds = list(worlds)
        wrong = [world for world in self._worlds if type(world) is not int or world < 0]
        if wrong or len(set(self._worlds)) != len(self._worlds):
            raise InstrumentError(f"worlds={self._worlds!r:.80} are not different indices from 0")
        self._options = Options.of(options)
        metadata = {} if seed is None else {"vector_seed": seed}
        self._facts: dict[str, Any] = {
            **{name: value for name, value in self._options.identity().items() if value is not None},
            "env": env,
            "env_kwargs": dict(env_kwargs or {}),
            "metadata": {**metadata, **(self._options.metadata or {})},
        }
        self._clock = Clock()
        self._lock = threading.Lock()
        self._since = self._clock.now()
        self._open: dict[int, _World] = {}
        self._session: Session | None = None

    def record(
        self,
        *,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any = None,
        logprobs: Any = None,
        values: Any = None,
        policy_version: object = None,
    ) -> None:
        """
        Record one rollout, of arrays with shape [time, world, ...]; never raises.

        `observations` are those that the policy acted on, and `terminated` and `truncated` say what ended
        after a step: the next step of that world is the first one of its next episode.
        The times of an episode are those of its first and last rollout.
        """
        rollout = {
            "observations": observations if self._options.observations else None,
            "actions": actions if self._options.actions else None,
            "rewards": rewards,
            "terminated": terminated,
            "truncated": truncated,
            "logprobs": logprobs,
            "values": values,
        }
        try:
            with self._lock:
                self._record(rollout, None if policy_version is None else str(policy_version))
        except Exception as error:
            raise_interrupt(error)
            hook_failed(_LIBRARY, "record", error)

    def _record(self, rollout: Mapping[str, Any], version: str | None) -> None:
        session = configuration.recording_session()
        if session is None:
            return
        if session is not self._session:
            self._session = session
            self._open.clear()
            session._before_close(self.close, "training_ended")
        since, self._since = self._since, self._clock.now()
        arrays = {name: self._copied(name, array) for name, array in rollout.items() if array is not None}
        length = len(arrays["rewards"])
        wrong = [name for name, array in arrays.items() if len(array) != length]
        if wrong:
            raise ValueError(f"{wrong[0]} has {len(arrays[wrong[0]])} times, and rewards has {length}")
        for position, world in enumerate(self._worlds):
            columns = {name: array[:, position] for name, array in arrays.items()}
            for row in _rows(columns, length):
                opened = self._open.setdefault(world, _World(since, version))
                opened.steps.append(_step(row, len(opened.steps)))
                if opened.steps[-1].terminated or opened.steps[-1].truncated:
                    self._end(session, world, version)

    def _copied(self, name: str, array: Any) -> np.ndarray[Any, Any]:
        """Return the chosen worlds of an array, copied off its device."""
        copy = as_array(array[:, self._worlds])
        if copy is None or copy.ndim < 2:
            raise ValueError(f"{name} is not an array of shape [time, world, ...]")
        return copy

    def _end(self, session: Session, world: int, version: str | None, **facts: Any) -> None:
        """Record the episode of a world."""
        opened = self._open.pop(world)
        last = opened.steps[-1]
        episode = Episode(
            **self._facts,
            env_index=world,
            policy_version_start=opened.policy_version,
            policy_version_end=version,
            length=len(opened.steps),
            terminated=last.terminated,
            truncated=last.truncated,
            steps=tuple(opened.steps),
            **facts,
        )
        session.record(episode, start_time=opened.start_time, end_time=self._since, timing="batch")

    def close(self, reason: str = "closed") -> None:
        """Record the open episodes as aborted; the end of the session does so, too."""
        with self._lock:
            session = self._session
            for world in list(self._open) if session is not None and not session.closed else ():
                assert session is not None
                self._end(session, world, None, status="aborted", stop_reason=reason)
            self._open.clear()


def _rows(columns: Mapping[str, Any], length: int) -> Iterator[dict[str, Any]]:
    for time in range(length):
        yield {name: column[time] for name, column in columns.items()}


def _step(row: Mapping[str, Any], index: int) -> Step:
    reward = float(row["rewards"])
    valid = bool(np.isfinite(reward))
    return Step(
        index=index,
        observation=row.get("observations"),
        action=row.get("actions"),
        reward=reward if valid else None,
        reward_status="ok" if valid else "error",
        reward_raw=None if valid else repr(reward),
        terminated=bool(row["terminated"]),
        truncated=bool(row.get("truncated", False)),
        logprob=None if "logprobs" not in row else float(row["logprobs"]),
        value_estimate=None if "values" not in row else float(row["values"]),
    )

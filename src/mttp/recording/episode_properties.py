"""The properties of an open episode, with the names of `mttp.Episode`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mttp.codec import episodes as codec
from mttp.model.nesting import from_json
from mttp.recording.read_only import read_only
from mttp.recording.trajectory import Trajectory
from mttp.semconv import attributes as a

__all__ = ["EpisodeProperties"]


class EpisodeProperties(Trajectory):
    """A trajectory with an episode's identity and ending."""

    _identity: Mapping[str, Any] = MappingProxyType({})
    """The attributes that were known at the start."""
    _ending: Mapping[str, Any] = MappingProxyType({})

    @property
    def trace_id(self) -> str:
        """The episode's trace id, 32 hex digits; empty for an inert handle."""
        return f"{self._span.trace_id:032x}" if self._span else ""

    @property
    def id(self) -> str:
        """The episode's id."""
        return str(self._identity.get(a.EPISODE_ID, ""))

    @property
    def run_id(self) -> str:
        """The run's id."""
        return str(self._identity.get(a.RUN_ID, ""))

    @property
    def env(self) -> str:
        """The environment's id."""
        return str(self._identity.get(a.ENV_ID, ""))

    @property
    def task(self) -> str | None:
        """The task's id."""
        return self._identity.get(a.TASK_ID)

    @property
    def group(self) -> str | None:
        """The group's id."""
        return self._identity.get(a.GROUP_ID)

    @property
    def seed(self) -> int | str | None:
        """The environment's seed."""
        return codec.seed(self._identity.get(a.ENV_SEED))

    @property
    def policy(self) -> str | None:
        """The policy's id."""
        return self._identity.get(a.POLICY_ID)

    @property
    def policy_update_index(self) -> int | None:
        """The index of the update that produced the policy."""
        return self._identity.get(a.POLICY_UPDATE_INDEX)

    @property
    def slices(self) -> list[str]:
        """Named subsets that the task belongs to."""
        return list(self._identity.get(a.TASK_SLICES, ()))

    @property
    def inputs(self) -> Any:
        """What a reward needs besides the steps, as a read-only copy; `set_inputs` adds to it."""
        document = self._identity.get(a.INPUTS_JSON)
        return None if document is None else read_only(from_json(document))

    @property
    def status(self) -> str:
        """completed, aborted or error; unfinished until it ends."""
        return str(self._ending.get("status", "unfinished"))

    @property
    def outcome(self) -> str:
        """success, failure or unknown."""
        return str(self._ending.get("outcome", "unknown"))

    @property
    def length(self) -> int:
        """The number of steps so far."""
        return int(self._ending.get("length", self._updated()._next_index))

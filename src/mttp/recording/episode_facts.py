"""The arguments with which an episode starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

__all__ = ["EPISODE_FACTS", "EpisodeFacts"]


class EpisodeFacts(TypedDict, total=False):
    """Arguments of `mttp.episode` and `Session.episode`; an argument that is None is not recorded."""

    env: str | None
    """The environment's id."""
    task: object
    """The task's id."""
    group: object
    """The group whose episodes are compared: its id or its handle."""
    seed: int | str | None
    """The environment's seed."""
    policy: object
    """The policy's id."""
    slices: Sequence[str]
    """Named subsets that the task belongs to, for comparisons."""
    inputs: object
    """What a reward needs besides the steps, such as the right answer."""
    metadata: Mapping[str, object] | None
    """Your own facts, by name."""
    id: str | None
    """The episode's id, by default a new one; several attempts at one episode share it."""
    index: int | None
    """Its number, by default counted in the session."""
    attempt: int | None
    """The number of this attempt at the episode."""
    split: str | None
    """The data split of the task."""
    policy_version: object
    """The policy's version."""
    policy_update_index: int | None
    """The index of the update that produced the policy."""
    env_version: str | None
    """The environment's version."""
    env_index: int | None
    """The index in a vector environment."""
    env_kwargs: Mapping[str, object] | None
    """The environment's arguments."""
    env_spaces: Mapping[str, object] | None
    """The environment's observation and action spaces."""
    env_wrappers: Sequence[str]
    """The environment's wrappers, outermost first."""
    env_rng_sha256: str | None
    """A digest of the state of the environment's random number generator."""
    timing: str
    """live, the default, or batch if the times are those of a whole batch."""
    start_time: int | None
    """The start in nanoseconds since the Unix epoch, by default now."""
    steps: str | None
    """How steps are written: spans, packed or auto; by default as in `configure`."""


EPISODE_FACTS = frozenset(EpisodeFacts.__annotations__)
"""The names of the arguments."""

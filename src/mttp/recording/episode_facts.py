"""What a caller may state of an episode that starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

__all__ = ["EPISODE_FACTS", "EpisodeFacts"]


class EpisodeFacts(TypedDict, total=False):
    """Arguments of `mttp.episode` and `Session.episode`; whatever is not stated, or None, is not recorded."""

    env: str | None
    """The environment's id."""
    task: object
    """The task's id."""
    group: object
    """The episodes that it is compared with: a group's id, or its handle."""
    seed: int | str | None
    """The environment's seed."""
    policy: object
    """Who acts."""
    slices: Sequence[str]
    """Named subsets to compare on that the task belongs to."""
    inputs: object
    """What a reward needs besides the steps, such as the right answer."""
    metadata: Mapping[str, object] | None
    """Facts of your own, by name."""
    id: str | None
    """The episode's own id, by default a new one; several attempts at one episode share it."""
    index: int | None
    """Its number, by default that in the session."""
    attempt: int | None
    """Which attempt at the episode it is."""
    split: str | None
    """The data split that the task is from."""
    policy_version: object
    """Which version of the policy acts."""
    policy_update_index: int | None
    """The optimizer update that made the policy."""
    env_version: str | None
    """The environment's version."""
    env_index: int | None
    """Its place among the environments of a vector."""
    env_kwargs: Mapping[str, object] | None
    """The arguments that it was made with."""
    env_spaces: Mapping[str, object] | None
    """Its observation and action spaces."""
    env_wrappers: Sequence[str]
    """What it is wrapped in, outermost first."""
    env_rng_sha256: str | None
    """A digest of its random number generator's state."""
    timing: str
    """live, as by default, or batch where the times are those of a whole batch."""
    start_time: int | None
    """When it started, in nanoseconds since the Unix epoch, by default now."""
    steps: str | None
    """How its steps are written: spans, packed or auto, by default as `configure` says."""


EPISODE_FACTS = frozenset(EpisodeFacts.__annotations__)
"""The names of the arguments."""

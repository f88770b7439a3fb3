"""What is watched of a vector environment: each of its environments by itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from mttp.integrations.faults import fault
from mttp.integrations.gymnasium import facts, infos
from mttp.integrations.gymnasium.env_episodes import MISSING, EnvEpisodes
from mttp.integrations.gymnasium.seeding import Seeding
from mttp.integrations.nesting import EVERYTHING
from mttp.integrations.options import Options

__all__ = ["RecordedVectorEnv"]


class RecordedVectorEnv:
    """
    The environments of one vector environment.

    How an episode's end and the next one's beginning follow each other is told by the autoreset mode:
    NEXT_STEP resets in the call after the end, which takes no action and pays nothing;
    SAME_STEP resets within the call that ends, and the last observation is in the infos;
    DISABLED leaves it to the caller.
    """

    key: Any = EVERYTHING
    lane = None

    def __init__(self, vector: Any, options: Options) -> None:
        self._vector = vector
        self._mode = _mode(vector)
        self._seeding = Seeding(vector)
        self._began = 0
        count = int(vector.num_envs)
        self._metadata = {
            "vector_env": type(vector.unwrapped).__name__,
            "num_envs": count,
            "autoreset_mode": self._mode.value,
        }
        self._over = [False] * count
        self._chosen = list(range(count))
        self._tracks = [
            EnvEpisodes(options, partial(facts.of_member, vector, index)) for index in range(count)
        ]

    def use(self, options: Options) -> None:
        """Take other options from here on."""
        for track in self._tracks:
            track.use(options)

    # Resets.

    def resets(self, seed: Any, options: Any, *, at: int) -> None:
        """A reset is about to be made, of all environments or of those that a mask names."""
        self._began = at
        mask = options.get("reset_mask") if isinstance(options, Mapping) else None
        self._chosen = [i for i in range(len(self._tracks)) if mask is None or mask[i]]
        self._seeding.before(self._chosen, seed)

    def was_reset(self, result: Any, *, at: int) -> None:
        """It was made, and gave this."""
        observations, _ = result
        shown = _rows(self._vector.observation_space, observations, len(self._tracks))
        for index in self._chosen:
            self._over[index] = False
            self._tracks[index].abort("reset", self._began)
            self._begin(index, shown[index], at, self._seeding.after(index))

    def _begin(self, index: int, observation: Any, at: int, seeding: dict[str, Any]) -> None:
        metadata = {**self._metadata, **seeding.get("metadata", {})}
        self._tracks[index].begin(
            observation, began=self._began, shown=at, **{**seeding, "metadata": metadata}
        )

    # Steps.

    def acts(self, action: Any, *, at: int) -> None:
        """A step is about to be taken."""
        self._began = at
        ended = [index for index, over in enumerate(self._over) if over]
        if ended and self._mode is AutoresetMode.NEXT_STEP:
            self._seeding.before(ended, None)
        elif ended:
            name = type(self._vector.unwrapped).__name__
            fault("step_after_end", f"{name} was stepped after the episodes of {ended} had ended")
        actions = _rows(self._vector.action_space, action, len(self._tracks))
        for track, over, one in zip(self._tracks, self._over, actions, strict=True):
            if not over:
                track.act(one)

    def reacts(self, result: Any, *, at: int) -> None:
        """It was taken, and gave this."""
        observations, rewards, terminations, truncations, told = result
        before, self._over = self._over, self._now_over(terminations, truncations)
        shown = _rows(self._vector.observation_space, observations, len(self._tracks))
        for index, was_over in enumerate(before):
            if not was_over:
                came = rewards[index], terminations[index], truncations[index], infos.of_one(told, index)
                self._react(index, shown[index], *came, at=at)
            elif self._mode is AutoresetMode.NEXT_STEP:
                self._begin(index, shown[index], at, self._seeding.after(index))

    def _now_over(self, terminations: Any, truncations: Any) -> list[bool]:
        """Which environments can't be stepped now."""
        if self._mode is AutoresetMode.SAME_STEP:
            return [False] * len(self._tracks)
        flags = zip(_listed(terminations), _listed(truncations), self._over, strict=True)
        stays = self._mode is AutoresetMode.DISABLED
        return [bool(terminated or truncated or (stays and over)) for terminated, truncated, over in flags]

    def _react(
        self,
        index: int,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Mapping[Any, Any],
        *,
        at: int,
    ) -> None:
        track = self._tracks[index]
        if self._mode is not AutoresetMode.SAME_STEP or not (terminated or truncated):
            track.react(observation, reward, terminated, truncated, info, at=at)
            return
        last, last_info = info.get("final_obs", MISSING), info.get("final_info")
        track.react(last, reward, terminated, truncated, last_info, at=at)
        self._began = at
        self._begin(index, observation, at, {})

    # Ends.

    def fails(self, error: BaseException) -> None:
        """The call raised, for whichever environment: all that were being stepped end in error."""
        if all(track.step is None for track in self._tracks):
            self.leaves("reset", at=self._began)
        for track in self._tracks:
            if track.step is not None:
                track.fail(error)

    def leaves(self, reason: str, *, at: int) -> None:
        """Whatever goes on is left unfinished."""
        for track in self._tracks:
            track.close(reason, at)


def _mode(vector: Any) -> AutoresetMode:
    """The mode; NEXT_STEP where none is stated, as Gymnasium itself assumes."""
    stated = getattr(vector.unwrapped, "autoreset_mode", None) or vector.metadata.get("autoreset_mode")
    return AutoresetMode.NEXT_STEP if stated is None else AutoresetMode(stated)


def _listed(flags: Any) -> Any:
    """Flags of any array library, a tensor on a device included."""
    return flags.tolist() if hasattr(flags, "tolist") else flags


def _rows(space: Any, batch: Any, count: int) -> list[Any]:
    """A batch by environment."""
    try:
        rows = list(iterate(space, batch))
    except Exception:  # a space that Gymnasium can't take apart
        rows = []
    return rows if len(rows) == count else [batch[index] for index in range(count)]

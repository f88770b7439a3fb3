"""What is watched of a single environment."""

from __future__ import annotations

from functools import partial
from typing import Any

from gymnasium.wrappers import Autoreset

from mttp.integrations.faults import fault
from mttp.integrations.gymnasium import facts
from mttp.integrations.gymnasium.env_episodes import EnvEpisodes
from mttp.integrations.gymnasium.env_steps import EnvSteps
from mttp.integrations.gymnasium.randomness import GeneratorSource
from mttp.integrations.options import Options
from mttp.recording.open_step import OpenStep

__all__ = ["SingleEnv"]


class SingleEnv:
    """
    One environment, and whichever wrappers are within.

    Where one of them is `Autoreset`, the call after an episode's end is a reset, whatever it is called.
    """

    def __init__(self, env: Any, options: Options) -> None:
        self.key = env.unwrapped
        self._resets_itself = any(isinstance(layer, Autoreset) for layer in facts.layers(env))
        self._entered: OpenStep | None = None
        self._began = 0
        self._source = GeneratorSource(self.key)
        self._track = EnvEpisodes(
            options,
            partial(facts.of_env, env),
            lane=EnvSteps,
        )

    @property
    def lane(self) -> EnvSteps | None:
        """What takes the steps of an episode that is packed."""
        return self._track.lane  # type: ignore[no-any-return]  # made by the function below

    def use(self, options: Options) -> None:
        """Take other options from here on."""
        self._track.use(options)

    def resets(self, seed: Any, _: Any = None, *, at: int) -> None:
        """A reset is about to be made."""
        self._began = at
        self._source.before(seed)

    def was_reset(self, result: Any, *, at: int) -> None:
        """It was made, and gave this."""
        observation, _ = result
        self._begin(observation, at)

    def _begin(self, observation: Any, at: int) -> None:
        self._track.abort("reset", self._began)
        self._track.begin(observation, began=self._began, shown=at, **self._source.after())

    def acts(self, action: Any, *, at: int) -> None:
        """A step is about to be taken."""
        if not self._track.over:
            self._track.act(action)
            self._entered = self._track.step
            if self._entered is not None:
                self._entered.__enter__()
        elif self._resets_itself:
            self.resets(None, at=at)
        else:
            fault("step_after_end", f"{type(self.key).__name__} was stepped after its episode had ended")

    def reacts(self, result: Any, *, at: int) -> None:
        """It was taken, and gave this."""
        try:
            self._take(*result, at=at)
        finally:
            self._exit()

    def _take(
        self, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any, *, at: int
    ) -> None:
        if not self._track.over:
            self._track.over = bool(terminated) or bool(truncated)
            self._track.react(observation, reward, terminated, truncated, info, at=at)
        elif self._resets_itself:
            self._begin(observation, at)

    def fails(self, error: BaseException) -> None:
        """It raised."""
        try:
            if self._track.step is None:
                self._track.abort("reset", self._began)
            else:
                self._track.fail(error)
        finally:
            self._exit()

    def _exit(self) -> None:
        """Make the step that was entered the current one no more, whatever became of it."""
        step, self._entered = self._entered, None
        if step is not None:
            step.__exit__(None, None, None)

    def leaves(self, reason: str, *, at: int) -> None:
        """Whatever goes on is left unfinished."""
        self._track.close(reason, at)

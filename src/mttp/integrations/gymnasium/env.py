"""Recording a single environment."""

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
    One environment with its inner wrappers.

    With an `Autoreset` wrapper, a step after an episode's end is a reset.
    """

    def __init__(self, env: Any, options: Options) -> None:
        self.key = env.unwrapped
        self._resets_itself = any(isinstance(layer, Autoreset) for layer in facts.layers(env))
        self._entered: OpenStep | None = None
        self._reset_at = 0
        self._source = GeneratorSource(self.key)
        self._episodes = EnvEpisodes(
            options,
            partial(facts.of_env, env),
            buffered_steps=EnvSteps,
            render=lambda: env.render(),  # found at each call: it may be replaced
        )

    @property
    def buffered_steps(self) -> EnvSteps | None:
        """Records the steps of the open episode without handles; None where they have handles."""
        return self._episodes.buffered_steps  # type: ignore[no-any-return]  # `EnvSteps`, given in __init__

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._episodes.use(options)

    def before_reset(self, seed: Any, _: Any = None, *, at: int) -> None:
        """Prepare for a reset."""
        self._reset_at = at
        self._source.before(seed)

    def after_reset(self, result: Any, *, at: int) -> None:
        """Take the result of a reset."""
        observation, _ = result
        self._begin(observation, at)

    def _begin(self, observation: Any, at: int) -> None:
        self._episodes.abort("reset", self._reset_at)
        self._episodes.begin(observation, reset_at=self._reset_at, observed_at=at, **self._source.after())

    def before_step(self, action: Any, *, at: int) -> None:
        """Start a step."""
        if not self._episodes.is_over:
            self._episodes.start_step(action)
            self._entered = self._episodes.step
            if self._entered is not None:
                self._entered.__enter__()
        elif self._resets_itself:
            self.before_reset(None, at=at)
        else:
            fault("step_after_end", f"{type(self.key).__name__} was stepped after the end of its episode")

    def after_step(self, result: Any, *, at: int) -> None:
        """Take the result of a step."""
        try:
            self._take(*result, at=at)
        finally:
            self._exit()

    def _take(
        self, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any, *, at: int
    ) -> None:
        if not self._episodes.is_over:
            self._episodes.finish_step(observation, reward, terminated, truncated, info, at=at)
        elif self._resets_itself:
            self._begin(observation, at)

    def on_error(self, error: BaseException) -> None:
        """End the step and its episode in error; a failed reset aborts the open episode."""
        try:
            if self._episodes.step is None:
                self._episodes.abort("reset", self._reset_at)
            else:
                self._episodes.fail(error)
        finally:
            self._exit()

    def _exit(self) -> None:
        """Restore the context from before the step."""
        step, self._entered = self._entered, None
        if step is not None:
            step.__exit__(None, None, None)

    def abort(self, reason: str, *, at: int) -> None:
        """Abort the open episode."""
        self._episodes.close(reason, at)

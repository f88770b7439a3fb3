"""The RLlib callback that records episodes and updates."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from mttp.integrations.faults import guard, hook_failed
from mttp.integrations.options import Options
from mttp.integrations.rllib import facts
from mttp.integrations.rllib.recorder import RunnerRecorder
from mttp.model.interrupts import raise_interrupt
from mttp.recording import configuration, training
from mttp.recording.configuration import RUN_ID_VARIABLE, TRANSPORT_VARIABLE

__all__ = ["LIBRARY", "EpisodeCallback", "add_to_runners", "groups", "is_recording_callback"]

LIBRARY = "ray"


class EpisodeCallback(RLlibCallback):  # type: ignore[misc]  # untyped where it is not installed
    """
    Records the episodes of RLlib's environment runners, and the updates of its learners.

    Pass the class to `config.callbacks`; with options, those of `mttp.instrument`, pass a
    `functools.partial` of it.
    Runners in other processes record into the run of the process that built the algorithm.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._recorder = RunnerRecorder(Options.of(options))

    # In the process of the algorithm.

    def on_algorithm_init(self, *, algorithm: Any, **_: Any) -> None:
        """Describe the run, and let all runners record into it."""
        guard(LIBRARY, self._describe_run, algorithm)
        guard(LIBRARY, self._join_run, groups(algorithm))

    @staticmethod
    def _describe_run(algorithm: Any) -> None:
        session = configuration.recording_session()
        if session is not None:
            session.describe(**facts.of_run(algorithm))

    def _join_run(self, runner_groups: list[Any]) -> None:
        for group in runner_groups:
            add_to_runners(group, self._options)

    def on_env_runners_recreated(self, *, env_runner_group: Any, **_: Any) -> None:
        """Let new runners record into the run."""
        guard(LIBRARY, self._join_run, [env_runner_group])

    def on_train_result(self, *, result: dict[str, Any], **_: Any) -> None:
        """Record an update of each module that has learned."""
        guard(LIBRARY, self._record_updates, result)

    @staticmethod
    def _record_updates(result: dict[str, Any]) -> None:
        for module, learned in result.get("learners", {}).items():
            if module != "__all_modules__" and learned:
                training.update(policy=module, **facts.of_update(learned))

    # In the process of an environment runner.

    def on_environment_created(self, *, env_runner: Any, **_: Any) -> None:
        """Record the environments here alone."""
        self._call("on_environment_created", env_runner)

    def on_episode_created(self, *, env_index: int, **_: Any) -> None:
        """End an episode that was dropped."""
        self._call("on_episode_created", env_index)

    def on_episode_start(self, *, episode: Any, env_runner: Any, env_index: int, **_: Any) -> None:
        """Start an episode."""
        self._call("on_episode_start", env_runner, episode, env_index)

    def on_episode_step(self, *, episode: Any, env_index: int, **_: Any) -> None:
        """Record a step."""
        self._call("on_episode_step", episode, env_index)

    def on_episode_end(self, *, episode: Any, env_index: int, **_: Any) -> None:
        """End an episode."""
        self._call("on_episode_end", episode, env_index)

    def on_sample_end(self, *, env_runner: Any, **_: Any) -> None:
        """Write what a runner in another process has recorded."""
        self._call("on_sample_end", env_runner)

    def stop(self) -> None:
        """Abort the open episodes."""
        guard(LIBRARY, self._recorder.abort, "detached")

    def _call(self, hook: str, *arguments: Any) -> None:
        try:
            getattr(self._recorder, hook)(*arguments)
        except Exception as error:
            raise_interrupt(error)
            hook_failed(LIBRARY, hook, error)
            guard(LIBRARY, self._recorder.abort, "recording_failed")


def is_recording_callback(found: Any) -> bool:
    """Return whether an entry of `callbacks_class`, or one of its instances, is an `EpisodeCallback`."""
    kind = getattr(found, "func", found)
    return isinstance(kind, EpisodeCallback) or (isinstance(kind, type) and issubclass(kind, EpisodeCallback))


def groups(algorithm: Any) -> list[Any]:
    """Return the groups of environment runners of an algorithm, for training and for evaluation."""
    candidates = (getattr(algorithm, name, None) for name in ("env_runner_group", "eval_env_runner_group"))
    return [group for group in candidates if group is not None]


def add_to_runners(group: Any, options: dict[str, Any]) -> None:
    """Let each runner of a group record, into the run of this process."""
    names = (RUN_ID_VARIABLE, TRANSPORT_VARIABLE)
    variables = {name: os.environ[name] for name in names if name in os.environ}
    group.foreach_env_runner(partial(_add, options=options, variables=variables))


def _add(runner: Any, *, options: dict[str, Any], variables: dict[str, str]) -> None:
    """Let a runner record; called in its process."""
    if configuration.current_session() is None:
        os.environ.update(variables)
    if not any(is_recording_callback(entry) for entry in runner._callbacks):
        callback = EpisodeCallback(**options)
        runner._callbacks.append(callback)
        if runner.env is not None:
            callback.on_environment_created(env_runner=runner)

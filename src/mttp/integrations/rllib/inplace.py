"""Recording an algorithm, or the algorithms that a configuration builds."""

from __future__ import annotations

from functools import partial
from typing import Any

from mttp.errors import InstrumentError
from mttp.integrations.faults import guard
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches

__all__ = ["AlgorithmAttachment", "ConfigAttachment", "add_to_config", "attach"]


class ConfigAttachment(Patches):
    """The handle of a configuration, to which a callback was added."""

    def __init__(self, config: Any, options: dict[str, Any]) -> None:
        super().__init__(self._remove)
        self._config = config
        add_to_config(config, options)

    def _remove(self) -> None:
        from mttp.integrations.rllib.callback import is_recording_callback

        entries = [item for item in _listed(self._config.callbacks_class) if not is_recording_callback(item)]
        self._config.callbacks(entries or None)

    def status(self) -> dict[str, bool]:
        """Return whether the configuration has the callback."""
        return {"callbacks_class": _records(_listed(self._config.callbacks_class))}


class AlgorithmAttachment(Patches):
    """The handle of an algorithm, to which and to whose environment runners a callback was added."""

    def __init__(self, algorithm: Any, options: dict[str, Any]) -> None:
        from mttp.integrations.rllib.callback import EpisodeCallback

        super().__init__(self._remove)
        self._algorithm = algorithm
        if not _records(algorithm.callbacks):
            algorithm.callbacks.append(EpisodeCallback(**options))
        for callback in _recording(algorithm.callbacks):
            callback.on_algorithm_init(algorithm=algorithm)

    def _remove(self) -> None:
        from mttp.integrations.rllib.callback import LIBRARY, groups

        _drop(self._algorithm.callbacks)
        for group in groups(self._algorithm):
            guard(LIBRARY, group.foreach_env_runner, _stop)

    def status(self) -> dict[str, bool]:
        """Return whether the algorithm has the callback."""
        return {"callbacks": _records(self._algorithm.callbacks)}


def attach(target: Any, /, **options: Any) -> Patches:
    """
    Record an algorithm, or the algorithms that a configuration builds from now on.

    Raises InstrumentError for another object of the library, a frozen configuration and a wrong option.
    """
    Options.of(options)
    if hasattr(target, "build_algo") and hasattr(target, "callbacks_class"):
        if getattr(target, "_is_frozen", False):
            raise InstrumentError("the configuration is frozen; instrument it before it builds an algorithm")
        return ConfigAttachment(target, options)
    if isinstance(getattr(target, "callbacks", None), list) and hasattr(target, "env_runner_group"):
        return AlgorithmAttachment(target, options)
    kind = f"{type(target).__module__}.{type(target).__qualname__}"
    raise InstrumentError(
        f"{kind} can't be recorded; give an Algorithm or an AlgorithmConfig of RLlib, with its new API stack"
    )


def add_to_config(config: Any, options: dict[str, Any]) -> None:
    """Add the callback to a configuration, unless it has one and there are no new options."""
    from ray.rllib.callbacks.callbacks import RLlibCallback

    from mttp.integrations.rllib.callback import EpisodeCallback, is_recording_callback

    callbacks = _listed(config.callbacks_class)
    if _records(callbacks) and not options:
        return
    others = [item for item in callbacks if item is not RLlibCallback and not is_recording_callback(item)]
    config.callbacks([*others, partial(EpisodeCallback, **options) if options else EpisodeCallback])


def _listed(callbacks: Any) -> list[Any]:
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


def _recording(callbacks: list[Any]) -> list[Any]:
    from mttp.integrations.rllib.callback import is_recording_callback

    return [callback for callback in callbacks if is_recording_callback(callback)]


def _records(callbacks: list[Any]) -> bool:
    return bool(_recording(callbacks))


def _drop(callbacks: list[Any]) -> None:
    """Stop the recording callbacks in a list, and remove them from it."""
    for callback in _recording(callbacks):
        callback.stop()
        callbacks.remove(callback)


def _stop(runner: Any) -> None:
    """Stop the recording of a runner; called in its process."""
    _drop(runner._callbacks)

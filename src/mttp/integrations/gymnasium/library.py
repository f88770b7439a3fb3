"""Recording every environment that `gymnasium.make` and `gymnasium.make_vec` return."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import gymnasium
from gymnasium.envs import registration

from mttp.integrations.faults import hook_failed
from mttp.integrations.gymnasium.inplace import EnvAttachment, attach
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches

__all__ = ["GymnasiumLibrary", "attach_all"]

_BUILDING: ContextVar[bool] = ContextVar("mttp-gymnasium-building", default=False)
"""Whether a vector environment is being created, which is recorded instead of the environments in it."""

_active: GymnasiumLibrary | None = None


class GymnasiumLibrary(Patches):
    """The patches of `make` and `make_vec`, wherever they are exported, and the environments from them."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(self._stop)
        self._options = options
        self._made: weakref.WeakSet[EnvAttachment] = weakref.WeakSet()
        for name, around in (("make", self._make), ("make_vec", self._make_vec)):
            label = f"gymnasium.envs.registration.{name}"
            exporters = _exporters(name)
            self.install(registration, [(label, name, around)])
            for exporter in exporters:
                self.install_again(f"{exporter.__name__}.{name}", exporter, name, like=label)

    def use(self, options: dict[str, Any]) -> None:
        """Use new options for environments created from now on."""
        self._options = options

    def _stop(self) -> None:
        for attachment in list(self._made):
            attachment.detach()

    def _make(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        env = wrapped(*args, **kwargs)
        if self.attached and not _BUILDING.get():
            self._attach(env)
        return env

    def _make_vec(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        if not self.attached:
            return wrapped(*args, **kwargs)
        token = _BUILDING.set(True)
        try:
            vector = wrapped(*args, **kwargs)
        finally:
            _BUILDING.reset(token)
        self._attach(vector)
        return vector

    def _attach(self, env: Any) -> None:
        try:
            self._made.add(attach(env, **self._options))
        except Exception as error:
            hook_failed("gymnasium", f"{type(env).__name__} is not recorded", error)


def attach_all(**options: Any) -> GymnasiumLibrary:
    """
    Record every environment that `gymnasium.make` and `gymnasium.make_vec` create from now on.

    A further call returns the same handle, and new options apply.
    Detaching also detaches the environments that were created in the meantime.
    """
    global _active
    Options.of(options)
    if _active is None or not _active.attached:
        _active = GymnasiumLibrary(options)
    elif options:
        _active.use(options)
    return _active


def _exporters(name: str) -> list[Any]:
    """Return the modules of Gymnasium that export a function of `gymnasium.envs.registration`."""
    original = getattr(registration, name)
    return [module for module in (gymnasium, gymnasium.envs) if getattr(module, name, None) is original]

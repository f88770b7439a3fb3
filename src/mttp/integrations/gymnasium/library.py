"""Recording every environment that `gymnasium.make` and `gymnasium.make_vec` return."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import gymnasium
from gymnasium.envs import registration

from mttp.integrations.gymnasium.inplace import attach
from mttp.integrations.library_patches import LibraryPatches

__all__ = ["GymnasiumLibrary", "attach_all"]

_BUILDING: ContextVar[bool] = ContextVar("mttp-gymnasium-building", default=False)
"""Whether a vector environment is being created, which is recorded instead of the environments in it."""


class GymnasiumLibrary(LibraryPatches):
    """The patches of `make` and `make_vec`, wherever they are exported, and the environments from them."""

    LIBRARY = "gymnasium"

    def patch_library(self) -> None:
        """Patch the functions."""
        for name, around in (("make", self._make), ("make_vec", self._make_vec)):
            label = f"gymnasium.envs.registration.{name}"
            exporters = _exporters(name)
            self.install(registration, [(label, name, around)])
            for exporter in exporters:
                self.install_again(f"{exporter.__name__}.{name}", exporter, name, like=label)

    def _make(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        env = wrapped(*args, **kwargs)
        if not _BUILDING.get():
            self.attach_made(attach, env)
        return env

    def _make_vec(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        if not self.attached:
            return wrapped(*args, **kwargs)
        token = _BUILDING.set(True)
        try:
            vector = wrapped(*args, **kwargs)
        finally:
            _BUILDING.reset(token)
        self.attach_made(attach, vector)
        return vector


attach_all = GymnasiumLibrary.attach_all


def _exporters(name: str) -> list[Any]:
    """Return the modules of Gymnasium that export a function of `gymnasium.envs.registration`."""
    original = getattr(registration, name)
    return [module for module in (gymnasium, gymnasium.envs) if getattr(module, name, None) is original]

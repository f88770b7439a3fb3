"""Recording every algorithm that a configuration of RLlib builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mttp.integrations.faults import guard
from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.rllib.inplace import add_to_config

__all__ = ["RllibLibrary", "attach_all"]

_MODULE = "ray.rllib.algorithms.algorithm_config"
_METHOD = "AlgorithmConfig.build_algo"


class RllibLibrary(LibraryPatches):
    """The patch of the method that builds an algorithm, once RLlib is imported."""

    LIBRARY = "ray"

    def patch_library(self) -> None:
        """Patch the method when its module is imported."""
        self.patch_on_import(_MODULE, self._patch_module, label=_METHOD)

    def _patch_module(self, module: Any) -> None:
        patch = (_METHOD, module.AlgorithmConfig, "build_algo", self._build)
        self.install_existing(self.LIBRARY, [patch])

    def _build(self, wrapped: Callable[..., Any], config: Any, args: Any, kwargs: Any) -> Any:
        guard(self.LIBRARY, add_to_config, config, self._given)
        return wrapped(*args, **kwargs)


attach_all = RllibLibrary.attach_all

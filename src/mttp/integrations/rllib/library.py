"""Recording every algorithm that a configuration of RLlib builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wrapt

from mttp.integrations.faults import guard, hook_failed
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches
from mttp.integrations.rllib.inplace import add_to_config

__all__ = ["RllibLibrary", "attach_all"]

_LIBRARY = "ray"
_MODULE = "ray.rllib.algorithms.algorithm_config"
_METHOD = "AlgorithmConfig.build_algo"

_active: RllibLibrary | None = None


class RllibLibrary(Patches):
    """The patch of the method that builds an algorithm, once RLlib is imported."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(lambda: None)
        self._options = options
        self._missing[_METHOD] = False
        wrapt.register_post_import_hook(self._patch_module, _MODULE)

    def use(self, options: dict[str, Any]) -> None:
        """Use new options for algorithms built from now on."""
        self._options = options

    def _patch_module(self, module: Any) -> None:
        if not self.attached:
            return
        self._missing.pop(_METHOD, None)
        try:
            patch = (_METHOD, module.AlgorithmConfig, "build_algo", self._build)
            self.install_existing(_LIBRARY, [patch])
        except Exception as error:
            hook_failed(_LIBRARY, "algorithms are not recorded", error)

    def _build(self, wrapped: Callable[..., Any], config: Any, args: Any, kwargs: Any) -> Any:
        guard(_LIBRARY, add_to_config, config, self._options)
        return wrapped(*args, **kwargs)


def attach_all(**options: Any) -> RllibLibrary:
    """
    Record every algorithm that `AlgorithmConfig.build_algo` builds from now on.

    A further call returns the same handle, and new options apply.
    """
    global _active
    Options.of(options)
    if _active is None or not _active.attached:
        _active = RllibLibrary(options)
    elif options:
        _active.use(options)
    return _active

"""Recording every environment that PettingZoo's `make` returns or one of its outer wrappers wraps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pettingzoo
from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.pettingzoo.inplace import attach

__all__ = ["PettingZooLibrary", "attach_all"]


class PettingZooLibrary(LibraryPatches):
    """The patches of `make` and of the wrappers, and the environments from them."""

    LIBRARY = "pettingzoo"

    def patch_library(self) -> None:
        """Patch the function and the constructors."""
        self.install_existing(
            self.LIBRARY,
            [
                ("pettingzoo.make", pettingzoo, "make", self._make),
                ("OrderEnforcingWrapper.__init__", OrderEnforcingWrapper, "__init__", self._init),
                ("aec_to_parallel_wrapper.__init__", aec_to_parallel_wrapper, "__init__", self._init),
            ],
        )

    def _make(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        env = wrapped(*args, **kwargs)
        self.attach_made(attach, env)
        return env

    def _init(self, wrapped: Callable[..., None], wrapper: Any, args: Any, kwargs: Any) -> None:
        wrapped(*args, **kwargs)
        self.attach_made(attach, wrapper)


attach_all = PettingZooLibrary.attach_all

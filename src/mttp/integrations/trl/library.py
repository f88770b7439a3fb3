"""Recording every trainer of TRL."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.trl import trainers
from mttp.integrations.trl.inplace import attach

__all__ = ["TrlLibrary", "attach_all"]


class TrlLibrary(LibraryPatches):
    """The patches of the trainers' constructors, installed on import, and the trainers created since."""

    LIBRARY = "trl"

    def patch_library(self) -> None:
        """Patch the constructors of modules that are imported, the others on import, which takes seconds."""
        for name, algorithm in trainers.FAMILIES.items():
            home = f"trl.trainer.{algorithm}_trainer"
            if home in sys.modules or not _exists(home):
                self._patch(name, sys.modules.get(home))
            else:
                self.patch_on_import(home, functools.partial(self._patch, name), label=name)

    def _patch(self, name: str, module: Any) -> None:
        kind = getattr(module, name, None)
        owner, attribute = (module, name) if kind is None else (kind, "__init__")
        self.install_existing(self.LIBRARY, [(name, owner, attribute, self._make)])

    def _make(self, wrapped: Callable[..., Any], trainer: Any, args: Any, kwargs: Any) -> Any:
        wrapped(*args, **kwargs)
        self.attach_made(attach, trainer)


attach_all = TrlLibrary.attach_all


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package does not exist
        return False

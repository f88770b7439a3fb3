"""Recording every trainer that TRL makes."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import wrapt

from mttp.integrations.faults import hook_failed
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches
from mttp.integrations.trl import trainers
from mttp.integrations.trl.inplace import TrainerAttachment, attach

__all__ = ["TrlLibrary", "attach_all"]

_active: TrlLibrary | None = None


class TrlLibrary(Patches):
    """The trainers' constructors, each once its module is imported, and the trainers made meanwhile."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(self._stop)
        self._options = options
        self._made: weakref.WeakSet[TrainerAttachment] = weakref.WeakSet()
        for name, algorithm in trainers.FAMILIES.items():
            home = f"trl.trainer.{algorithm}_trainer"
            if home in sys.modules or not _exists(home):
                self._surround(name, sys.modules.get(home))
            else:  # importing it takes seconds, which are not ours to spend
                self._missing[name] = False
                wrapt.register_post_import_hook(functools.partial(self._surround, name), home)

    def use(self, options: dict[str, Any]) -> None:
        """Take other options for trainers that are made from here on."""
        self._options = options

    def _surround(self, name: str, module: Any) -> None:
        if self.attached:
            self._missing.pop(name, None)
            kind = getattr(module, name, None)
            owner, attribute = (module, name) if kind is None else (kind, "__init__")
            self.install_existing("trl", [(name, owner, attribute, self._make)])

    def _stop(self) -> None:
        for attachment in list(self._made):
            attachment.detach()

    def _make(self, wrapped: Callable[..., Any], trainer: Any, args: Any, kwargs: Any) -> Any:
        wrapped(*args, **kwargs)
        try:
            self._made.add(attach(trainer, **self._options))
        except Exception as error:
            hook_failed("trl", f"{type(trainer).__name__} is not recorded", error)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor does its package
        return False


def attach_all(**options: Any) -> TrlLibrary:
    """
    Record every GRPOTrainer and RLOOTrainer that is made from here on.

    Called again, it gives the same handle back, and takes the options that are given.
    Detaching takes the trainers that were made meanwhile off, too.
    """
    global _active
    Options.of(options)
    if _active is None or not _active.attached:
        _active = TrlLibrary(options)
    elif options:
        _active.use(options)
    return _active

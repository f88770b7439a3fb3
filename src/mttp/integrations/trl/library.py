"""Recording every trainer of TRL."""

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
    """The patches of the trainers' constructors, installed on import, and the trainers created since."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(self._stop)
        self._options = options
        self._made: weakref.WeakSet[TrainerAttachment] = weakref.WeakSet()
        for name, algorithm in trainers.FAMILIES.items():
            home = f"trl.trainer.{algorithm}_trainer"
            if home in sys.modules or not _exists(home):
                self._patch(name, sys.modules.get(home))
            else:  # the import takes seconds, so that it is left to the program
                self._missing[name] = False
                wrapt.register_post_import_hook(functools.partial(self._patch, name), home)

    def use(self, options: dict[str, Any]) -> None:
        """Use new options for trainers created from now on."""
        self._options = options

    def _patch(self, name: str, module: Any) -> None:
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
    except ModuleNotFoundError:  # its package does not exist
        return False


def attach_all(**options: Any) -> TrlLibrary:
    """
    Record every GRPOTrainer and RLOOTrainer created from now on.

    A further call returns the same handle, and new options apply.
    Detaching also detaches the trainers that were created in the meantime.
    """
    global _active
    Options.of(options)
    if _active is None or not _active.attached:
        _active = TrlLibrary(options)
    elif options:
        _active.use(options)
    return _active

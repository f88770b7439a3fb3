"""Recording every environment that PettingZoo's `make` returns or one of its outer wrappers wraps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pettingzoo
from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from mttp.integrations.faults import hook_failed
from mttp.integrations.gymnasium.inplace import EnvAttachment
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches
from mttp.integrations.pettingzoo.inplace import attach

__all__ = ["PettingZooLibrary", "attach_all"]

_active: PettingZooLibrary | None = None


class PettingZooLibrary(Patches):
    """The patches of `make` and of the wrappers, and the environments from them."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(self._stop)
        self._options = options
        self._attachments: weakref.WeakSet[EnvAttachment] = weakref.WeakSet()
        self.install_existing(
            "pettingzoo",
            [
                ("pettingzoo.make", pettingzoo, "make", self._make),
                ("OrderEnforcingWrapper.__init__", OrderEnforcingWrapper, "__init__", self._init),
                ("aec_to_parallel_wrapper.__init__", aec_to_parallel_wrapper, "__init__", self._init),
            ],
        )

    def use(self, options: dict[str, Any]) -> None:
        """Use new options for environments created from now on."""
        self._options = options

    def _stop(self) -> None:
        for attachment in list(self._attachments):
            attachment.detach()

    def _make(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        env = wrapped(*args, **kwargs)
        self._attach(env)
        return env

    def _init(self, wrapped: Callable[..., None], wrapper: Any, args: Any, kwargs: Any) -> None:
        wrapped(*args, **kwargs)
        self._attach(wrapper)

    def _attach(self, env: Any) -> None:
        if not self.attached:
            return
        try:
            self._attachments.add(attach(env, **self._options))
        except Exception as error:
            hook_failed("pettingzoo", f"{type(env).__name__} is not recorded", error)


def attach_all(**options: Any) -> PettingZooLibrary:
    """
    Record every environment that `pettingzoo.make` returns or an outer wrapper wraps from now on.

    A further call returns the same handle, and new options apply.
    Detaching also detaches the environments that were created in the meantime.
    """
    global _active
    Options.of(options)
    if _active is None or not _active.attached:
        _active = PettingZooLibrary(options)
    elif options:
        _active.use(options)
    return _active

"""The reward functions of a trainer, each surrounded where it stands in the trainer's list."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from mttp.integrations.patching import PatchedFunction, Patches

__all__ = ["Functions"]

Asked: TypeAlias = Callable[[int, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""What runs instead: it is given the function's position, and else what any seam is."""


class _AsyncPatchedFunction(PatchedFunction):
    """A seam over an object whose `__call__` is async: TRL looks at that to know what to await."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await super().__call__(*args, **kwargs)


class Functions:
    """A trainer's reward functions, but for reward models, which are left as they are."""

    def __init__(self, trainer: Any, handle: Patches, asked: Asked) -> None:
        self._trainer = trainer
        self._handle = handle
        self._asked = asked
        self._before: list[Any] = []
        self._ours: list[Any] = []

    def surround(self) -> None:
        """Surround those that are not yet, in a list of our own: the trainer's may be its user's."""
        if self._trainer.reward_funcs is not self._ours:
            self._before = self._trainer.reward_funcs
            self._ours = self._trainer.reward_funcs = list(self._before)
        for position, function in enumerate(self._ours):
            if not self._has(function) and not _is_model(function):
                kind = PatchedFunction if _is_plain(function) else _AsyncPatchedFunction
                around = functools.partial(self._asked, position)
                self._ours[position] = kind(function, around, self._handle)

    def release(self) -> None:
        """Restore the original list, unless it was changed since."""
        if self._trainer.reward_funcs is not self._ours:
            return
        bare = [one.__wrapped__ if self._has(one) else one for one in self._ours]
        same = len(bare) == len(self._before) and all(map(operator.is_, bare, self._before))
        self._trainer.reward_funcs = self._before if same else bare

    @property
    def held(self) -> bool:
        """Whether all of them are surrounded."""
        return all(self._has(function) or _is_model(function) for function in self._trainer.reward_funcs)

    def _has(self, function: Any) -> bool:
        return isinstance(function, PatchedFunction) and function.handle is self._handle


def _is_model(function: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(function, torch.nn.Module)


def _is_plain(function: Any) -> bool:
    """Whether it is a function, async or not, a partial, or an object whose `__call__` is not async."""
    if isinstance(function, functools.partial) or inspect.iscoroutinefunction(function):
        return True
    return not inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - what TRL does

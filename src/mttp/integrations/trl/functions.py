"""Patching a trainer's reward functions in its list."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from mttp.integrations.patching import PatchedFunction, Patches

__all__ = ["RewardFunctions"]

RewardWrapper: TypeAlias = Callable[[int, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called with the function's position, and then with the arguments of `patching.Around`."""


class _AsyncPatchedFunction(PatchedFunction):
    """A patch of an object with an async `__call__`, which TRL inspects to know what to await."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await super().__call__(*args, **kwargs)


class RewardFunctions:
    """The patches of a trainer's reward functions; reward models are not patched."""

    def __init__(self, trainer: Any, handle: Patches, wrapper: RewardWrapper) -> None:
        self._trainer = trainer
        self._handle = handle
        self._wrapper = wrapper
        self._originals: list[Any] = []
        self._patched: list[Any] = []

    def patch(self) -> None:
        """Patch the functions that are not patched yet, in a copy of the trainer's list."""
        if self._trainer.reward_funcs is not self._patched:
            self._originals = self._trainer.reward_funcs
            self._patched = self._trainer.reward_funcs = list(self._originals)
        for position, function in enumerate(self._patched):
            if not self._is_patched(function) and not _is_model(function):
                kind = PatchedFunction if _is_plain(function) else _AsyncPatchedFunction
                around = functools.partial(self._wrapper, position)
                self._patched[position] = kind(function, around, self._handle)

    def restore(self) -> None:
        """Restore the original list; a list that was changed since keeps the changes."""
        if self._trainer.reward_funcs is not self._patched:
            return
        bare = [func.__wrapped__ if self._is_patched(func) else func for func in self._patched]
        is_same = len(bare) == len(self._originals) and all(map(operator.is_, bare, self._originals))
        self._trainer.reward_funcs = self._originals if is_same else bare

    @property
    def held(self) -> bool:
        """Whether all functions are patched."""
        functions = self._trainer.reward_funcs
        return all(self._is_patched(function) or _is_model(function) for function in functions)

    def _is_patched(self, function: Any) -> bool:
        return isinstance(function, PatchedFunction) and function.handle is self._handle


def _is_model(function: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(function, torch.nn.Module)


def _is_plain(function: Any) -> bool:
    """Return whether a function is not an object with an async `__call__`."""
    if isinstance(function, functools.partial) or inspect.iscoroutinefunction(function):
        return True
    return not inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - what TRL does

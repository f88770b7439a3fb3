"""
Environments of verifiers: each finished episode is recorded with the traces of its agents.

An episode that verifiers retries is recorded once, with the errors of all attempts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mttp.errors import InstrumentError
from mttp.formats import verifiers
from mttp.integrations.faults import guard
from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.nesting import is_inside_recorder, recording_everything
from mttp.integrations.options import Options
from mttp.integrations.patching import handle_in
from mttp.recording import configuration

__all__ = ["EnvironmentPatches", "attach", "attach_all"]

_LIBRARY = "verifiers"
_MODULE = "verifiers.v1.env"
_METHODS = ("run_slot", "run_episode")
"""The methods that run an episode; `run_slot` calls `run_episode` once for each attempt."""


class EnvironmentPatches(LibraryPatches):
    """The patches of one environment, or of all."""

    LIBRARY = _LIBRARY

    def patch(self, owner: Any) -> None:
        """Patch an environment or the class of all."""
        self.install_existing(self.LIBRARY, [(name, owner, name, self._run) for name in _METHODS])

    def patch_library(self) -> None:
        """Patch the class of all environments when its module is imported."""
        self.patch_on_import(_MODULE, lambda module: self.patch(module.Env))

    def _run(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        if is_inside_recorder():
            return wrapped(*args, **kwargs)
        return self._recorded(functools.partial(wrapped, *args, **kwargs))

    async def _recorded(self, run: Callable[[], Any]) -> Any:
        with recording_everything():
            episode = await run()
        guard(_LIBRARY, self._record, episode)
        return episode

    def _record(self, episode: Any) -> None:
        session = configuration.recording_session()
        if session is None:
            return
        value = verifiers.episode(episode.to_record(float_decimals=None))
        session.record(self._options.applied(value))


attach_all = EnvironmentPatches.attach_all


def attach(target: Any, /, **options: Any) -> EnvironmentPatches:
    """
    Record an environment's episodes; one that is recorded already gets the new options.

    Raises InstrumentError for another object of the library.
    """
    Options.of(options)
    if not hasattr(target, "run_episode"):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise InstrumentError(f"{kind} can't be recorded; give an environment of verifiers, verifiers.v1.Env")
    patches = handle_in(target, EnvironmentPatches)
    if patches is None:
        patches = EnvironmentPatches(options)
        patches.patch(target)
        return patches
    if options:
        patches.use(options)
    return patches.claim()

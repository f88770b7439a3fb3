"""
Environments of verifiers: each finished episode is recorded with the traces of its agents.

An episode that verifiers retries is recorded once, with the errors of all attempts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import wrapt

from mttp.errors import InstrumentError
from mttp.formats import verifiers
from mttp.integrations.faults import guard, hook_failed
from mttp.integrations.nesting import is_inside_recorder, recording_everything
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches, handle_in
from mttp.recording import configuration

__all__ = ["EnvironmentPatches", "attach", "attach_all"]

_LIBRARY = "verifiers"
_MODULE = "verifiers.v1.env"
_METHODS = ("run_slot", "run_episode")
"""The methods that run an episode; `run_slot` calls `run_episode` once for each attempt."""

_everything: EnvironmentPatches | None = None


class EnvironmentPatches(Patches):
    """The patches of one environment, or of all."""

    def __init__(self, options: Options) -> None:
        super().__init__(lambda: None)
        self._options = options

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._options = options

    def patch(self, owner: Any) -> None:
        """Patch an environment or the class of all."""
        self._missing.pop(_MODULE, None)
        self.install_existing(_LIBRARY, [(name, owner, name, self._run) for name in _METHODS])

    def patch_module(self, module: Any) -> None:
        """Patch the class of all environments when its module is imported; errors are counted."""
        if not self.attached:
            return
        try:
            self.patch(module.Env)
        except Exception as error:
            hook_failed(_LIBRARY, "environments are not recorded", error)

    def await_import(self) -> None:
        """Patch the class of all environments as soon as it exists."""
        self._missing[_MODULE] = False
        wrapt.register_post_import_hook(self.patch_module, _MODULE)

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


def attach(target: Any, /, **options: Any) -> EnvironmentPatches:
    """
    Record an environment's episodes; one that is recorded already gets the new options.

    Raises InstrumentError for another object of the library.
    """
    chosen = Options.of(options)
    if not hasattr(target, "run_episode"):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise InstrumentError(f"{kind} can't be recorded; give an environment of verifiers, verifiers.v1.Env")
    found = handle_in(target, EnvironmentPatches)
    if found is None:
        found = EnvironmentPatches(chosen)
        found.patch(target)
        return found
    if options:
        found.use(chosen)
    return found.claim()


def attach_all(**options: Any) -> EnvironmentPatches:
    """
    Record the episodes of all environments.

    A further call returns the same handle, and new options apply.
    """
    global _everything
    chosen = Options.of(options)
    if _everything is None or not _everything.attached:
        _everything = EnvironmentPatches(chosen)
        _everything.await_import()
    elif options:
        _everything.use(chosen)
    return _everything

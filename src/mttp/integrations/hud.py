"""
HUD: each rollout that runs in this process is recorded when it ends.

The rollout of an agent that another rollout calls is a call in that one's episode, and none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mttp.formats import hud
from mttp.integrations.faults import attribute, guard
from mttp.integrations.foreign_models import as_record
from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.nesting import EVERYTHING, active_recorders, is_suppressed, recording_everything
from mttp.recording import configuration

__all__ = ["RolloutPatches", "attach", "attach_all"]

_LIBRARY = "hud"
_MODULE = "hud.eval.run"


class RolloutPatches(LibraryPatches):
    """
    The patches of what HUD's `rollout` calls: the context around a run, and the report of its end.

    `rollout` itself is imported by name into several modules of HUD.
    """

    LIBRARY = _LIBRARY

    def patch_library(self) -> None:
        """Patch the module when it is imported."""
        self.patch_on_import(_MODULE, self._patch_module)

    def _patch_module(self, module: Any) -> None:
        self.install_existing(
            self.LIBRARY,
            [
                ("rollout.set_trace_context", module, "set_trace_context", self._context),
                ("rollout.trace_exit", module, "trace_exit", self._exit),
            ],
        )

    @contextmanager
    def _context(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Iterator[Any]:
        with recording_everything(), wrapped(*args, **kwargs) as run:
            yield run

    async def _exit(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        outer = [recorder for recorder in active_recorders() if recorder.key is EVERYTHING]
        if len(outer) <= 1 and not is_suppressed():  # the one is that of the rollout itself
            guard(_LIBRARY, self._record, args[0] if args else kwargs.get("run"))
        return await wrapped(*args, **kwargs)

    def _record(self, run: Any) -> None:
        session = configuration.recording_session()
        if session is None:
            return
        manifest = attribute(attribute(run, "_client"), "manifest")
        record = as_record(run.trace)
        record |= {
            "env": attribute(attribute(manifest, "server_info"), "name"),
            **{name: attribute(run, name) for name in ("slug", "group_id", "job_id", "runtime")},
            "grade": {name: attribute(attribute(run, "grade"), name) for name in ("is_error", "content")},
        }
        session.record(self._options.applied(hud.episode(record)))


attach_all = RolloutPatches.attach_all


def attach(target: Any, /, **options: Any) -> RolloutPatches:  # noqa: ARG001 - a rollout is a function
    """Record all rollouts, as `attach_all` does: HUD's rollouts do not belong to a task or an agent."""
    return attach_all(**options)

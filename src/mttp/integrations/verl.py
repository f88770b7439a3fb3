"""
verl: each rollout of an agent loop is recorded with its tokens, after its reward is computed.

Agent loops run in Ray's workers, which do not inherit patches: give them `setup_worker`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from mttp.formats import verl
from mttp.integrations.faults import attribute, guard
from mttp.integrations.library_patches import LibraryPatches
from mttp.integrations.nesting import recording_everything
from mttp.model import clock
from mttp.recording import configuration

__all__ = ["AgentLoopPatches", "attach", "attach_all", "setup_worker"]

_LIBRARY = "verl"
_MODULE = "verl.experimental.agent_loop.agent_loop"
_OUTPUT = (
    "prompt_ids",
    "response_ids",
    "response_mask",
    "response_logprobs",
    "reward_score",
    "num_turns",
    "extra_fields",
)

_trajectory: ContextVar[Mapping[str, Any] | None] = ContextVar("mttp-verl-trajectory", default=None)
"""The trajectory of the running agent loop, with its start as `start_time`."""


class AgentLoopPatches(LibraryPatches):
    """The patches of the worker that runs agent loops, installed when its module is imported."""

    LIBRARY = _LIBRARY

    def patch_library(self) -> None:
        """Patch the worker's class when its module is imported."""
        self.patch_on_import(_MODULE, self.patch_module)

    def patch_module(self, module: Any) -> None:
        """Patch the worker's class."""
        hooks = {"_run_agent_loop": self._run, "_agent_loop_postprocess": self._postprocess}
        owner = module.AgentLoopWorker
        self.install_existing(self.LIBRARY, [(name, owner, name, hook) for name, hook in hooks.items()])

    async def _run(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        facts = guard(_LIBRARY, _trajectory_facts, args, kwargs)
        token = _trajectory.set(facts)
        try:
            with recording_everything():
                return await wrapped(*args, **kwargs)
        finally:
            _trajectory.reset(token)

    async def _postprocess(self, wrapped: Callable[..., Any], worker: Any, args: Any, kwargs: Any) -> Any:
        result = await wrapped(*args, **kwargs)
        output = args[0] if args else kwargs.get("output")
        guard(_LIBRARY, self._record, worker, output, kwargs)
        return result

    def _record(self, worker: Any, output: Any, kwargs: Mapping[str, Any]) -> None:
        """Record a rollout; verl has added the reward to `output` meanwhile."""
        session = configuration.recording_session()
        facts = _trajectory.get()
        if session is None or facts is None:
            return
        record = {name: attribute(output, name) for name in _OUTPUT}
        metrics: Any = attribute(output, "metrics")
        record["metrics"] = {} if metrics is None else guard(_LIBRARY, dict, metrics)
        decode = functools.partial(worker.tokenizer.decode, skip_special_tokens=True)
        prompt: Any = kwargs.get("raw_prompt")
        listed = None if prompt is None else list(prompt)
        answer = guard(_LIBRARY, decode, record["response_ids"])
        value = verl.rollout({**facts, **record, "raw_prompt": listed, "response_text": answer})
        session.record(self._options.applied(value), start_time=facts["start_time"], end_time=clock.wall())


def _trajectory_facts(args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    trajectory = args[1] if len(args) > 1 else kwargs.get("trajectory")
    return {**dict(trajectory or {}), "start_time": clock.wall()}


attach_all = AgentLoopPatches.attach_all


def setup_worker() -> None:
    """
    Record the agent loops of this process.

    For Ray's `runtime_env={"worker_process_setup_hook": "mttp.integrations.verl.setup_worker"}`, where
    `env_vars` has MTTP_TRANSPORT and MTTP_RUN_ID. Never raises.
    """
    guard(_LIBRARY, attach_all)


def attach(target: Any, /, **options: Any) -> AgentLoopPatches:  # noqa: ARG001 - it runs in other processes
    """Record all agent loops of this process, as `attach_all` does."""
    return attach_all(**options)

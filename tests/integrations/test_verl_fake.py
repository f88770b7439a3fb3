"""The integration with verl with a stand-in for its worker, which always runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import wrapt

import mttp
from mttp.integrations.verl import AgentLoopPatches

ASKED = [{"role": "user", "content": "2+2?"}]


class AgentLoopWorker:
    """A worker with the two methods that are patched."""

    tokenizer = SimpleNamespace(decode=lambda ids, **_: f"{len(ids)} tokens")

    async def _run_agent_loop(
        self, sampling_params: Any, trajectory: Any, *, agent_name: str, **kwargs: Any
    ) -> Any:
        await asyncio.sleep(0)
        if agent_name == "broken":
            raise ValueError("no such loop")
        output = SimpleNamespace(
            prompt_ids=[1],
            response_ids=[2, 3],
            response_mask=[1, 1],
            response_logprobs=None,
            reward_score=None,
            num_turns=1,
            metrics={"generate_sequences": 0.5},
            extra_fields={},
        )
        return await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> Any:
        output.reward_score = kwargs["score"]
        return output


@pytest.fixture
def handle() -> Iterator[AgentLoopPatches]:
    """The worker is patched."""
    with AgentLoopPatches({}) as opened:
        opened.patch_module(SimpleNamespace(AgentLoopWorker=AgentLoopWorker))
        yield opened


def run(score: float | None = 0.5, agent_name: str = "toy", *, validate: bool = False) -> Any:
    """Run one rollout."""
    trajectory = {"step": 3, "sample_index": 5, "rollout_n": 0, "validate": validate}
    loop = AgentLoopWorker()._run_agent_loop(
        {}, trajectory, agent_name=agent_name, raw_prompt=ASKED, score=score
    )
    return asyncio.run(loop)


@pytest.mark.parametrize(
    ("score", "value", "status"), [(0.5, 0.5, "ok"), (None, None, "missing"), (float("nan"), None, "error")]
)
def test_a_rollout_is_recorded_after_its_reward(
    handle: AgentLoopPatches, score: float | None, value: float | None, status: str
) -> None:
    """
    A reward that the trainer computes later is missing, and one that is not a number is an error.
    """
    with mttp.configure("memory://") as session:
        run(score, validate=True)
        (episode,) = mttp.read(session)

    assert {} == session.stats.faults
    assert (value, status, "val") == (episode.return_, episode.reward.status, episode.split)
    assert "2 tokens" == episode.steps[0].action["content"]
    assert "2+2?" == episode.task
    assert {"generate_sequences": 0.5} == episode.metrics


def test_exceptions_of_the_library_are_its_own(handle: AgentLoopPatches) -> None:
    """
    Nothing is recorded of a rollout that fails.
    """
    with mttp.configure("memory://") as session:
        with pytest.raises(ValueError, match="no such loop"):
            run(agent_name="broken")

        assert 0 == len(mttp.read(session))


def test_a_worker_without_these_methods_is_named() -> None:
    """
    Until its module is imported, the module is named; then the methods.
    """
    handle = AgentLoopPatches({})
    handle.patch_library()

    assert {"verl.experimental.agent_loop.agent_loop": False} == handle.status()

    module = ModuleType("verl.experimental.agent_loop.agent_loop")
    module.__dict__["AgentLoopWorker"] = type("AgentLoopWorker", (), {})
    wrapt.notify_module_loaded(module)

    assert {"_run_agent_loop": False, "_agent_loop_postprocess": False} == handle.status()

    handle.detach()


def test_after_a_detach_nothing_is_recorded(handle: AgentLoopPatches) -> None:
    """
    The worker's methods are its own again.
    """
    handle.detach()
    with mttp.configure("memory://") as session:
        run()

        assert 0 == len(mttp.read(session))

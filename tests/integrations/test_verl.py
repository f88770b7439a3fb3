"""verl's worker of agent loops, without Ray, engine and GPU; skipped where verl is not installed."""

from __future__ import annotations

import asyncio
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

import mttp
from mttp.formats import verl as format_
from mttp.integrations import verl as integration

pytestmark = pytest.mark.filterwarnings("default")  # the library has warnings of its own
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    pytest.importorskip("verl")
    from verl.experimental.agent_loop import agent_loop as library

ASKED = [{"role": "user", "content": "2+2?"}]


class Loop:
    """An agent loop that always answers with two tokens, of which a tool wrote the first."""

    def __init__(self, **_: Any) -> None:
        """Take what the worker gives it."""

    async def run(self, sampling_params: dict[str, Any], **_: Any) -> Any:
        """Return the rollout; a temperature of 2 fails."""
        await asyncio.sleep(0)
        if sampling_params["temperature"] == 2:
            raise ValueError("too hot")
        return library.AgentLoopOutput(
            prompt_ids=[1, 2, 3],
            response_ids=[7, 8],
            response_mask=[0, 1],
            response_logprobs=[-0.25, -0.5],
            reward_score=0.75,
            num_turns=2,
            metrics=library.AgentLoopMetrics(generate_sequences=0.5),
            extra_fields={"reward_extra_info": {"acc": True, "pred": "4"}},
        )


class Tokenizer:
    """A tokenizer of letters."""

    pad_token_id = 0
    padding_side = "left"

    def pad(self, given: Any, *, max_length: int, **options: Any) -> Any:
        """Pad to a length."""
        ids = given["input_ids"]
        rest = [0] * (max_length - len(ids))
        padded = rest + ids if self.padding_side == "left" else ids + rest
        mask = (
            [0] * len(rest) + [1] * len(ids)
            if self.padding_side == "left"
            else [1] * len(ids) + [0] * len(rest)
        )
        found = {"input_ids": torch.tensor([padded])}
        return found | ({"attention_mask": torch.tensor([mask])} if options["return_attention_mask"] else {})

    def decode(self, ids: list[int], **_: Any) -> str:
        """Return letters."""
        return "".join(chr(96 + one) for one in ids)


def worker() -> Any:
    """A worker without its engine."""
    library._agent_loop_registry["toy"] = {"_target_": f"{__name__}.Loop"}
    made = library.AgentLoopWorker.__new__(library.AgentLoopWorker)
    made.config = SimpleNamespace(data={})
    made.llm_client = made.processor = made.hf_model_type = made.dataset_cls = None
    made.tools = []
    made.tokenizer = Tokenizer()
    made.rollout_config = SimpleNamespace(prompt_length=4, response_length=4)
    made.reward_loop_worker_handles = None
    made.teacher_server_manager = made.teacher_client = None
    made.distillation_enabled = False
    made._compute_teacher_logprobs = _nothing
    made._get_mm_processor_kwargs = lambda *_: None
    made._compute_position_ids = lambda *_: torch.zeros(1, 8)
    return made


async def _nothing(*_: Any, **__: Any) -> None:
    """Stand in for teachers, which are other servers."""


def run(temperature: float = 1.0, samples: int = 2) -> list[Any]:
    """Run a prompt's rollouts at once."""

    async def main() -> list[Any]:
        made = worker()
        return list(
            await asyncio.gather(
                *(
                    made._run_agent_loop(
                        {"temperature": temperature},
                        {"step": 3, "sample_index": 5, "rollout_n": number, "validate": False},
                        agent_name="toy",
                        raw_prompt=ASKED,
                    )
                    for number in range(samples)
                )
            )
        )

    return asyncio.run(main())


def test_each_rollout_is_an_episode_with_its_tokens() -> None:
    """
    Without padding; samples of a prompt at one step have one group.
    """
    with mttp.configure("memory://") as session, integration.attach_all(policy="tiny") as handle:
        assert {"_run_agent_loop": True, "_agent_loop_postprocess": True} == handle.status()

        run()
        first, second = mttp.read(session)
    (step,) = first.steps

    assert {} == session.stats.faults
    assert ASKED == step.observation
    assert {"role": "assistant", "content": "gh"} == step.action
    assert ([1, 2, 3], [7, 8], [0, 1], [-0.25, -0.5]) == tuple(
        list(getattr(step.tokens, name)) for name in ("prompt_ids", "ids", "masks", "logprobs")
    )
    assert (0.75, "train", 3, "tiny", "train/3/5") == (
        first.return_,
        first.split,
        first.policy_update_index,
        first.policy,
        first.group,
    )
    assert {"acc": 1.0, "generate_sequences": 0.5}.items() <= first.metrics.items()
    assert first.group == second.group
    assert first.duration is not None


def test_what_verl_gets_is_unchanged() -> None:
    """
    Tensors, rewards and fields are equal with recording and without.
    """
    bare = run()
    with mttp.configure("memory://"), integration.attach_all():
        recorded = run()

    for one, other in zip(bare, recorded, strict=True):
        assert one.reward_score == other.reward_score
        assert one.extra_fields == other.extra_fields
        assert torch.equal(one.response_ids, other.response_ids)
        assert torch.equal(one.response_logprobs, other.response_logprobs)


def test_exceptions_of_an_agent_loop_and_of_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    verl sees its own; mttp's are counted.
    """

    def broken(_: object) -> None:
        raise ValueError("broken")

    with mttp.configure("memory://") as session, integration.attach_all():
        with pytest.raises(ValueError, match="too hot"):
            run(temperature=2)
        monkeypatch.setattr(format_, "rollout", broken)

        assert 2 == len(run())

    assert {"integration_error": 2} == session.stats.faults

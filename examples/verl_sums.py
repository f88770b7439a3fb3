# mypy: disable-error-code="misc"
"""
Agent loops of verl, recorded: sums, in the worker of verl without its engine, Ray and a GPU.

    pip install 'mttp[verl,cli]'
    python examples/verl_sums.py
    mttp show runs/verl.jsonl

A loop that counts stands for the model; verl pads and scores its rollouts as it does in a training.
"""

from __future__ import annotations

import argparse
import asyncio
from types import SimpleNamespace
from typing import Any

OUT = "runs/verl.jsonl"
if __name__ == "__main__":  # before the imports, which take seconds
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=OUT, help=f"where to record; by default {OUT}")
    OUT = parser.parse_args().out

import torch
from verl.experimental.agent_loop import agent_loop

import mttp

PROMPT_LENGTH, RESPONSE_LENGTH = 24, 4


class Letters:
    """A tokenizer of characters, with the methods that the worker calls."""

    pad_token_id = 0
    padding_side = "left"

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return [ord(one) for one in text]

    def decode(self, ids: Any, **_: Any) -> str:
        """Return the text of tokens."""
        return "".join(chr(int(one)) for one in ids)

    def pad(self, given: Any, *, max_length: int, **options: Any) -> dict[str, Any]:
        """Pad to a length."""
        ids = list(given["input_ids"])
        rest = [self.pad_token_id] * (max_length - len(ids))
        is_left = self.padding_side == "left"
        mask = [0] * len(rest) + [1] * len(ids) if is_left else [1] * len(ids) + [0] * len(rest)
        found = {"input_ids": torch.tensor([rest + ids if is_left else ids + rest])}
        return found | ({"attention_mask": torch.tensor([mask])} if options["return_attention_mask"] else {})


class Sums:
    """An agent loop that answers the sum, and every other time one more."""

    def __init__(self, **_: Any) -> None:
        self.letters = Letters()

    async def run(self, sampling_params: dict[str, Any], **given: Any) -> Any:
        """Return a rollout; a temperature of 2 fails."""
        await asyncio.sleep(0)
        if sampling_params["temperature"] == 2:
            raise ValueError("too hot")
        asked = given["raw_prompt"][-1]["content"]
        right = sum(int(word) for word in asked.removesuffix("?").split("+"))
        answer = right + sampling_params["seed"] % 2
        ids = self.letters.encode(str(answer))
        return agent_loop.AgentLoopOutput(
            prompt_ids=self.letters.encode(asked),
            response_ids=ids,
            response_mask=[1] * len(ids),
            response_logprobs=[-0.25] * len(ids),
            reward_score=float(answer == right),
            num_turns=2,
            metrics=agent_loop.AgentLoopMetrics(generate_sequences=0.5),
            extra_fields={"reward_extra_info": {"acc": answer == right, "pred": str(answer)}},
        )


def worker() -> Any:
    """Return verl's worker, without what needs a model or other servers."""
    agent_loop._agent_loop_registry["sums"] = {"_target_": f"{__name__}.Sums"}
    made = agent_loop.AgentLoopWorker.__new__(agent_loop.AgentLoopWorker)
    made.config = SimpleNamespace(data={})
    made.llm_client = made.processor = made.hf_model_type = made.dataset_cls = None
    made.tools = []
    made.tokenizer = Letters()
    made.rollout_config = SimpleNamespace(prompt_length=PROMPT_LENGTH, response_length=RESPONSE_LENGTH)
    made.reward_loop_worker_handles = made.teacher_server_manager = made.teacher_client = None
    made.distillation_enabled = False
    made._compute_teacher_logprobs = _nothing
    made._get_mm_processor_kwargs = lambda *_: None
    made._compute_position_ids = lambda *_: torch.zeros(1, PROMPT_LENGTH + RESPONSE_LENGTH)
    return made


async def _nothing(*_: Any, **__: Any) -> None:
    """Stand in for teachers, which are other servers."""


async def rollouts(questions: list[str], *, step: int = 0, samples: int = 2, temperature: float = 1.0) -> Any:
    """Run the rollouts of one training step at once, and return what the trainer gets."""
    made = worker()
    jobs = [
        made._run_agent_loop(
            {"temperature": temperature, "seed": number},
            {"step": step, "sample_index": index, "rollout_n": number, "validate": False},
            agent_name="sums",
            raw_prompt=[{"role": "user", "content": question}],
        )
        for index, question in enumerate(questions)
        for number in range(samples)
    ]
    return list(await asyncio.gather(*jobs))


if __name__ == "__main__":
    with mttp.configure(f"file://{OUT}", run="verl"):
        mttp.instrument(policy="tiny")
        for step in range(2):
            asyncio.run(rollouts(["2+2?", "3+4?"], step=step))
    print(mttp.read(OUT))

# mypy: disable-error-code="misc, untyped-decorator"
"""
An environment of verifiers, recorded: three sums, a tool, two rewards and a scripted model.

    pip install 'mttp[verifiers,cli]'
    python examples/verifiers_sums.py
    mttp show runs/sums.jsonl

The harness is a loop in this process, so that neither a sandbox nor a model is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

OUT = "runs/sums.jsonl"
if __name__ == "__main__":  # before the imports, which take seconds
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=OUT, help=f"where to record; by default {OUT}")
    OUT = parser.parse_args().out

import httpx
import verifiers.v1 as vf

import mttp

sys.path.insert(0, str(Path(__file__).parent / "scripted"))
from scripted_model import model_server

__all__ = ["TinyHarness", "TinyTaskset"]

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        },
    },
}


class TinyData(vf.TaskData):
    """A sum and its answer."""

    answer: str


class TinyTask(vf.Task[TinyData]):
    """Asks for a sum."""

    @vf.reward(weight=0.8)
    async def correct(self, trace: vf.Trace) -> float:
        """Return 1 if the last reply has the answer; fails for the task without one."""
        if not self.data.answer:
            raise ValueError("the task has no answer")
        return float(self.data.answer in trace.last_reply)

    @vf.reward(weight=0.2)
    async def short(self, trace: vf.Trace) -> float:
        """Return the share of a limit that the last reply leaves."""
        return 1 - min(len(trace.last_reply), 100) / 100

    @vf.metric
    async def letters(self, trace: vf.Trace) -> float:
        """Return the length of the last reply."""
        return float(len(trace.last_reply))


class TinyTaskset(vf.Taskset[TinyTask]):
    """Three sums, of which the last has no answer."""

    def load(self) -> Any:
        """Yield the tasks."""
        for number, answer in enumerate(("2", "4", "")):
            prompt = f"What is {number + 1} + {number + 1}?"
            yield TinyTask(TinyData(idx=number, prompt=prompt, answer=answer), self.config.task)


class TinyHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model, adds the numbers that it wants added, and asks again."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    APPENDS_SYSTEM_PROMPT = True

    async def launch(self, ctx: Any, *args: Any, **options: Any) -> vf.ProgramResult:  # noqa: ARG002 - unused
        """Run the loop until the model calls no tool."""
        _, _, endpoint, secret, _, data = args[:6]
        messages: list[Any] = [{"role": "user", "content": data.prompt}]
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {secret}"}, timeout=30) as client:
            for _ in range(3):
                body: dict[str, Any] = {"model": ctx.model, "messages": messages, "tools": [TOOL]}
                answer = await client.post(f"{endpoint}/chat/completions", json=body)
                answer.raise_for_status()
                message = answer.json()["choices"][0]["message"]
                messages.append(message)
                calls = message.get("tool_calls") or []
                if not calls:
                    break
                messages += [{"role": "tool", "tool_call_id": call["id"], "content": "4"} for call in calls]
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def environment() -> Any:
    """Return the environment; verifiers finds the taskset and the harness in this module by its name."""
    from verifiers.v1.envs.single_agent import SingleAgentEnvConfig
    from verifiers.v1.utils.loaders import load_environment

    plugin = {"id": Path(__file__).stem}
    agent = {"runtime": {"type": "subprocess"}, "harness": plugin}
    return load_environment(SingleAgentEnvConfig.model_validate({"taskset": plugin, "agent": agent}))


async def rollouts(env: Any, base_url: str, *, model: str, samples: int, complete: Any = None) -> None:
    """Run all tasks at once; `complete` gets each episode."""
    import pydantic
    from verifiers.v1.clients import ClientConfig, ModelContext
    from verifiers.v1.types import SamplingConfig

    os.environ.setdefault("SUMS_API_KEY", "none")
    facts = {"type": "eval", "base_url": base_url, "api_key_var": "SUMS_API_KEY"}
    client: Any = pydantic.TypeAdapter(ClientConfig).validate_python(facts)
    context = ModelContext(client=client, model=model, sampling=SamplingConfig())
    slots = [slot for task in env.taskset for slot in env.slots(task, samples)]
    async with env.serving():
        await asyncio.gather(*(env.run_slot(slot, context, None, complete) for slot in slots))


if __name__ == "__main__":
    with mttp.configure(f"file://{OUT}", run="sums", kind="eval"), model_server() as server:
        env = environment()
        mttp.instrument(env)
        asyncio.run(rollouts(env, f"http://127.0.0.1:{server.server_port}/v1", model="tiny", samples=2))
    print(mttp.read(OUT))

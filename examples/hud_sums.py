# mypy: disable-error-code="misc, untyped-decorator"
"""
A task of HUD, recorded: sums, a tool, graders that are combined, and a scripted agent.

    pip install 'mttp[hud,cli]'
    python examples/hud_sums.py
    mttp show runs/hud.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

OUT = "runs/hud.jsonl"
if __name__ == "__main__":  # before the imports, which take seconds
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=OUT, help=f"where to record; by default {OUT}")
    OUT = parser.parse_args().out
    os.environ.setdefault("HUD_TELEMETRY_ENABLED", "false")  # uploads nothing
    os.environ.setdefault("HUD_TELEMETRY_LOCAL_DIR", "hud-spans")

from hud import Environment
from hud.agents.base import Agent
from hud.agents.types import AgentStep, Sample, ToolStep, Usage
from hud.eval import LocalRuntime, Taskset
from hud.graders import SubScore, combine, combine_any
from hud.types import MCPToolCall, MCPToolResult
from mcp.types import TextContent

import mttp

sums = Environment("sums")


@sums.template()
async def add(a: int, b: int) -> Any:
    """Ask for a sum, and grade the answer: three quarters for the number, one for its form."""
    answer = yield f"What is {a} + {b}?"
    text = str(answer)
    form = [
        SubScore(name="digits", value=float(text.isdigit())),
        SubScore(name="word", value=float(text.isalpha())),
    ]
    yield await combine(
        SubScore(name="exact", value=float(text == str(a + b)), weight=0.75, info={"right": a + b}),
        combine_any(0.25, form, name="form"),
    )


class Scripted(Agent):
    """Calls a tool, and always answers 4."""

    async def __call__(self, run: Any) -> None:
        """Record two turns and a tool call."""
        call = MCPToolCall(name="add", arguments={"a": 2, "b": 2}, id="call-1")
        sampled = Sample(prompt_token_ids=[1, 2, 3], output_token_ids=[4, 5], output_logprobs=[-0.5, -0.25])
        usage = Usage(prompt_tokens=3, completion_tokens=2, cost_usd=0.001)
        run.record(AgentStep(content="", tool_calls=[call], model="scripted", usage=usage, sample=sampled))
        run.record(ToolStep(call=call, result=MCPToolResult(content=[TextContent(type="text", text="4")])))
        run.record(AgentStep(content="4", done=True, finish_reason="stop", model="scripted"))
        run.trace.content = "4"
        run.trace.stop_reason = "done"


async def rollouts() -> Any:
    """Run two tasks twice, and return HUD's job."""
    tasks = Taskset("sums", [add(a=2, b=2), add(a=3, b=3)])
    return await tasks.run(Scripted(), runtime=LocalRuntime(sums), group=2)


if __name__ == "__main__":
    with mttp.configure(f"file://{OUT}", run="hud"):
        mttp.instrument()
        asyncio.run(rollouts())
    print(mttp.read(OUT))

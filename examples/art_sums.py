# mypy: disable-error-code="misc, untyped-decorator"
"""
Groups of ART, recorded: rollouts with a scripted model, ranked by RULER with a scripted judge.

    pip install 'mttp[art,cli]'
    python examples/art_sums.py
    mttp show runs/art.jsonl --episode best

Nothing is trained: that takes a GPU, and `backend.train` is recorded like `model.log`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

OUT = "runs/art.jsonl"
if __name__ == "__main__":  # before the imports, which take seconds
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--out", default=OUT, help=f"where to record; by default {OUT}")
    OUT = parser.parse_args().out

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else LiteLLM fetches prices
import art
import art.rewards
import openai

import mttp

sys.path.insert(0, str(Path(__file__).parent / "scripted"))
from scripted_model import model_server

TOOLS: list[Any] = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


async def rollout(client: Any, number: int, *, politely: bool) -> Any:
    """Return a trajectory in which the model calls a tool and then answers."""
    please = " Please." if politely else ""
    trajectory = art.Trajectory(
        messages_and_choices=[{"role": "user", "content": f"What is {number} + {number}?{please}"}],
        tools=TOOLS,
        metadata={"number": number, "politely": politely},
    )
    first = await client.chat.completions.create(model="tiny", messages=trajectory.messages(), tools=TOOLS)
    trajectory.messages_and_choices += [
        first.choices[0],
        {
            "role": "tool",
            "tool_call_id": first.choices[0].message.tool_calls[0].id,
            "content": str(2 * number),
        },
    ]
    last = await client.chat.completions.create(model="tiny", messages=trajectory.messages(), tools=TOOLS)
    trajectory.messages_and_choices.append(last.choices[0])
    trajectory.reward = float(str(2 * number) in (last.choices[0].message.content or ""))
    return trajectory.finish()


async def main(address: str) -> None:
    """Gather two groups, let RULER rank each, and log them."""
    client = openai.AsyncOpenAI(base_url=address, api_key="none")
    params: dict[str, object] = {"api_base": address, "api_key": "none"}

    async def ranked(group: Any) -> Any:
        return await art.rewards.ruler_score_group(group, "openai/tiny", extra_litellm_params=params)

    groups = await art.gather_trajectory_groups(
        (
            art.TrajectoryGroup(rollout(client, number, politely=politely) for politely in (False, True))
            for number in (1, 2)
        ),
        after_each=ranked,
    )
    await art.Model(name="tiny", project="sums", base_path="art").log(groups, split="train", step=1)


if __name__ == "__main__":
    with mttp.configure(f"file://{OUT}", run="art"), model_server() as server:
        mttp.instrument()
        asyncio.run(main(f"http://127.0.0.1:{server.server_port}/v1"))
    print(mttp.read(OUT))

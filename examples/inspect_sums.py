# mypy: disable-error-code="misc, untyped-decorator"
"""
A task of Inspect AI, recorded: two sums, a tool, two scorers and a scripted model.

    pip install 'mttp[inspect,cli]'
    python examples/inspect_sums.py
    mttp eval show runs/inspect.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

OUT = "runs/inspect.jsonl"
if __name__ == "__main__":  # before the imports, which take seconds
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=OUT, help=f"where to record; by default {OUT}")
    OUT = parser.parse_args().out

import tiktoken
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import Score, includes, mean, scorer
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

import mttp
from mttp.integrations.inspect_ai import InspectSuite

# The scripted model counts tokens by an encoding that tiktoken would fetch.
tiktoken.get_encoding = lambda *_: tiktoken.Encoding(
    "bytes", pat_str=r".|\s", mergeable_ranks={bytes([byte]): byte for byte in range(256)}, special_tokens={}
)


@tool
def add() -> Any:
    """Add numbers."""

    async def execute(a: int, b: int) -> int:
        """
        Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a + b

    return execute


@scorer(metrics={"polite": [mean()], "short": [mean()]})
def style() -> Any:
    """Score the style of an answer; fails for one that is too long."""

    async def score(state: Any, target: Any) -> Score:  # noqa: ARG001 - Inspect passes it
        text = state.output.completion
        if len(text) > 20:
            raise ValueError("the answer is too long")
        return Score(value={"polite": 0.5, "short": 1 - len(text) / 20}, explanation="by its length")

    return score


def sums() -> Task:
    """Return the task: the model's answer is right for the first sample only."""
    samples = [
        Sample(id=1, input="What is 2 + 2?", target="4", metadata={"level": "easy"}),
        Sample(id=2, input="What is 3 + 3?", target="6"),
    ]
    return Task(
        name="sums",
        dataset=samples,
        solver=[use_tools(add()), generate()],
        scorer=[includes(), style()],
        epochs=2,
    )


def scripted() -> Any:
    """Return a model that calls the tool first, and then always answers 4."""
    call = ModelOutput.for_tool_call("mockllm/model", "add", {"a": 2, "b": 2})
    answers = [ModelOutput.from_content("mockllm/model", "It is 4.") for _ in range(20)]
    return get_model("mockllm/model", custom_outputs=[call, *answers])


async def right(task: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of the right answer, by the task's own scorers."""
    return await suite.score(task, f"It is {task['target']}.")


if __name__ == "__main__":
    with mttp.configure(f"file://{OUT}", run="inspect", kind="eval"):
        mttp.instrument()
        eval(sums(), model=scripted(), display="none", log_dir="logs")
        suite = InspectSuite(sums())
        with mttp.evaluate("sums, answered right", tasks=suite.tasks) as run:
            asyncio.run(run.amap(right))
        print(run.summary())
    print(mttp.read(OUT))

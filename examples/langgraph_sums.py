# mypy: disable-error-code="misc, import-untyped"
"""
An agent of LangGraph, recorded by another package's instrumentation: a tool call and an answer in one step.

    pip install 'mttp[cli]' langchain langchain-openai openinference-instrumentation-langchain
    python examples/langgraph_sums.py
    mttp show runs/langgraph.jsonl --episode last

A scripted model on loopback stands for the server.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

OUT = "runs/langgraph.jsonl"
if __name__ == "__main__":  # before the imports, which take seconds
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=OUT, help=f"where to record; by default {OUT}")
    OUT = parser.parse_args().out

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor

sys.path.insert(0, str(Path(__file__).parent / "scripted"))
from scripted_model import model_server

import mttp


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def play(address: str) -> None:
    """Let the agent answer a question twice, as two episodes of one task."""
    agent = create_agent(ChatOpenAI(model="tiny", base_url=address, api_key="none"), [add])
    for attempt in range(2):
        with mttp.episode(env="sums", task="sums/1", attempt=attempt) as episode:
            asked = [{"role": "user", "content": "What is 2 + 2?"}]
            with episode.step() as step:
                step.observation(asked)
                answer = agent.invoke({"messages": asked})["messages"][-1].content
                step.action(answer)
            episode.reward(float("4" in answer), grader="exact")
            episode.end(terminated=True)


if __name__ == "__main__":
    with mttp.configure(f"file://{OUT}", run="langgraph"), model_server() as server:
        LangChainInstrumentor().instrument()  # after `configure`, for mttp's tracer provider
        play(f"http://127.0.0.1:{server.server_port}/v1")
    recording = mttp.read(OUT)
    print(recording)
    for call in recording[0].steps[0].calls:
        print(call.operation, call.name, call.result)

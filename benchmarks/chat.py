"""
The workload that stands for what people record: episodes of a chat with a tool, scored at the end.

An episode has 8 steps. A step observes two new messages of 500 characters each, acts with a text of 300
characters, and has 256 token ids and 256 log probabilities, as lists or as numpy arrays. Step 4 calls a tool.
The last step has a reward of three weighted components. 64 episodes are different; the seed is 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["ENV", "POLICY", "POOL", "STEPS", "TOKENS", "WEIGHTS", "Chat", "Step", "Tool", "chats", "facts"]

POOL, STEPS, TOKENS, VOCABULARY = 64, 8, 256, 150_000
ENV, POLICY = "tool-chat", "policy-7b"
WEIGHTS = {"correct": 0.7, "format": 0.2, "brevity": 0.1}


class Tool(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]
    id: str
    result: str


class Step(NamedTuple):
    """The content of a step."""

    messages: list[dict[str, str]]
    action: str
    ids: Any
    logprobs: Any
    tool: Tool | None
    scores: dict[str, float]
    """The components of the reward; empty for steps without a reward."""

    @property
    def reward(self) -> float:
        """The weighted sum of the components."""
        return sum(self.scores[name] * weight for name, weight in WEIGHTS.items())


class Chat(NamedTuple):
    """The content of an episode."""

    number: int
    steps: list[Step]

    @property
    def task(self) -> str:
        """The task's id."""
        return f"chat/{self.number}"


def chats(count: int = POOL, *, lists: bool) -> list[Chat]:
    """Return that many different episodes."""
    random = np.random.default_rng(0)
    words = ["".join(map(chr, random.integers(97, 123, size))) for size in random.integers(2, 11, 2_000)]

    def text(length: int) -> str:
        chosen = random.integers(0, len(words), length // 3)
        return " ".join(words[number] for number in chosen)[:length]

    def step(index: int) -> Step:
        ids = random.integers(0, VOCABULARY, TOKENS)
        logprobs = random.normal(-1, 1, TOKENS).astype(np.float32)
        return Step(
            messages=[{"role": "tool", "content": text(500)}, {"role": "user", "content": text(500)}],
            action=text(300),
            ids=ids.tolist() if lists else ids,
            logprobs=logprobs.tolist() if lists else logprobs,
            tool=Tool("search", {"query": text(40)}, "call-1", text(200)) if index == STEPS // 2 else None,
            scores=dict(zip(WEIGHTS, random.random(3).tolist(), strict=True)) if index == STEPS - 1 else {},
        )

    return [Chat(number, [step(index) for index in range(STEPS)]) for number in range(count)]


def facts(step: Step) -> tuple[Any, ...]:
    """Return the content of a step as plain data, to compare with what arrived."""
    return (
        step.messages,
        step.action,
        np.asarray(step.ids).tolist(),
        np.asarray(step.logprobs, np.float64).tolist(),
        step.tool,
        step.scores,
    )

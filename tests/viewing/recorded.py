"""A recording with everything that a page shows: chats, tools, tokens, groups, updates, hostile text."""

from __future__ import annotations

import math

import numpy as np

import mttp

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "\u202eabc\x1b[31mred\x00<!--"
)
"""Markup, a change of direction, an escape sequence and a null character."""
WORDS = ["The ", "answer ", "is ", "3", ".", "\n", "Really", "!"]


def pieces(ids: list[int]) -> list[str]:
    """Texts of token ids."""
    return [WORDS[id % len(WORDS)] for id in ids]


def record(path: str, groups: int = 10, shift: float = 0.0) -> None:
    """Record groups of four chats of two steps, and updates."""
    random = np.random.default_rng(3)
    with mttp.configure(f"file://{path}", run=f"run of {path}", config={"lr": 0.1 + shift}):
        for number in range(groups):
            with mttp.group(id=f"g{number}", task=f"train/{number}", normalization="mean_std") as group:
                for member in range(4):
                    _episode(number, member, group, random, shift)
            mttp.update(index=number, loss=1 / (1 + number), kl=0.01 * number, entropy=2 - 0.1 * number)


def _episode(number: int, member: int, group: object, random: np.random.Generator, shift: float) -> None:
    text = HOSTILE if number == 1 else ""
    facts = {"split": ["easy", "hard"][number % 2], "metadata": {"author": f"A{text}"}}
    with mttp.episode(
        env="desk", task=f"train/{number}", group=group, inputs={"answer": 3}, **facts
    ) as episode:
        chat = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"1+2+{number}? {text}"},
        ]
        for place in range(2):
            with episode.step() as step:
                step.observation([*chat])
                count = 40
                logprobs = -random.exponential(0.5, count)
                step.tokens(
                    random.integers(0, 8, count),
                    prompt_ids=random.integers(0, 8, 6),
                    logprobs=logprobs,
                    ref_logprobs=logprobs + random.normal(0, 0.1, count),
                    entropies=random.random(count),
                    masks=(random.random(count) > 0.2).astype(int),
                )
                if place == 0:
                    call = {"id": "c", "function": {"name": "add", "arguments": f'{{"a": {member}}}'}}
                    answer = {
                        "role": "assistant",
                        "content": None,
                        "reasoning_content": "hm",
                        "tool_calls": [call],
                    }
                    with step.tool_call("add", arguments={"a": member}) as tool:
                        tool.result(str(member))
                    chat += [answer, {"role": "tool", "name": "add", "content": str(member)}]
                else:
                    answer = {
                        "role": "assistant",
                        "content": f"It is {member}. {text}" + "x" * 3000 * (number == 2),
                    }
                step.action(answer)
        right = float(random.random() < 0.3 + 0.05 * number + shift)
        episode.reward(
            math.nan if (number, member) == (4, 0) else right - 0.1 * member,
            components={"right": right, "length": -0.1 * member},
            weights={"right": 1.0, "length": 1.0},
            grader="exact",
            explanation=f"expected 3 {text}",
        )
        episode.end(outcome="success" if right else "failure")
    group.add(episode)  # type: ignore[attr-defined]


def poles(path: str, episodes: int = 3, steps: int = 40) -> None:
    """Record episodes with arrays, discrete actions and frames."""
    random = np.random.default_rng(4)
    with mttp.configure(f"file://{path}", run="poles"):
        for _ in range(episodes):
            with mttp.episode(env="CartPole-v1", seed=1) as episode:
                for place in range(steps):
                    with episode.step() as step:
                        frame = random.integers(0, 255, (32, 48, 3)).astype(np.uint8)
                        step.observation(frame if place == 0 else random.normal(size=4))
                        step.action(int(random.integers(2)))
                        step.reward(1.0)


def seeds(folder: str, number: int = 2, episodes: int = 12) -> None:
    """Record runs of two settings in two environments, with groups, updates and versions of the policy."""
    for setting, env, gain in (("slow", "desk", 1.0), ("fast", "lab", 10.0)):
        for seed in range(number):
            with mttp.configure(f"file://{folder}/{setting}-{seed}.jsonl", run=setting, seed=seed):
                for place in range(episodes // 4):
                    with mttp.group(id=f"g{place}", task=f"t{place}") as group:
                        for member in range(4):
                            with mttp.episode(env=env, task=f"t{place}", group=group) as episode:
                                with episode.step() as step:
                                    step.observation([{"role": "user", "content": f"{place}?"}])
                                    step.action({"role": "assistant", "content": f"{member}"})
                                episode.reward(gain * (place + member % 2 + 0.1 * seed))
                                episode.end(terminated=True, outcome="success" if member else "failure")
                            group.add(episode)
                    mttp.update(
                        index=place,
                        loss=1 / (1 + place),
                        kl=0.1 * place,
                        groups=[group],
                        discarded={"stale": 2},
                        policy_version_before=f"v{place}",
                        policy_version_after=f"v{place + 1}",
                    )

"""
What recording costs a CartPole-v1 environment, whose own step takes microseconds.

The same actions are played for 30,000 steps (3,000 in a quick run), episode after episode, by
`gymnasium.make("CartPole-v1")` bare and instrumented: seeded random ones, whose episodes last some 22
steps, and those of a rule that balances, whose episodes last 500. Where each step is a span, which is
measured by `--only cartpole`, a sixth of them is played. Recording goes to a file at default settings,
which packs the steps. As many steps are played before, so that what a session does once, and whatever
helps it, is over and there. Of the figures, `wall_us` is per step with the final flush inside, `caller_us`
CPU time of the playing thread without it, and `total_us` CPU time of everything. What was recorded is read
back, and must be what was played.
"""

from __future__ import annotations

import json
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

from goals import Goal, share
from harness import main
from questions import Case, Measure, Question
from usage import cpu_seconds, peak_mb

FIGURES = {
    "wall_us": "µs per step, flush included",
    "caller_us": "CPU µs of the caller",
    "total_us": "CPU µs of everything",
    "peak_mb": "peak memory in MB",
}


STEPS, FEW = 30_000, 5_000
"""Steps that are played, and where they take long."""


def _play(env: Any, steps: int, balances: bool) -> list[float]:
    """Play so many steps; what each episode was paid."""
    import numpy as np

    actions = np.random.default_rng(0).integers(0, 2, steps).tolist()
    seen, _ = env.reset(seed=7)
    returns, paid = [], 0.0
    for action in actions:
        if balances:
            place, speed, angle, turn = seen.tolist()
            action = int(angle + 0.3 * turn + 0.02 * place + 0.05 * speed > 0)
        seen, reward, terminated, truncated, _ = env.step(action)
        paid += float(reward)
        if terminated or truncated:
            returns.append(paid)
            paid = 0.0
            seen, _ = env.reset()
    env.close()
    return returns


def played(options: dict[str, Any] | None, *, balances: bool = False, most: int = STEPS) -> Measure:
    """A measure of playing so many steps; recorded with these options, or bare."""

    def measure(seconds: float) -> tuple[bytes, dict[str, float]]:
        import gymnasium

        steps, shared = (most, FEW) if seconds > 0.2 else (most // 10, FEW // 10)
        path, flush = Path("own.jsonl").absolute(), None
        if options is not None:
            import mttp

            flush = mttp.configure(f"file://{path}", **options).flush
        _play(_made(gymnasium, flush is not None), steps, balances)
        assert flush is None or flush()
        env = _made(gymnasium, flush is not None)
        total, wall, caller = -cpu_seconds(), -time.perf_counter(), -time.thread_time()
        returns = _play(env, steps, balances)
        caller += time.thread_time()
        if flush is not None:
            assert flush()
        wall, total, peak = wall + time.perf_counter(), total + cpu_seconds(), peak_mb()
        if flush is not None:
            _check(path, returns)
        each = 1e6 / steps
        figures = {"wall_us": wall * each, "caller_us": caller * each, "total_us": total * each}
        return repr(_first(returns, shared)).encode(), {**figures, "peak_mb": peak}

    return measure


def _first(returns: list[float], steps: int) -> list[float]:
    """The episodes that were over within so many steps, each of which pays one."""
    return [paid for paid, so_far in zip(returns, accumulate(returns), strict=True) if so_far <= steps]


def _made(gymnasium: Any, recorded: bool) -> Any:
    env = gymnasium.make("CartPole-v1")
    if recorded:
        import mttp

        mttp.instrument(env)
    return env


def _check(path: Path, returns: list[float]) -> None:
    """What the file says of the last episodes that were over, by itself: to read all steps takes seconds."""
    over = []
    for line in path.read_bytes().splitlines():
        for block in json.loads(line)["resourceSpans"]:
            for scoped in block["scopeSpans"]:
                over += filter(None, map(_ended, scoped["spans"]))
    found = [paid for _, paid in sorted(over)]
    assert found[-len(returns) :] == returns, "what was recorded is not what was played"


def _ended(span: dict[str, Any]) -> tuple[int, float] | None:
    """When an episode was over, and what it was paid; None for other spans."""
    said = {each["key"]: each["value"] for each in span["attributes"]}
    ends = [said.get(f"mttp.episode.{name}", {}).get("boolValue") for name in ("terminated", "truncated")]
    if "parentSpanId" in span or not any(ends):
        return None
    return int(span["endTimeUnixNano"]), float(said["mttp.episode.return"]["doubleValue"])


def _has_no_packing() -> str:
    """Why packed steps can't be measured."""
    import inspect

    import mttp

    known = "steps" in inspect.signature(mttp.configure).parameters
    return "" if known else "mttp.configure takes no steps="


QUESTIONS = {
    "cartpole": Question(
        "a step of CartPole-v1",
        FIGURES,
        {
            "bare": Case(played(None)),
            "mttp, spans": Case(played({"steps": "spans"}, most=FEW), aside=True, absent=_has_no_packing),
            "mttp, packed": Case(played({})),
        },
        [
            Goal(
                "12",
                "CartPole steps with packed recording over bare, flush included",
                share("mttp, packed", "bare", "wall_us"),
                2,
                1.3,
            )
        ],
        own="bare",
    ),
    "balanced": Question(
        "a step of CartPole-v1 in episodes of 500",
        FIGURES,
        {
            "bare": Case(played(None, balances=True)),
            "mttp, packed": Case(played({}, balances=True)),
        },
        [
            Goal(
                "12",
                "the same in episodes of 500 steps",
                share("mttp, packed", "bare", "wall_us"),
                2,
                1.3,
            )
        ],
        own="bare",
    ),
}

if __name__ == "__main__":
    main(QUESTIONS)

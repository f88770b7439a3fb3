"""
What scoring by a reward spec costs above calling the functions that it names.

Both score the same 200 completions by the four graders of `examples/specs/gsm8k.yaml`, and add up the values
by their weights: `functions` as a reward function by hand does it, `mttp` by `spec.score`, `batch` by
`spec.score_batch`, and `recorded` by `spec.score` and `ep.reward` in an episode of its own, kept in memory.
The sums must be the same. A single call of a worker stands for `isolation: process`, whose cost is the way
there and back.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from goals import Goal, figure, share
from harness import main
from questions import Case, Question, worked

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "specs" / "gsm8k.yaml"
SAMPLES = 200
FIGURES = {"cpu_us": "CPU µs per sample", "wall_us": "µs per sample", "peak_mb": "peak memory in MB"}


def samples() -> list[dict[str, str]]:
    """Right, wrong, unlaid and abusive answers by turns."""
    answers = (
        "<think>5+3</think><answer>8</answer>",
        "<think>5+3</think><answer>9</answer>",
        "1 2 3 4 5 6 7 8",
        "<tool>1</tool>" * 4,
    )
    return [{"completion": answers[number % len(answers)], "answer": "8"} for number in range(SAMPLES)]


def told(values: Sequence[float]) -> bytes:
    """What was paid in all."""
    return json.dumps(math.fsum(values)).encode()


def functions() -> Callable[[], Sequence[float]]:
    """By hand: a check that gates, and a weighted sum."""
    import mttp

    plan = mttp.RewardSpec.load(EXAMPLE).plan
    right, laid_out, language, clean = [component.function for component in plan.components]

    def score(completion: str, answer: str) -> float:
        if not clean(completion=completion):
            return 0.0
        values = (right(completion=completion, answer=answer), laid_out(completion=completion))
        return math.fsum((0.5 * values[0], 0.3 * values[1], 0.2 * language(completion=completion)))

    given = samples()
    return lambda: [score(**sample) for sample in given]


def one_by_one() -> Callable[[], Sequence[float]]:
    """By the spec, sample by sample."""
    import mttp

    spec, given = mttp.RewardSpec.load(EXAMPLE), samples()
    return lambda: [spec.score(sample).value for sample in given]


def at_once() -> Callable[[], Sequence[float]]:
    """By the spec, in one call."""
    import mttp

    spec, given = mttp.RewardSpec.load(EXAMPLE), samples()
    return lambda: [result.value for result in spec.score_batch(given)]


def recorded() -> Callable[[], Sequence[float]]:
    """By the spec, each in an episode that is paid, in a session that keeps few."""
    import mttp

    spec, given = mttp.RewardSpec.load(EXAMPLE), samples()
    mttp.configure("memory://?max_episodes=100")

    def pay(sample: dict[str, Any]) -> float:
        with mttp.episode() as episode:
            result = spec.score(sample)
            episode.reward(result)
        return result.value

    return lambda: [pay(sample) for sample in given]


def isolated(component: str) -> Callable[[], Callable[[], Sequence[float]]]:
    """One component that does next to nothing, here or in a worker."""

    def prepare() -> Callable[[], Sequence[float]]:
        import mttp

        folder = Path(tempfile.mkdtemp())
        (folder / "graders.py").write_text("def it(completion):\n    return 1.0\n")
        use = f'use: "graders:it", isolation: {component}'
        text = (
            f"mttp: reward-spec/1\nname: one\nversion: 1.0.0\ncomponents: [{{name: it, kind: rubric, {use}}}]"
        )
        (folder / "one.yaml").write_text(text)
        spec, given = mttp.RewardSpec.load(folder / "one.yaml"), samples()
        spec.score(given[0])
        return lambda: [spec.score(sample).value for sample in given]

    return prepare


def above(case: str) -> Callable[[Any], float]:
    """What a case costs above the bare functions."""
    return lambda get: get(case, "cpu_us") - get("functions", "cpu_us")


QUESTIONS = {
    "spec": Question(
        "scoring by a spec, beside the bare functions",
        FIGURES,
        {
            "functions": Case(worked(functions, told, SAMPLES)),
            "mttp": Case(worked(one_by_one, told, SAMPLES)),
            "batch": Case(worked(at_once, told, SAMPLES)),
            "recorded": Case(worked(recorded, told, SAMPLES)),
        },
        [
            Goal(
                "13",
                "CPU time of scoring by a spec of four components above its functions",
                above("mttp"),
                unit="µs",
            ),
            Goal("13", "the same as a share of the bare functions", share("mttp", "functions", "cpu_us")),
            Goal("13", "the same, recorded in an episode each", above("recorded"), unit="µs"),
        ],
        rounds=3,
    ),
    "isolation": Question(
        "a call of a component in a worker, beside one here",
        {"wall_us": "µs per call", "cpu_us": "CPU µs per call", "peak_mb": "peak memory in MB"},
        {
            "here": Case(worked(isolated("none"), told, SAMPLES)),
            "mttp": Case(worked(isolated("process"), told, SAMPLES)),
        },
        [Goal("13", "a call in a worker", figure("mttp", "wall_us"), unit="µs")],
        rounds=3,
    ),
}

if __name__ == "__main__":
    main(QUESTIONS)

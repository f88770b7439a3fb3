"""Evaluate a model on 50 problems with 3 samples each, gate it by rules, and find errors of a grader.

The counts are those of a published evaluation on GSM8K: 57 of 150 answers are right, 22 of 50 first samples,
and 29 problems have at least one right answer; one answer has the requested format, and all are in English.
The texts of problems and answers are invented to give these counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import mttp
from mttp.model.estimates import pass_estimates

SPECS = Path(__file__).resolve().parent / "specs"
PROBLEMS, SAMPLES = 50, 3

RIGHT = [(3, True)] * 8 + [(2, True)] * 12 + [(1, True)] * 2 + [(1, False)] * 7
"""For each solved problem: the number of right answers, and whether the first sample is right."""


def samples() -> Iterator[tuple[int, int, str, str]]:
    """Yield problem, sample, completion and right answer."""
    for problem in range(PROBLEMS):
        count, first = RIGHT[problem] if problem < len(RIGHT) else (0, False)
        right = set(range(count)) if first else {SAMPLES - 1} if count else set()
        answer = str(100 + problem)
        for sample in range(SAMPLES):
            text = answer if sample in right else str(7 + sample)
            has_format = problem == sample == 0
            yield problem, sample, f"<answer>{text}</answer>" if has_format else f"It is {text}", answer


def record(path: str) -> None:
    """Record one episode per sample, scored by the spec."""
    spec = mttp.RewardSpec.load(SPECS / "gsm8k.yaml")
    with mttp.configure(f"file://{path}", run="gsm8k", kind="eval"):
        for problem, sample, completion, answer in samples():
            inputs = {"completion": completion, "answer": answer}
            with mttp.episode(
                env="gsm8k", task=f"problem-{problem:02}", attempt=sample, inputs=inputs
            ) as episode:
                with episode.step() as step:
                    step.action(completion)
                result = spec.score(inputs)
                episode.reward(result)
                episode.end(outcome="success" if result.verdict == "pass" else "failure")


def report(path: str) -> None:
    """Print the means of the components, pass@k, and the share of right first samples."""
    episodes = mttp.read(path).episodes
    for name in ("math", "format", "language"):
        mean = sum(one.reward.components[name] for one in episodes) / len(episodes)
        print(f"{name:9} {mean:.3f}")
    print(f"{'combined':9} {sum(one.reward.value or 0.0 for one in episodes) / len(episodes):.3f}")
    tasks: dict[str | None, list[bool]] = {}
    for one in episodes:
        tasks.setdefault(one.task, []).append(one.outcome == "success")
    first = sum(passed[0] for passed in tasks.values()) / len(tasks)
    for estimate in pass_estimates([(len(passed), sum(passed)) for passed in tasks.values()], (1, 3)):
        print(f"pass@{estimate.k}    {estimate.pass_at_k:.1%}")
    print(f"first sample only: {first:.1%}, which is not pass@1")


def decide(path: str) -> None:
    """Print the verdict and the evidence of each promotion rule."""
    found = mttp.gate(path, rules=SPECS / "promotion.yaml")
    print(f"gate: {found.verdict}")
    for rule in found.rules:
        print(f"  {rule.verdict:12}  {rule.name}")
        print(f"                {rule.evidence.partition(';')[0]}")


def rescored(path: str) -> None:
    """Score a question without an answer: the published grader treats two texts without a number as equal."""
    inputs = {"completion": "I do not know", "answer": "n/a"}
    for name in ("gsm8k.yaml", "gsm8k-next.yaml"):
        spec = mttp.RewardSpec.load(SPECS / name)
        result = spec.score(inputs)
        math, (completion, answer) = result.components["math"].value, inputs.values()
        print(f"{spec.name} {spec.version} gives {math:.0f} for {completion!r}, expected {answer!r}")
    found = mttp.rescore(path, spec=SPECS / "gsm8k-next.yaml")
    print(f"the corrected spec flips {len(found.flips)} of {len(found.changes)} recorded verdicts")


def main(arguments: Sequence[str] | None = None) -> None:
    """Record, report, and decide."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", default="runs/gsm8k.jsonl", help="the file of the episodes")
    options = parser.parse_args(arguments)
    Path(options.out).unlink(missing_ok=True)
    record(options.out)
    report(options.out)
    decide(options.out)
    rescored(options.out)


if __name__ == "__main__":
    main()

"""Score answers with the reward specs in `specs/`, and record rewards and grades with mttp."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mttp

SPECS = Path(__file__).resolve().parent / "specs"

ANSWERS = (
    "<think>5+3</think><answer>8</answer>",
    "<think>5+3</think><answer>9</answer>",
    "1 2 3 4 5 6 7 8",
    "<tool>5</tool><tool>3</tool><tool>5+3</tool><tool>8</tool><answer>8</answer>",
)
REASONS = (
    "Because air scatters blue light most, because it is short-waved.",
    "The sky is, as many have remarked, blue.",
    " ",
)
SHEET: dict[str, Any] = {
    "answer": "The total is in B3.",
    "cells": {"B1": 40, "B2": 60, "B3": 100, "C3": "=SUM(C1:C2)", "D1": 71000},
    "before": {"B1": 40, "B2": 60, "B3": None, "C3": "=SUM(C1:C2)", "D1": 71000},
    "expected": {"B3": 100},
    "formulas": ["C3"],
    "secrets": ["71000"],
}


def arithmetic() -> None:
    """Record one episode per answer, scored inside the episode."""
    spec = mttp.RewardSpec.load(SPECS / "gsm8k.yaml")
    for answer in ANSWERS:
        inputs = {"completion": answer, "answer": "8"}
        with mttp.episode(env="gsm8k", task="5+3", inputs=inputs) as episode:
            with episode.step() as step:
                step.action(answer)
            result = spec.score(inputs)
            episode.reward(result)
            episode.end(outcome="success" if result.verdict == "pass" else "failure")
        print(f"gsm8k        {result.value:5.2f}  {result.verdict}  {answer[:48]!r}")


def spreadsheet() -> None:
    """Record two episodes of one task; the second answer leaks a salary."""
    spec = mttp.RewardSpec.load(SPECS / "spreadsheet.yaml")
    for answer in (SHEET["answer"], "The total is 100, and Ann earns 71000."):
        with mttp.episode(env="spreadsheet", task="totals") as episode:
            result = spec.score(SHEET, answer=answer)
            episode.reward(result)
        failed = ", ".join(result.failed_checks) or "-"
        print(f"spreadsheet  {result.value:5.2f}  {result.verdict}  failed checks: {failed}")


def taste() -> None:
    """Record a group of answers that a judge compares with each other."""
    spec = mttp.RewardSpec.load(SPECS / "taste.yaml")
    question = "Why is the sky blue?"
    ranking = spec.rank([{"question": question, "answer": answer} for answer in REASONS], seed=0)
    for answer, result in zip(REASONS, ranking.results, strict=True):
        with mttp.episode(env="taste", task="sky", group="sky-0") as episode:
            episode.reward(result)
        print(f"taste        {result.value:5.2f}  {answer!r}")


def main(argv: Sequence[str] | None = None) -> None:
    """Score everything and record it in a file."""
    parser = argparse.ArgumentParser(description="Score answers with reward specs, and record the rewards.")
    parser.add_argument("--out", default="runs/graded.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)
    with mttp.configure(transport=f"file://{args.out}", run="graded"):
        arithmetic()
        spreadsheet()
        taste()


if __name__ == "__main__":
    main()

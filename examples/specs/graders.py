"""Graders for arithmetic problems: correctness, format and language of an answer."""

from __future__ import annotations

import re

import mttp

_LAYOUT = re.compile(r"\s*<think>.+?</think>\s*<answer>(.+?)</answer>\s*", re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_MOST_CALLS = 3


def _number(text: str) -> float | None:
    """Return the last number in a text."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


@mttp.rewards.verifier
def math_reward(completion: str, answer: str) -> bool:
    """Whether the last number of the answer is the expected one."""
    laid_out = _LAYOUT.fullmatch(completion)
    return _number(laid_out[1] if laid_out else completion) == _number(answer)


@mttp.rewards.rubric
def format_reward(completion: str) -> float:
    """1 for a think block and an answer block, 0.5 for an answer block only."""
    if _LAYOUT.fullmatch(completion):
        return 1.0
    return 0.5 if "<answer>" in completion and "</answer>" in completion else 0.0


@mttp.rewards.rubric
def language_reward(completion: str) -> float:
    """The share of ASCII letters among the letters, 1 without letters."""
    letters = [letter for letter in completion if letter.isalpha()]
    return sum(letter.isascii() for letter in letters) / len(letters) if letters else 1.0


@mttp.rewards.check
def no_tool_abuse(completion: str) -> bool:
    """Whether the calculator was called at most three times."""
    return completion.count("<tool>") <= _MOST_CALLS


@mttp.rewards.verifier
def math_reward_strict(completion: str, answer: str) -> bool:
    """Whether the last number of the answer is the expected one; without a number it is wrong."""
    laid_out = _LAYOUT.fullmatch(completion)
    given, expected = _number(laid_out[1] if laid_out else completion), _number(answer)
    return given is not None and given == expected

"""Graders of grade-school arithmetic: is the answer right, is it laid out as asked, is it in English."""

from __future__ import annotations

import re

import mttp

_LAYOUT = re.compile(r"\s*<think>.+?</think>\s*<answer>(.+?)</answer>\s*", re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_MOST_CALLS = 3


def _number(text: str) -> float | None:
    """The last number of a text."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


@mttp.rewards.verifier
def math_reward(completion: str, answer: str) -> bool:
    """Whether the answer is the number that was asked for."""
    laid_out = _LAYOUT.fullmatch(completion)
    return _number(laid_out[1] if laid_out else completion) == _number(answer)


@mttp.rewards.rubric
def format_reward(completion: str) -> float:
    """1 for thoughts and then an answer, half for an answer alone."""
    if _LAYOUT.fullmatch(completion):
        return 1.0
    return 0.5 if "<answer>" in completion and "</answer>" in completion else 0.0


@mttp.rewards.rubric
def language_reward(completion: str) -> float:
    """The share of letters that are Latin, 1 where there are no letters."""
    letters = [letter for letter in completion if letter.isalpha()]
    return sum(letter.isascii() for letter in letters) / len(letters) if letters else 1.0


@mttp.rewards.check
def no_tool_abuse(completion: str) -> bool:
    """Whether the calculator was called a reasonable number of times."""
    return completion.count("<tool>") <= _MOST_CALLS


@mttp.rewards.verifier
def math_reward_strict(completion: str, answer: str) -> bool:
    """Whether the answer is the number that was asked for; without a number on both sides it is not."""
    laid_out = _LAYOUT.fullmatch(completion)
    given, asked = _number(laid_out[1] if laid_out else completion), _number(answer)
    return given is not None and given == asked

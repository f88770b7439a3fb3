"""A judge that compares a group's answers; it is scripted, in place of a model."""

from __future__ import annotations

from typing import Any

import mttp

_PROMPT = "Rank these answers from best to worst. A good answer is short, and says why."


@mttp.rewards.judge(relative=True)
def compared(answers: list[str]) -> dict[str, Any]:
    """Each answer's score from 0 to 1 within the group, with the judge's model and prompt."""
    qualities = [("because" in answer) - len(answer) / 1000 for answer in answers]
    ranked = sorted(set(qualities))
    scores = [ranked.index(quality) / max(len(ranked) - 1, 1) for quality in qualities]
    return {"scores": scores, "model": "scripted-1", "prompt": _PROMPT}


@mttp.rewards.check
def says_something(answer: str) -> bool:
    """Whether the answer is not empty."""
    return bool(answer.strip())

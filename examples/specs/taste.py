"""A judge that compares a group's answers; it is scripted, where a real one would ask a model."""

from __future__ import annotations

from typing import Any

import mttp

_PROMPT = "Rank these answers from best to worst. A good answer is short, and says why."


@mttp.rewards.judge(relative=True)
def compared(answers: list[str]) -> dict[str, Any]:
    """Each answer's score from 0 to 1 within the group, and who judged by which prompt."""
    worth = [("because" in answer) - len(answer) / 1000 for answer in answers]
    places = sorted(set(worth))
    scores = [places.index(one) / max(len(places) - 1, 1) for one in worth]
    return {"scores": scores, "model": "scripted-1", "prompt": _PROMPT}


@mttp.rewards.check
def says_something(answer: str) -> bool:
    """Whether there is an answer at all."""
    return bool(answer.strip())

"""RULER with the judge at `api_base`."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import pydantic

import art


class TrajectoryScore(pydantic.BaseModel):
    """The score of one trajectory."""

    trajectory_id: str
    explanation: str
    score: float


async def ruler(
    message_lists: list[Any],
    judge_model: str = "openai/o3",
    extra_litellm_params: Any = None,
    rubric: str = "default",
    tools: Any = None,
) -> list[TrajectoryScore]:
    """Ask the judge for the scores of a group."""
    asked = rubric + "".join(f"<trajectory id={one}>" for one in range(len(message_lists)))
    body = {
        "model": judge_model,
        "messages": [{"role": "user", "content": asked}],
        "response_format": {"tools": tools},
    }
    request = urllib.request.Request(
        f"{extra_litellm_params['api_base']}/chat/completions", json.dumps(body).encode()
    )
    answer = await asyncio.to_thread(lambda: json.load(urllib.request.urlopen(request)))
    content = json.loads(answer["choices"][0]["message"]["content"])
    return [TrajectoryScore(**one) for one in content["scores"]]


async def ruler_score_group(group: Any, *args: Any, swallow_exceptions: bool = False, **kwargs: Any) -> Any:
    """Return a copy of the group with RULER's rewards; None if the judge fails."""
    copies = [one.model_copy(deep=True) for one in group.trajectories]
    try:
        scores = await ruler([one.messages() for one in copies], *args, **kwargs)
    except Exception:
        if swallow_exceptions:
            return None
        raise
    for one, score in zip(copies, scores, strict=True):
        one.metrics |= {"independent_reward": one.reward, "ruler_score": score.score}
        one.reward = score.score
        one.logs.append(f"RULER explanation: {score.explanation}")
    return art.TrajectoryGroup(copies)

"""The values: runs, episodes, agents, steps, tokens, calls, rewards, grades, groups, updates, evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.model.calls import Call
    from mttp.model.episodes import Agent, Annotation, Episode, Group, Run, Step, Tokens, Update
    from mttp.model.evaluations import Evaluation, TaskResult
    from mttp.model.scorings import Grade, Reward, Spec

__all__ = [
    "Agent",
    "Annotation",
    "Call",
    "Episode",
    "Evaluation",
    "Grade",
    "Group",
    "Reward",
    "Run",
    "Spec",
    "Step",
    "TaskResult",
    "Tokens",
    "Update",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "Agent": "episodes",
        "Annotation": "episodes",
        "Call": "calls",
        "Episode": "episodes",
        "Evaluation": "evaluations",
        "Grade": "scorings",
        "Group": "episodes",
        "Reward": "scorings",
        "Run": "episodes",
        "Spec": "scorings",
        "Step": "episodes",
        "TaskResult": "evaluations",
        "Tokens": "episodes",
        "Update": "episodes",
    },
)

"""The columns of the tables of a recording, and their types: the fields of values, and what they lack."""

from __future__ import annotations

from mttp.model.declarations import columns
from mttp.model.episodes import Agent, Annotation, Episode, Grade, Group, Reward, Spec, Step, Tokens, Update
from mttp.model.evaluations import Evaluation, TaskResult

__all__ = [
    "AGENTS",
    "ANNOTATIONS",
    "COMPONENTS",
    "EPISODES",
    "EPISODE_KEYS",
    "EVALS",
    "EVALUATION_FIELDS",
    "GRADES",
    "GROUPS",
    "PREFERENCES",
    "REWARDS",
    "SCORING_FIELDS",
    "STEPS",
    "TOKENS",
    "UPDATES",
]


_REWARD = {"reward": "double", "reward_status": "string"}
_SPEC = {f"spec_{name}": type_ for name, type_ in columns(Spec).items()}

EPISODES = {
    **columns(Episode),
    **_REWARD,
    "reward_components": "map<string, double>",
    "duration": "double",
    "scores": "map<string, double>",
}
"""Columns of `episodes` and their types; the `reward` columns are from the episode's `reward`."""

EPISODE_KEYS = {"trace_id": "string", "run_id": "string"}
"""Columns that identify the episode of a row."""
_STEP_KEYS = {**EPISODE_KEYS, "step_index": "int64", "agent": "string"}
_SCORING_KEYS = {**_STEP_KEYS, "position": "int64"}

AGENTS = {**EPISODE_KEYS, **columns(Agent), **_REWARD}
"""Columns of `agents` and their types; `reward` and `reward_status` are from the last scoring."""

STEPS = {**EPISODE_KEYS, **columns(Step), "scores": "map<string, double>"}
"""Columns of `steps` and their types."""

REWARDS = {**_SCORING_KEYS, **columns(Reward), **_SPEC}
"""Columns of `rewards` and their types; `step_index` is null for a scoring of the whole episode or agent."""

COMPONENTS = {
    **_SCORING_KEYS,
    "component": "string",
    "value": "double",
    "weight": "double",
    "status": "string",
    "error_type": "string",
    "spec_name": "string",
    "spec_version": "string",
}
"""Columns of `components` and their types."""

GRADES = {**_SCORING_KEYS, "part_of": "string", **columns(Grade)}
"""Columns of `grades` and their types; `part_of` is the component that includes the grade."""

_PARENT = {"parent_step": "int64", "parent_length": "int64"}
TOKENS = {
    **_STEP_KEYS,
    **{name: "list<int64>" if name in Tokens.INTEGER_ARRAYS else "list<double>" for name in Tokens.ARRAYS},
    **{name: type_ for name, type_ in columns(Tokens).items() if name != "parent"},
    **_PARENT,
}
"""Columns of `tokens` and their types."""

GROUPS = columns(Group)
"""Columns of `groups` and their types."""

UPDATES = columns(Update)
"""Columns of `updates` and their types."""

SCORING_FIELDS = ("status", "raw", "components", "label", "grader", "grader_kind", "grader_version")
"""Fields of a score's scoring that `annotations` has."""
ANNOTATIONS = {
    **columns(Annotation),
    "number": "double",
    **{name: REWARDS[name] for name in SCORING_FIELDS},
}
"""Columns of `annotations` and their types; `number` is the value if it is a number."""

PREFERENCES = {
    "chosen": "string",
    "rejected": "string",
    **{
        name: ANNOTATIONS[name]
        for name in (
            "by",
            "revision",
            "explanation",
            "run_id",
            "trace_id",
            "span_id",
            "start_time",
            "end_time",
        )
    },
}
"""Columns of `preferences` and their types."""

_OF_EVALUATION = ("id", "run_id", "run_name", "suite", "suite_version", "status", "policy", "policy_version")
EVALUATION_FIELDS = {"eval_id" if name == "id" else name: name for name in _OF_EVALUATION}
"""Columns of `evals` with facts of the evaluation, and the fields that they are from."""
EVALS = {
    **{column: columns(Evaluation)[name] for column, name in EVALUATION_FIELDS.items()},
    "tags": "map<string, string>",
    **{name: type_ for name, type_ in columns(TaskResult).items() if not name.endswith("_times")},
    **{name: _SPEC[name] for name in ("spec_name", "spec_version", "spec_sha256")},
    "is_latest": "bool",
}
"""Columns of `evals` and their types."""

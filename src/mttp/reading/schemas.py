"""The columns of the tables of a recording, and their types."""

from __future__ import annotations

from mttp.model.episodes import Tokens

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

_TIMES = {"start_time": "timestamp[us, UTC]", "end_time": "timestamp[us, UTC]"}
_NOTES = {
    "metrics": "map<string, double>",
    "metadata": "json",
    "error_type": "string",
    "error_message": "string",
    "faults": "list<string>",
    "omissions": "list<string>",
    "extra": "json",
    "span_id": "string",
    **_TIMES,
}

EPISODES: dict[str, str] = {
    "trace_id": "string",
    "run_id": "string",
    "id": "string",
    "index": "int64",
    "attempt": "int64",
    "env": "string",
    "env_version": "string",
    "env_index": "int64",
    "env_kwargs": "json",
    "env_spaces": "json",
    "env_wrappers": "list<string>",
    "env_rng_sha256": "string",
    "task": "string",
    "split": "string",
    "slices": "list<string>",
    "group": "string",
    "seed": "string",
    "policy": "string",
    "policy_version_start": "string",
    "policy_version_end": "string",
    "policy_update_index": "int64",
    "inputs": "json",
    "status": "string",
    "outcome": "string",
    "stop_reason": "string",
    "terminated": "bool",
    "truncated": "bool",
    "return": "double",
    "return_basis": "string",
    "step_reward_sum": "double",
    "reward": "double",
    "reward_status": "string",
    "reward_components": "map<string, double>",
    "discount": "double",
    "advantage": "double",
    "length": "int64",
    "step_count": "int64",
    "span_count": "int64",
    "final_observation": "json",
    "final_value": "double",
    "cost_usd": "double",
    "timing": "string",
    "complete": "bool",
    "segments": "list<string>",
    "duration": "double",
    "scores": "map<string, double>",
    "consumed_by": "list<int64>",
    "discarded_by": "list<string>",
    **_NOTES,
}
"""Columns of `episodes` and their types; the `reward` columns are from the episode's `reward`."""

EPISODE_KEYS = {"trace_id": "string", "run_id": "string"}
"""Columns that identify the episode of a row."""

AGENTS: dict[str, str] = {
    **EPISODE_KEYS,
    "id": "string",
    "name": "string",
    "policy": "string",
    "policy_version_start": "string",
    "policy_version_end": "string",
    "return": "double",
    "length": "int64",
    "terminated": "bool",
    "truncated": "bool",
    "advantage": "double",
    "reward": "double",
    "reward_status": "string",
    **_NOTES,
}
"""Columns of `agents` and their types; `reward` and `reward_status` are from the last scoring."""

STEPS: dict[str, str] = {
    **EPISODE_KEYS,
    "index": "int64",
    "agent": "string",
    "observation": "json",
    "action": "json",
    "reward": "double",
    "reward_status": "string",
    "reward_raw": "string",
    "trained_reward": "double",
    "terminated": "bool",
    "truncated": "bool",
    "value_estimate": "double",
    "return_target": "double",
    "advantage": "double",
    "logprob": "double",
    "scores": "map<string, double>",
    **_NOTES,
}
"""Columns of `steps` and their types."""

REWARDS: dict[str, str] = {
    **EPISODE_KEYS,
    "step_index": "int64",
    "agent": "string",
    "position": "int64",
    "value": "double",
    "status": "string",
    "components": "map<string, double>",
    "component_statuses": "map<string, string>",
    "weights": "map<string, double>",
    "error": "string",
    "error_type": "string",
    "raw": "string",
    "range": "list<double>",
    "mismatch": "bool",
    "verdict": "string",
    "failed_checks": "list<string>",
    "spec_name": "string",
    "spec_version": "string",
    "spec_sha256": "string",
    "spec_code_sha256": "string",
    "spec_code_coverage": "string",
    "grader": "string",
    "grader_kind": "string",
    "grader_version": "string",
    "relative": "bool",
    "label": "string",
    "explanation": "string",
    "clipped": "bool",
    "evidence": "json",
    "span_id": "string",
    **_TIMES,
}
"""Columns of `rewards` and their types; `step_index` is null for a scoring of the whole episode or agent."""

COMPONENTS: dict[str, str] = {
    **EPISODE_KEYS,
    "step_index": "int64",
    "agent": "string",
    "position": "int64",
    "component": "string",
    "value": "double",
    "weight": "double",
    "status": "string",
    "error_type": "string",
    "spec_name": "string",
    "spec_version": "string",
}
"""Columns of `components` and their types."""

GRADES: dict[str, str] = {
    **EPISODE_KEYS,
    "step_index": "int64",
    "agent": "string",
    "position": "int64",
    "part_of": "string",
    "name": "string",
    "kind": "string",
    "value": "double",
    "status": "string",
    "error": "string",
    "error_type": "string",
    "weight": "double",
    "contribution": "double",
    "verdict": "string",
    "range": "list<double>",
    "clipped": "bool",
    "late": "bool",
    "repeats": "list<double>",
    "spread": "double",
    "label": "string",
    "explanation": "string",
    "evidence": "json",
    "relative": "bool",
    **_TIMES,
}
"""Columns of `grades` and their types; `part_of` is the component that includes the grade."""

TOKENS: dict[str, str] = {
    **EPISODE_KEYS,
    "step_index": "int64",
    "agent": "string",
    **{name: "list<int64>" if name in Tokens.INTEGER_ARRAYS else "list<double>" for name in Tokens.ARRAYS},
    "alignment": "map<string, string>",
    "parent_step": "int64",
    "parent_length": "int64",
    "count": "int64",
    "prompt_count": "int64",
    "tokenizer": "string",
    "template_sha256": "string",
    "logprob_basis": "string",
    "policy_version": "string",
    "omitted_reason": "string",
}
"""Columns of `tokens` and their types."""

_OWN_TRACE = {"trace_id": "string", "span_id": "string", **_TIMES}

GROUPS: dict[str, str] = {
    "id": "string",
    "run_id": "string",
    "episodes": "list<string>",
    "rewards": "list<double>",
    "advantages": "list<double>",
    "size": "int64",
    "valid_count": "int64",
    "reward_mean": "double",
    "reward_std": "double",
    "ddof": "int64",
    "scope": "string",
    "normalization": "string",
    "task": "string",
    "env": "string",
    "metrics": "map<string, double>",
    "metadata": "json",
    "faults": "list<string>",
    "extra": "json",
    **_OWN_TRACE,
}
"""Columns of `groups` and their types."""

UPDATES: dict[str, str] = {
    "index": "int64",
    "run_id": "string",
    "policy": "string",
    "loss": "double",
    "kl": "double",
    "entropy": "double",
    "grad_norm": "double",
    "learning_rate": "double",
    "clip_fraction": "double",
    "policy_loss": "double",
    "value_loss": "double",
    "explained_variance": "double",
    "policy_version_before": "string",
    "policy_version_after": "string",
    "groups": "list<string>",
    "episodes": "list<string>",
    "consumed": "int64",
    "discarded": "map<string, int64>",
    "discarded_episodes": "json",
    "sampled_versions": "list<string>",
    "lag_min": "int64",
    "lag_mean": "double",
    "lag_max": "int64",
    "metrics": "map<string, double>",
    "metadata": "json",
    "faults": "list<string>",
    "extra": "json",
    **_OWN_TRACE,
}
"""Columns of `updates` and their types."""

SCORING_FIELDS = ("status", "raw", "components", "label", "grader", "grader_kind", "grader_version")
"""Fields of a score's scoring that `annotations` has."""
ANNOTATIONS: dict[str, str] = {
    "kind": "string",
    "key": "string",
    "value": "json",
    "number": "double",
    "episode": "string",
    "step": "int64",
    "step_span_id": "string",
    "by": "string",
    "revision": "int64",
    **{name: REWARDS[name] for name in SCORING_FIELDS},
    "rejected": "list<string>",
    "explanation": "string",
    "run_id": "string",
    "faults": "list<string>",
    "extra": "json",
    **_OWN_TRACE,
}
"""Columns of `annotations` and their types; `number` is the value if it is a number."""

PREFERENCES: dict[str, str] = {
    "chosen": "string",
    "rejected": "string",
    "by": "string",
    "revision": "int64",
    "explanation": "string",
    "run_id": "string",
    **_OWN_TRACE,
}
"""Columns of `preferences` and their types."""

EVALUATION_FIELDS = {
    "eval_id": "id",
    "run_id": "run_id",
    "run_name": "run_name",
    "suite": "suite",
    "suite_version": "suite_version",
    "status": "status",
    "policy": "policy",
    "policy_version": "policy_version",
}
"""Columns of `evals` with facts of the evaluation, and the fields that they are from."""
EVALS: dict[str, str] = {
    **dict.fromkeys(EVALUATION_FIELDS, "string"),
    "tags": "map<string, string>",
    "task": "string",
    "sample": "int64",
    "outcome": "string",
    "score": "double",
    "passed": "bool",
    "baseline_score": "double",
    "delta": "double",
    "duration": "double",
    "error": "string",
    "error_type": "string",
    "slices": "list<string>",
    "spec_name": "string",
    "spec_version": "string",
    "spec_sha256": "string",
    "episode": "string",
    "revision": "int64",
    "is_latest": "bool",
    "faults": "list<string>",
    "extra": "json",
    **_OWN_TRACE,
}
"""Columns of `evals` and their types."""

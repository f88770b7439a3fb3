"""How often each detector alarms on healthy runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DRAWS: Final = 200
"""Healthy runs of each kind; the benchmark writes it."""
FALSE_ALARM_METHOD: Final = (
    "share of healthy runs with a finding of this kind, medium or high: the largest over the kinds of run of "
    f"benchmarks/diagnoses.py, of {DRAWS} draws each, so that 0 means below {1 - 0.05 ** (1 / DRAWS):.1%} "
    "(Clopper-Pearson, one-sided 95 %); rules were tuned on draws of other seeds"
)
FALSE_ALARMS: Final[Mapping[str, float]] = {
    "reward_hacking": 0.010,
    "high_reward_low_quality": 0.000,
    "reward_jump": 0.030,
    "perfect_rewards": 0.000,
    "reward_length": 0.000,
    "verbosity": 0.000,
    "zero_variance_groups": 0.000,
    "kl_drift": 0.005,
    "over_optimization": 0.005,
    "entropy_collapse": 0.000,
    "diversity_collapse": 0.000,
    "repetition": 0.000,
    "truncation": 0.000,
    "sparse_rewards": 0.000,
    "saturation": 0.000,
    "missing_rewards": 0.000,
    "grader_noise": 0.000,
    "forgetting": 0.005,
    "grader_drift": 0.000,
    "data_drift": 0.000,
    "leakage": 0.000,
    "diverging_components": 0.000,
    "dead_components": 0.000,
    "missing_components": 0.000,
    "update_spike": 0.005,
    "limit_terminated": 0.000,
    "dead_actions": 0.000,
    "constant_observations": 0.000,
    "explained_variance": 0.000,
    "growing_losses": 0.000,
    "seed_collapse": 0.000,
}
"""The measured rate of each detector; the benchmark writes it."""

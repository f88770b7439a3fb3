"""Estimates of the KL divergence of the sampling policy from the reference policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mttp.model.episodes import Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KlEstimates", "kl_estimates", "log_ratio"]

Floats: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True, slots=True, kw_only=True)
class KlEstimates:
    """KL(q || p_ref) in nats per sampled token, estimated from samples of q (Schulman 2020)."""

    k1: float
    """Mean of -log r, where r = p_ref / q: unbiased."""
    k2: float
    """Mean of (log r)**2 / 2: biased, less variance."""
    k3: float
    """Mean of (r - 1) - log r: unbiased, never negative."""
    tokens: int


def kl_estimates(blocks: Iterable[Tokens]) -> KlEstimates | None:
    """
    The divergence of the sampling policy from the reference, per token; None without both log probabilities.

    Tokens whose mask is 0 were not sampled and do not count.
    """
    parts = [ratio for block in blocks if (ratio := log_ratio(block)) is not None and len(ratio)]
    if not parts:
        return None
    logr = np.concatenate(parts)
    with np.errstate(over="ignore"):
        k3 = float((np.expm1(logr) - logr).mean())
    return KlEstimates(k1=float(-logr.mean()), k2=float((logr**2).mean() / 2), k3=k3, tokens=len(logr))


def log_ratio(block: Tokens) -> Floats | None:
    """Return log p_ref - log q of each sampled token, where both are known and aligned."""
    if block.logprobs is None or block.ref_logprobs is None:
        return None
    if block.alignment.get("logprobs") != block.alignment.get("ref_logprobs"):
        return None
    ratios = block.ref_logprobs.astype(float) - block.logprobs.astype(float)
    if block.masks is not None and len(block.masks) == len(ratios):
        ratios = ratios[block.masks.astype(bool)]
    known: Floats = ratios[np.isfinite(ratios)]
    return known

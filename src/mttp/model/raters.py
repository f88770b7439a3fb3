"""Measures of agreement between raters of the same episodes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

from mttp.errors import MissingExtra

__all__ = ["alpha", "kappa", "tau_b"]

_EXTRA = {"extra": "agreement", "purpose": "measures of agreement"}


def kappa(one: Sequence[str], other: Sequence[str], weights: Sequence[float] | None = None) -> float | None:
    """Cohen's kappa of two raters' categories, by scikit-learn; None if all ratings are the same category."""
    try:
        from sklearn.metrics import cohen_kappa_score
    except ImportError as error:
        raise MissingExtra(package="scikit-learn", **_EXTRA) from error
    if {*one, *other} == {*one[:1]}:
        return None
    return _known(cohen_kappa_score, list(one), list(other), sample_weight=weights)


def alpha(
    raters: Sequence[Sequence[float | str | None]], level: Literal["nominal", "interval"]
) -> float | None:
    """
    Krippendorff's alpha, by the package krippendorff.

    `raters` has a sequence of ratings per rater, one per episode, None for an episode without a rating.
    None if no episode has two ratings, or all ratings are equal.
    """
    try:
        import krippendorff
    except ImportError as error:
        raise MissingExtra(package="krippendorff", **_EXTRA) from error
    import numpy as np

    known = sorted({rating for ratings in raters for rating in ratings if rating is not None}, key=str)
    if len(known) < 2:
        return None
    numbers = {rating: place if level == "nominal" else rating for place, rating in enumerate(known)}
    rows = [[math.nan if rating is None else numbers[rating] for rating in ratings] for ratings in raters]
    return _known(krippendorff.alpha, reliability_data=np.array(rows, float), level_of_measurement=level)


def tau_b(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Kendall's tau-b of two raters' scores, by scipy; None if all scores of a rater are equal."""
    try:
        from scipy.stats import kendalltau
    except ImportError as error:
        raise MissingExtra(package="scipy", **_EXTRA) from error
    return _known(lambda: kendalltau(one, other).statistic)


def _known(measure: Any, *args: Any, **options: Any) -> float | None:
    """The result of a measure; None if it is undefined for these ratings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a division by zero results in NaN
        try:
            agreement = float(measure(*args, **options))
        except ValueError:  # raised by krippendorff if no episode has two ratings
            return None
    return agreement if math.isfinite(agreement) else None

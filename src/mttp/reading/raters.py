"""How far two raters of the same episodes agree, beyond chance and beyond ties."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

from mttp.errors import MissingExtra

__all__ = ["alpha", "kappa", "tau_b"]

_EXTRA = {"extra": "agreement", "purpose": "measures of agreement"}


def kappa(one: Sequence[str], other: Sequence[str]) -> float | None:
    """Cohen's kappa of categories, by scikit-learn; None where both raters know one category only."""
    try:
        from sklearn.metrics import cohen_kappa_score
    except ImportError as error:
        raise MissingExtra(package="scikit-learn", **_EXTRA) from error
    return _known(cohen_kappa_score, list(one), list(other)) if {*one, *other} != {*one[:1]} else None


def alpha(
    raters: Sequence[Sequence[float | str | None]], level: Literal["nominal", "interval"]
) -> float | None:
    """
    Krippendorff's alpha of what each rater gave each episode, None where nothing, by krippendorff.

    None where no two raters rated one episode, or all ratings are the same.
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
    """Kendall's tau-b, by scipy; None where one rater gave the same to all."""
    try:
        from scipy.stats import kendalltau
    except ImportError as error:
        raise MissingExtra(package="scipy", **_EXTRA) from error
    return _known(lambda: kendalltau(one, other).statistic)


def _known(measure: Any, *args: Any, **options: Any) -> float | None:
    """A measure as a number; None where there is none for these ratings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a division by zero, of which NaN comes
        try:
            found = float(measure(*args, **options))
        except ValueError:  # krippendorff's word for ratings that no two raters share
            return None
    return found if math.isfinite(found) else None

"""Error rates, coverage and power of verdicts, on simulated recordings with a known answer."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRUTH: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "truth.py"), run_name="truth")
ROWS = TRUTH["ROWS"]
DRAWS = TRUTH["DRAWS"]
FEW = 50
QUICK = (
    "half of the failures missing",
    "12 tasks, gain .5",
    "50 tasks, true loss = margin",
    "20 returns of 0 or 1",
    "one learning curve a side",
    "three training runs",
    "25 tasks with 8 samples",
    "a tenth leaks",
)


def label(row: Any) -> str:
    return f"{row.name}: {row.what}"


@pytest.mark.parametrize("row", [row for row in ROWS if any(words in row.name for words in QUICK)], ids=label)
def test_rates_are_right_in_a_few_draws(row: Any) -> None:
    """
    Give or take three standard errors.
    """
    assert row.holds(row.rate(FEW), FEW)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", ROWS, ids=label)
def test_rates_are_right(row: Any) -> None:
    """
    In as many draws as the page shows.
    """
    rate = row.rate(DRAWS)
    print(f"{rate:.3f}  {row.bound:14}  {label(row)}")

    assert row.holds(rate, DRAWS)


def test_the_page_shows_each_question() -> None:
    """
    With a rate that is right.
    """
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    shown = re.findall(r"^- ([^;\n]+); ([^:\n]+): (\d\.\d+), (.+)$", page, re.MULTILINE)

    assert [(row.name, row.what, row.bound) for row in ROWS] == [
        (one, what, bound) for one, what, _, bound in shown
    ]
    assert all(row.holds(float(rate), DRAWS) for row, (_, _, rate, _) in zip(ROWS, shown, strict=True))

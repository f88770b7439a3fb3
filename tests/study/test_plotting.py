"""The plot of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

import mttp

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes the figures of a test."""
    yield
    pyplot.close("all")


def record(name: str, gain: float) -> str:
    """An evaluation of twenty tasks; the return rises by `gain`."""
    with mttp.configure(f"file://{name}.jsonl", kind="eval"):
        for task in range(20):
            with mttp.episode(env="e", task=f"t{task}", split="$a" if task % 2 else "b") as episode:
                episode.reward(task / 20 + gain + 0.01 * (task % 3) * gain)
                episode.end(outcome="success" if task > 3 else "failure")
    return str(Path(f"{name}.jsonl"))


def test_each_metric_is_a_row():
    """
    With effect, interval, verdict, numbers of episodes and method; shares of the base have one unit.
    """
    comparison = mttp.compare(record("a", 0.0), record("b", 0.5), metrics=["return", "success"])
    ax = comparison.plot()
    ax.figure.canvas.draw()

    assert ["return", "success"] == [one.get_text() for one in ax.get_yticklabels()]
    first = ax.texts[0].get_text()
    assert first.startswith("+0.505 [+0.503, +0.507], better, n = 20 and 20\npaired t over 20 differences")
    assert (
        pytest.approx(comparison["return"].effect / comparison["return"].base) == ax.lines[2].get_xdata()[0]
    )
    assert (
        "effect with 95% interval (share of the mean of a.jsonl); verdicts below the first corrected by Holm"
        == ax.get_xlabel()
    )
    assert "b.jsonl against a.jsonl: better" == ax.get_title(loc="left")


def test_one_metric_is_drawn_in_its_unit():
    """
    With a row for each slice.
    """
    _, ax = pyplot.subplots()
    comparison = mttp.compare(record("a", 0.0), record("b", 0.5), metrics=["return"], by="split")

    assert ax is comparison.plot(ax=ax)
    assert ["return", "return, \\$a", "return, b"] == [one.get_text() for one in ax.get_yticklabels()]
    assert pytest.approx(comparison["return"].effect) == ax.lines[2].get_xdata()[0]
    assert "effect with 95% interval (return); verdicts below the first corrected by Holm" == ax.get_xlabel()
    ax.figure.canvas.draw()


def test_a_base_of_zero_has_no_share():
    """
    Its numbers are there, and its row has no mark.
    """
    with mttp.configure("file://zero.jsonl"):
        for task in range(3):
            with mttp.episode(task=f"t{task}") as episode:
                episode.reward(0.0)
                episode.end(outcome="failure")
    ax = mttp.compare("zero.jsonl", "zero.jsonl", metrics=["return", "success"]).plot()

    assert (1, 2) == (len(ax.lines), len(ax.texts))
    assert ax.texts[0].get_text().startswith("+0")

"""Which episodes count is the same for summaries, curves, plots, reports and comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.study.sample import load


@pytest.fixture
def training(tmp_path: Path) -> str:
    """A training run of three whole episodes, one of an error, one of an evaluation, one that was cut off."""
    path = str(tmp_path / "training.jsonl")
    with mttp.configure(f"file://{path}", run_id="r"):
        for place in range(3):
            _play(10.0 + place, steps=2, outcome="success")
        with pytest.raises(RuntimeError, match="gone"), mttp.episode(env="cart") as episode:
            _fail(_step(episode, 900.0))
        _play(800.0, steps=1, split="eval", outcome="failure")
        mttp.episode(env="cart").step().reward(700.0)
    return path


def _play(total: float, *, steps: int, outcome: str | None = None, **facts: Any) -> None:
    with mttp.episode(env="cart", **facts) as episode:
        for _ in range(steps):
            _step(episode, total / steps)
        episode.end(outcome=outcome)


def _fail(_: None) -> None:
    raise RuntimeError("the simulator is gone")


def _step(episode: Any, reward: float) -> None:
    with episode.step() as step:
        step.reward(reward)


def _summaries(path: str) -> list[Any]:
    return [mttp.summarize(path), mttp.read(path).summary()]


def test_a_summary_has_the_returns_that_count(training: str) -> None:
    """The others are shown with their status, and have no return and no outcome."""
    for summary in _summaries(training):
        assert [10.0, 11.0, 12.0] == summary.returns[summary.is_counted].tolist()
        assert 3 == np.isfinite(summary.returns).sum()
        assert {"counted": 3, "error": 1, "evaluation": 1, "cut_off": 1} == summary.reasons.counts()
        assert {"success": 3, "unknown": 3} == summary.outcomes.counts()
        assert 6 == len(summary)


def test_the_command_says_what_is_not_counted(training: str) -> None:
    """With the digest of the recording, which is also that of a side of a comparison."""
    found = json.loads(CliRunner().invoke(app, ["summary", training, "--json"]).stdout)
    totals = found["totals"]

    assert (11.0, 3, 4) == (totals["return"]["mean"], totals["return"]["count"], totals["return"]["of"])
    assert (2.0, 12.0) == (totals["length"]["mean"], totals["return"]["last"]["mean"])
    assert {"error": 1, "cut_off": 1, "evaluation": 1} == totals["not_counted"]
    assert load(training).identity.sha256 == found["sha256"]
    said = CliRunner().invoke(app, ["summary", training]).stdout
    assert "1 cut off by the end of the training, left out" in " ".join(said.split())
    assert found["sha256"] in said


def test_the_digest_is_that_of_the_episodes(training: str, tmp_path: Path) -> None:
    """It is equal for lines, Parquet and values, and labels do not change it."""
    target = str(tmp_path / "training.parquet")
    CliRunner().invoke(app, ["convert", training, target], catch_exceptions=False)
    sides = [*_summaries(training), *_summaries(target)]
    labelled = str(tmp_path / "labels.jsonl")
    with mttp.configure(f"file://{labelled}", run_id="labels"):
        mttp.annotate(mttp.read(training).episodes[0], "label", "odd")

    assert 1 == len({side.sha256 for side in sides})
    assert {load(source).identity.sha256 for source in (training, target, mttp.read(training))} == {
        sides[0].sha256
    }
    assert sides[0].sha256 == mttp.summarize([training, labelled]).sha256


def test_a_floor_that_was_trained_with_is_no_return(tmp_path: Path) -> None:
    """A reward whose status is not ok is missing, also in a summary."""
    path = str(tmp_path / "floor.jsonl")
    with mttp.configure(f"file://{path}", run_id="r", kind="eval"):
        for value, status in ((1.0, "ok"), (0.0, "error")):
            with mttp.episode(env="maths", task=status) as episode:
                episode.reward(value, status=status)
    counted = [figures.as_counted().return_ for figures in load(path).episodes]

    for summary in _summaries(path):
        assert [value for value in counted if value is not None] == [
            value for value in summary.returns.tolist() if np.isfinite(value)
        ]


def test_a_report_and_a_plot_draw_what_counts(training: str) -> None:
    """The report has the number of the others; its episodes are all listed."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("pyarrow")
    from mttp.viewing import report

    recording = mttp.read(training)
    document = json.loads(report(recording).html.split('id="mttp-report">')[1].split("</script>")[0])
    facts = {
        fact["label"]: (fact["value"], fact["detail"])
        for fact in document["overview"]["sections"][0]["blocks"][0]["items"]
    }
    axes = recording.plot.returns()

    assert (11.0, "n=3, standard deviation 1") == facts["mean return"]
    assert len(recording) == len(document["rows"])
    assert "1 cut off by the end of the training, left out" in axes.get_title(loc="left")
    pyplot.close("all")

"""Learning curves: bins, axes, bands over seeds, and what is in no mean."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.errors import StudyError
from mttp.study import curves


def record(name: str, returns: list[float | None], *, run: str, env: str = "e", **facts: object) -> str:
    """A training run whose episodes have these returns, and two steps each; None is a failed reward."""
    with mttp.configure(f"file://runs/{name}.jsonl", run=run, **facts):
        for number, value in enumerate(returns):
            with mttp.episode(env=env) as episode:
                for _ in range(2):
                    with episode.step():
                        pass
                episode.reward(math.nan if value is None else value)
                episode.end(terminated=True)
            if number % 2:
                mttp.update(kl=number / 10, metrics={"clip": 0.5})
    return f"runs/{name}.jsonl"


def test_a_run_is_a_curve_of_its_own_values():
    """
    Each episode is a bin while there are at most fifty, and one run has no band.
    """
    path = record("a", [1.0, 2.0, 4.0], run="a")
    (curve,) = curves(path, "return").curves
    assert ("a", "one run", (1.0, 2.0, 3.0), (1.0, 2.0, 4.0)) == (
        curve.name,
        curve.method,
        curve.x,
        curve.values,
    )
    assert all(math.isnan(side) for side in (*curve.low, *curve.high))


def test_more_episodes_are_means_of_bins():
    """
    The value of a bin is the mean of the run in it.
    """
    path = record("a", [float(number) for number in range(120)], run="a")
    (curve,) = curves(path, "return").curves
    assert (2.0, 1.0) == (curve.x[0], curve.values[0])
    assert 40 == len(curve.x)


@pytest.mark.parametrize("seeds", [3, 12])
def test_seeds_of_one_name_are_a_mean_with_a_band(seeds: int):
    """
    Student's t below ten runs, as scipy computes it; a bootstrap from ten, near the t interval.
    """
    rng = np.random.default_rng(0)
    values = rng.normal(size=(seeds, 4))
    for seed, row in enumerate(values):
        record(f"s{seed}", row.tolist(), run="ppo", seed=seed)
    (curve,) = curves("runs", "return").curves
    method = "95 % t interval" if seeds < 10 else "95 % bootstrap (2,000 resamples of the runs)"
    assert f"mean of {seeds} runs, {method}" == curve.method
    assert values.mean(axis=0) == pytest.approx(np.array(curve.values))
    error = stats.sem(values, axis=0)
    low, high = stats.t.interval(0.95, seeds - 1, values.mean(axis=0), error)
    tolerance = 1e-9 if seeds < 10 else 0.7 * error.max()
    assert low == pytest.approx(np.array(curve.low), abs=tolerance)
    assert high == pytest.approx(np.array(curve.high), abs=tolerance)


def test_the_interquartile_mean_ignores_one_run_that_diverged():
    """
    Its method is in words.
    """
    for seed in range(8):
        record(f"s{seed}", [1e6 if seed == 7 else 1.0], run="ppo")
    (curve,) = curves("runs", "return", center="iqm").curves
    assert (1.0,) == curve.values
    assert "interquartile mean of 8 runs, 95 % bootstrap (2,000 resamples of the runs)" == curve.method


def test_a_value_that_is_missing_is_in_no_mean_and_is_counted():
    """
    A reward that failed is no zero.
    """
    path = record("a", [1.0, None, 3.0], run="a")
    (curve,) = curves(path, "return").curves
    assert ((1.0, 3.0), (1.0, 3.0), 1) == (curve.x, curve.values, curve.missing)


def test_environments_are_not_pooled():
    """
    Runs of one name in two environments have a curve for each.
    """
    record("a", [1.0], run="ppo", env="easy")
    record("b", [5.0], run="ppo", env="hard")
    drawn = {curve.name: curve.values for curve in curves("runs").curves}
    assert {"ppo, easy": (1.0,), "ppo, hard": (5.0,)} == drawn


@pytest.mark.parametrize(
    ("axis", "places"),
    [("episodes", (1.0, 2.0, 3.0)), ("steps", (2.0, 4.0, 6.0)), ("updates", (0.0, 1.0))],
)
def test_each_axis_counts_in_the_run(axis: str, places: tuple[float, ...]):
    """
    Steps are those up to the end of the episode, updates those before it.
    """
    path = record("a", [1.0, 2.0, 3.0], run="a")
    (curve,) = curves(path, "return", axis=axis).curves  # type: ignore[arg-type]
    assert places == tuple(np.unique(np.round(curve.x)))


def test_time_is_in_seconds_since_the_start_of_the_run():
    """
    Two runs that started at different times begin at zero.
    """
    for name, start in (("a", 10**18), ("b", 2 * 10**18)):
        with mttp.configure(f"file://runs/{name}.jsonl", run=name) as session:
            for number in range(3):
                second = start + number * 10**9
                episode = session.episode(env="e", start_time=second)
                episode.reward(1.0)
                episode.end(terminated=True, end_time=second)
    for curve in curves("runs", axis="time").curves:
        assert pytest.approx([0, 1, 2], abs=0.05) == curve.x


def test_numbers_of_updates_are_drawn_over_steps_and_updates():
    """
    Fields of an update by their names, metrics of the user after `update.`.
    """
    path = record("a", [1.0] * 4, run="a")
    (curve,) = curves(path, "kl", axis="steps").curves
    assert ((4.0, 8.0), (0.1, 0.3)) == (curve.x, curve.values)
    (curve,) = curves(path, "update.clip", axis="updates").curves
    assert (0.5, 0.5) == curve.values
    assert curves(path, "update.clip").is_constant


def test_runs_are_joined_by_a_value_of_their_configuration():
    """
    Nested keys are written with dots.
    """
    record("a", [1.0], run="a", config={"net": {"width": 64}})
    record("b", [3.0], run="b", config={"net": {"width": 64}})
    record("c", [9.0], run="c", config={"net": {"width": 128}})
    drawn = {curve.name: curve.values for curve in curves("runs", by="config.net.width").curves}
    assert {"net.width=64": (2.0,), "net.width=128": (9.0,)} == drawn


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"metric": "retrun"},
            "no number 'retrun'; this recording has return, reward, length, duration, kl, update.clip",
        ),
        ({"metric": "components.x"}, "no number 'components.x'"),
        ({"axis": "x"}, "axis='x' is not one of episodes, steps, updates, time"),
        ({"by": "colour"}, "by='colour' is not name, run or config.KEY"),
        ({"center": "median"}, "center='median' is not one of mean, iqm"),
    ],
)
def test_a_wrong_word_is_an_error_that_names_the_right_ones(options: dict[str, str], message: str):
    """
    And what the recording has.
    """
    path = record("a", [1.0, 2.0], run="a")
    with pytest.raises(StudyError, match=message):
        curves(path, **options)  # type: ignore[arg-type]


def test_a_huge_value_and_text_that_looks_like_a_formula_are_drawn():
    """
    The axis shows what it can.
    """
    pytest.importorskip("matplotlib")
    path = record("a", [1e308, -1e308, 1.0], run="$a_{b}$")
    ax = curves(path).plot()
    ax.figure.canvas.draw()
    assert "return" == ax.get_ylabel()


def run(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and output."""
    result = CliRunner().invoke(app, ["plot", *arguments])
    return result.exit_code, result.output


def test_the_command_writes_a_picture_and_says_what_is_drawn():
    """
    A line for each curve, with its method and what is missing.
    """
    pytest.importorskip("matplotlib")
    for seed in range(3):
        record(f"s{seed}", [1.0, None, 2.0 + seed], run="ppo")
    code, text = run("runs", "-m", "return", "-m", "kl", "-x", "steps", "-o", "c.svg")
    assert (0, "<?xml") == (code, Path("c.svg").read_text()[:5])
    assert "  return, ppo: mean of 3 runs, 95 % t interval; 3 episodes without a value" in text.splitlines()
    assert "  kl, ppo: mean of 3 runs, 95 % t interval" in text.splitlines()


def test_the_command_prints_the_points_as_json():
    """
    A side of a band that does not exist is null.
    """
    path = record("a", [1.0, 2.0], run="a")
    code, text = run(path, "--json")
    (drawn,) = json.loads(text)["curves"]
    assert (0, [1.0, 2.0], [None, None]) == (code, drawn["curves"][0]["values"], drawn["curves"][0]["low"])
    assert {"metrics": ["return", "reward", "length", "duration", "kl", "update.clip"]} == json.loads(
        run(path, "--list", "--json")[1]
    )


def test_conditions_select_episodes():
    """
    As for other commands.
    """
    path = record("a", [1.0, 2.0, 3.0], run="a")
    _, text = run(path, "--where", "return > 1", "--json")
    assert [2.0, 3.0] == json.loads(text)["curves"][0]["curves"][0]["values"]


def test_findings_and_versions_of_the_policy_are_marked():
    """
    At the example of a finding, and at the updates that made a version; at most twelve of a run.
    """
    pytest.importorskip("matplotlib")
    with mttp.configure("file://run.jsonl", run="r"):
        for place in range(30):
            with mttp.episode(env="e", task=f"t{place}") as episode:
                episode.reward(float(place))
            mttp.update(loss=1.0, policy_version_after=f"v{place}")
    code, text = run("run.jsonl", "--marks", "-o", "marked.svg")
    _, printed = run("run.jsonl", "--marks", "--json")
    marks = json.loads(printed)["curves"][0]["marks"]
    versions = [mark for mark in marks if mark["kind"] == "policy"]

    assert 0 == code
    assert "marked: policy v2: version 3 of 30" in text
    assert "policy v2" in Path("marked.svg").read_text()
    assert 10 == len(versions)
    assert {"episodes": 3.0, "updates": 2.0} == {
        axis: versions[0]["places"][axis] for axis in ("episodes", "updates")
    }

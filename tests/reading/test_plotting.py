"""Plots of recordings."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

import mttp
from mttp.errors import ConfigureError, MissingExtra
from mttp.model import Group, Run, Update
from mttp.reading import Recording

matplotlib.use("Agg")
METHODS = ("returns", "components", "lengths", "groups", "kl")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes the figures of a test."""
    yield
    pyplot.close("all")


def episodes(values: Any, *, run: str = "r", **more: Any) -> list[mttp.Episode]:
    """Episodes with these returns, and a component of the same score."""
    return [
        mttp.Episode(
            trace_id=f"{number:032x}",
            run_id=run,
            return_=value,
            reward=mttp.Reward(value=value, components={} if value is None else {"correct": value}),
            **more,
        )
        for number, value in enumerate(values)
    ]


def entries(ax: Axes) -> list[str]:
    """The labels of the legend."""
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def line(ax: Axes, place: int = 0) -> tuple[list[float], list[float]]:
    """The points of a line."""
    return tuple(np.asarray(each).tolist() for each in ax.lines[place].get_data())


def drawn(ax: Axes) -> None:
    """Draw the figure, so that what fails only then fails."""
    ax.figure.canvas.draw()  # type: ignore[union-attr]


@pytest.mark.parametrize("method", METHODS)
def test_a_plot_is_drawn_on_the_given_axes(method: str):
    """
    And on those of a new figure where none are given.
    """
    recording = Recording(episodes=episodes([0.5] * 12))
    _, ax = pyplot.subplots()
    plot = getattr(recording.plot, method)
    new = plot()

    assert ax is plot(ax=ax)
    assert isinstance(new, Axes)
    assert new.figure is not ax.figure
    assert new.get_xlabel()
    assert new.get_ylabel()
    drawn(new)


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_recording_has_a_message(method: str):
    """
    The axes say what is missing, and nothing is raised.
    """
    ax = getattr(Recording(episodes=[]).plot, method)()

    assert ("no " in ax.texts[0].get_text(), 0) == (True, len(ax.lines))
    drawn(ax)


def test_running_mean_is_of_the_last_episodes():
    """
    From the first full window on, with the method in the title.
    """
    ax = Recording(episodes=episodes([0.0, 1.0, 2.0, 6.0])).plot.returns(window=3)

    assert ([3, 4], [1.0, 3.0]) == line(ax)
    assert "running mean of 3 episodes, 95 % t interval" == ax.get_title(loc="left")


def test_band_is_the_t_interval_of_the_window():
    """
    Mean and half width of five known values (t(4) = 2.776 at 97.5 %).
    """
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    ax = Recording(episodes=episodes(values)).plot.returns(window=5)
    band = ax.collections[1].get_paths()[0].vertices[:, 1]
    half = 2.7764451 * math.sqrt(2.5 / 5)

    assert (pytest.approx(3 - half), pytest.approx(3 + half)) == (band.min(), band.max())


def test_missing_and_failed_rewards_are_marked_and_counted():
    """
    They are neither zero nor part of the mean.
    """
    found = episodes([1.0, None, 1.0])
    failed = mttp.Episode(trace_id="f" * 32, run_id="r", return_=0.0, reward=mttp.Reward(status="error"))
    ax = Recording(episodes=[*found, failed]).plot.returns(window=2)

    assert {"single episodes (n = 2)", "no return (n = 1)", "reward error (n = 1)"} < {*entries(ax)}
    assert [1.0, 1.0, 1.0] == line(ax)[1]
    assert [[4], [2]] == [line(ax, place)[0] for place in (1, 2)]


def test_each_run_has_a_line():
    """
    Its episodes are counted from 1, and the legend has its name.
    """
    found = [*episodes([0.0, 1.0]), *episodes([5.0], run="s")]
    recording = Recording(episodes=found, runs=[Run(id="r", name="seed $1"), Run(id="s")])
    ax = recording.plot.returns(window=2)

    assert ["seed \\$1 (n = 2)", "s (n = 1)"] == entries(ax)
    assert [([2], [0.5]), ([1], [5.0])] == [line(ax, 0), line(ax, 1)]
    assert "episode of its run, in order of start" == ax.get_xlabel()


def test_components_have_a_line_each():
    """
    The legend has the numbers of scores and of failures.
    """
    reward = mttp.Reward(value=1.0, components={"a": 1.0, "b": 0.0}, component_statuses={"c": "error"})
    found = [mttp.Episode(trace_id=f"{n:032x}", reward=reward) for n in range(2)]
    plot = Recording(episodes=found).plot

    assert ["a (n = 2)", "b (n = 2)", "c (n = 0, 2 error)", "episodes lacking a score (n = 2)"] == entries(
        plot.components()
    )
    assert ["b (n = 2)"] == entries(plot.components("b"))
    with pytest.raises(ConfigureError, match="no component 'd'; there are a, b, c"):
        plot.components("d")


def test_the_title_says_how_many_components_are_drawn():
    """
    Of more than eight, those of most episodes.
    """
    reward = mttp.Reward(value=1.0, components={f"c{place}": 1.0 for place in range(9)})
    ax = Recording(episodes=[mttp.Episode(trace_id="1" * 32, reward=reward)]).plot.components()

    assert ax.get_title(loc="left").startswith("8 of 9 components; ")


def test_lengths_are_steps_or_tokens():
    """
    Tokens where an episode is one completion; truncated episodes have marks of their own.
    """
    step = mttp.Step(tokens=mttp.Tokens(ids=[1, 2, 3]))
    completion = mttp.Episode(trace_id="1" * 32, length=1, steps=(step,), truncated=True)
    plot = Recording(episodes=[completion]).plot

    assert "episode length (sampled tokens)" == plot.lengths().get_ylabel()
    assert "truncated (n = 1)" in entries(plot.lengths())
    assert "episode length (steps)" == plot.lengths("steps").get_ylabel()
    with pytest.raises(ConfigureError, match="unit='words' is not one of steps, tokens"):
        plot.lengths("words")


def test_groups_without_spread_are_marked():
    """
    With their number and share; members without a reward are marked too.
    """
    groups = [Group(id="a", rewards=(1.0, 0.0)), Group(id="b", rewards=(1.0, 1.0, math.nan))]
    ax = Recording(episodes=[], groups=groups).plot.groups()

    assert {
        "members (n = 4)",
        "range and mean",
        "all rewards equal (1 of 2, 50%)",
        "groups lacking rewards (n = 1)",
    } == {*entries(ax)}


def test_groups_are_those_of_episodes_where_none_was_recorded():
    """
    Episodes that name one group are its members.
    """
    ax = Recording(episodes=episodes([0.0, 1.0, None], group="g")).plot.groups()

    assert ["members (n = 2)", "range and mean", "groups lacking rewards (n = 1)"] == entries(ax)
    assert ([1], [0.5]) == line(ax)


def test_kl_is_that_of_updates():
    """
    A value that is not finite is marked, and leaves a gap.
    """
    values = [0.1, math.nan, math.inf, 0.4]
    ax = Recording(episodes=[], updates=[Update(index=n, kl=v) for n, v in enumerate(values)]).plot.kl()
    x, y = line(ax)

    assert ([0, 1, 2, 3], [0.1, 0.4], 2) == (
        x,
        [one for one in y if one == one],
        sum(one != one for one in y),
    )
    assert ["no finite KL (n = 2)"] == entries(ax)


def test_kl_is_estimated_from_tokens():
    """
    The three estimates of `mttp.study.kl_estimates`, as means of the episodes.
    """
    from mttp.study import kl_estimates

    tokens = mttp.Tokens(ids=[1, 2], logprobs=[-1.0, -2.0], ref_logprobs=[-1.5, -1.0])
    expected = kl_estimates([tokens])
    ax = Recording(episodes=[mttp.Episode(trace_id="1" * 32, steps=(mttp.Step(tokens=tokens),))]).plot.kl()

    assert expected is not None
    assert [expected.k1, expected.k2, expected.k3] == [line(ax, place)[1][0] for place in range(3)]
    assert ["k1", "k2", "k3"] == entries(ax)
    assert ax.get_title(loc="left").endswith("; 2 tokens")


def test_kl_source_is_updates_or_tokens():
    """
    Another one is an error that names both.
    """
    with pytest.raises(ConfigureError, match="source='loss' is not one of updates, tokens"):
        Recording(episodes=[]).plot.kl("loss")


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("method", METHODS)
def test_no_value_breaks_a_plot(method: str):
    """
    Huge and tiny numbers, infinities, NaN, control characters, formulas and other scripts are drawn.
    """
    values = [1e308, -1e308, 5e-324, math.nan, math.inf, None] * 3
    names = {"$\\frac": 1e308, "_x": 1.0, "\x1b[31m": 0.0, "数": -1.0, "{y}": 2.0}
    found = [
        mttp.Episode(
            trace_id=f"{place:032x}",
            run_id=f"$r{place % 2}",
            return_=value,
            length=10**18,
            group="$",
            reward=mttp.Reward(value=value, components=names),
        )
        for place, value in enumerate(values)
    ]
    updates = [Update(index=place, kl=value) for place, value in enumerate(values)]
    ax = getattr(Recording(episodes=found, updates=updates).plot, method)()

    drawn(ax)
    assert ax.lines


def test_many_episodes_are_drawn():
    """
    A running mean has at most 200 points, and a scatter is stored as an image.
    """
    ax = Recording(episodes=episodes(np.arange(5_000.0).tolist())).plot.returns()

    assert (200, True) == (len(line(ax)[0]), ax.collections[0].get_rasterized())


def test_a_window_has_two_episodes_or_more():
    """
    A mean of one has no interval.
    """
    with pytest.raises(ConfigureError, match="window=1: give a number of episodes, 2 or more"):
        Recording(episodes=episodes([1.0])).plot.returns(window=1)


def test_axes_are_those_of_matplotlib():
    """
    Anything else is an error that shows it.
    """
    with pytest.raises(ConfigureError, match="ax='left' is not the axes of a matplotlib figure"):
        Recording(episodes=[]).plot.returns(ax="left")  # type: ignore[arg-type]  # wrong on purpose


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """
    Reading works without it.
    """
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(MissingExtra, match=r"pip install 'mttp\[plot\]'"):
        Recording(episodes=[]).plot.returns()

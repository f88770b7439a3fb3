"""Rendered pictures of Gymnasium environments: which steps have one, and what becomes of odd ones."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shown import blocks
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.errors import InstrumentError
from mttp.semconv import attributes as a
from mttp.testing import OtlpReceiver
from mttp.viewing.episode_page import episode_page

gymnasium = pytest.importorskip("gymnasium")


def picture(number: int) -> Any:
    """Return pixels that differ from number to number."""
    return np.random.default_rng(number).integers(0, 255, (24, 32, 3), np.uint8)


class Painted(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Renders what a function returns for the number of steps so far."""

    def __init__(self, paint: Callable[[int], Any] = picture) -> None:
        super().__init__(gymnasium.make("MountainCar-v0", max_episode_steps=300))
        self.paint, self.count, self.rendered = paint, 0, 0

    def step(self, action: Any) -> Any:
        """Count the step."""
        self.count += 1
        return self.env.step(action)

    def render(self) -> Any:
        """Count the picture."""
        self.rendered += 1
        return self.paint(self.count)


def play(env: Any, count: int) -> None:
    """Step an environment and leave it."""
    env.reset(seed=1)
    for _ in range(count):
        env.step(1)
    env.close()


def recorded(env: Painted, count: int, **options: Any) -> tuple[mttp.Episode, dict[str, int]]:
    """Return the episode of so many steps, and the faults."""
    with mttp.configure("file://a.jsonl") as session:
        play(mttp.wrap(env, **options), count)
    (episode,) = mttp.read("a.jsonl").episodes
    assert count == len(episode.steps)
    return episode, dict(session.stats.faults)


def pixels(url: str) -> Any:
    """Return the pixels of a picture of the size of `picture`."""
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    start = data.index(b"IDAT")
    size = int.from_bytes(data[start - 4 : start], "big")
    rows = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + size]), np.uint8).reshape(24, 97)
    return rows[:, 1:].reshape(24, 32, 3)


def test_each_so_many_steps_have_the_picture_before_their_action() -> None:
    """
    The first step included; the others are in columns.
    """
    episode, faults = recorded(Painted(), 7, frames=3)

    assert {} == faults
    assert [True, False, False] * 2 + [True] == [step.frame is not None for step in episode.steps]
    for step in episode.steps[::3]:
        assert np.array_equal(picture(step.index), pixels(step.frame or ""))
    assert "steps" in {span.name for span in mttp.scan("a.jsonl")}


@pytest.mark.parametrize("options", [{}, {"frames": None}])
def test_without_the_option_nothing_is_rendered(options: dict[str, Any]) -> None:
    """
    An environment may take long to render, or not be able to.
    """
    env = Painted()
    episode, _ = recorded(env, 3, **options)

    assert (0, [None] * 3) == (env.rendered, [step.frame for step in episode.steps])


def test_a_picture_is_recorded_once() -> None:
    """
    A later step has its size and digest.
    """
    episode, _ = recorded(Painted(lambda _: picture(0)), 2, frames=1)

    assert (episode.steps[0].frame or "").startswith("data:image/png;base64,")
    assert (episode.steps[1].frame or "").startswith("data:image/png;bytes=")


def test_a_large_picture_is_omitted() -> None:
    """
    Of more than a mebibyte as a PNG.
    """
    large = np.random.default_rng(0).integers(0, 255, (700, 700, 3), np.uint8)
    episode, _ = recorded(Painted(lambda _: large), 1, frames=1)

    assert (episode.steps[0].frame or "").startswith("data:image/png;bytes=")
    assert [a.STEP_FRAME] == [omission.partition(":")[0] for omission in episode.steps[0].omissions]


def test_an_episode_has_a_hundred_pictures_at_most() -> None:
    """
    An episode of any length has a bounded size.
    """
    env = Painted(lambda number: np.full((4, 4), number, np.uint8))
    episode, _ = recorded(env, 120, frames=1)

    assert (100, 100) == (env.rendered, sum(step.frame is not None for step in episode.steps))


def fail(_: int) -> Any:
    """Raise."""
    raise RuntimeError("no display")


@pytest.mark.parametrize(
    "paint",
    [
        fail,
        lambda _: None,
        lambda _: [picture(0)],
        lambda _: "ansi",
        lambda _: picture(0) / 255,
        lambda _: np.zeros((0, 4, 3), np.uint8),
        lambda _: np.zeros((4, 4, 2), np.uint8),
        lambda _: np.zeros(4, np.uint8),
    ],
)
def test_an_environment_without_pictures_is_recorded_without_them(paint: Callable[[int], Any]) -> None:
    """
    One fault says so, and it is not rendered again.
    """
    env = Painted(paint)
    episode, faults = recorded(env, 4, frames=1)

    assert ({"frame_invalid": 1}, 1) == (faults, env.rendered)
    assert [None] * 4 == [step.frame for step in episode.steps]
    assert [-1.0] * 4 == [step.reward for step in episode.steps]


def test_a_transport_without_content_has_no_picture() -> None:
    """
    The step names what is withheld.
    """
    with OtlpReceiver() as receiver:
        with mttp.configure(mttp.Route(receiver.http_address, content=False)):
            play(mttp.wrap(Painted(), frames=2), 3)
        steps = mttp.read(receiver)[0].steps

    assert [None] * 3 == [step.frame for step in steps]
    assert [True, False, True] == [
        any(omission.startswith(a.STEP_FRAME) for omission in step.omissions) for step in steps
    ]


def test_pages_and_the_terminal_show_pictures() -> None:
    """
    Beside the step's observation.
    """
    episode, _ = recorded(Painted(), 2, frames=2)
    first, second, *_ = blocks(episode_page(episode)["blocks"], "step")

    assert [episode.steps[0].frame] == [
        part["src"] for frame in blocks(first, "message") for part in frame["parts"] if "src" in part
    ]
    assert "frame" not in {message["role"] for message in blocks(second, "message")}
    shown = CliRunner().invoke(app, ["show", "a.jsonl", "--episode", "last"]).stdout
    assert 1 == shown.count("frame  [image/png")


@pytest.mark.parametrize("frames", [0, -1, True, 1.5, "all"])
def test_frames_are_counted_in_steps(frames: Any) -> None:
    """
    Any other value is an error at once.
    """
    with pytest.raises(InstrumentError, match=r"frames=.* is not a positive integer"):
        mttp.wrap(gymnasium.make("CartPole-v1"), frames=frames)

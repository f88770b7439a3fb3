"""Curves for TensorBoard and Weights & Biases, live and from recordings."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.errors import MissingExtra, TransportError
from mttp.reading import write_curves
from mttp.workflows.curve_transport import CurveTransport
from mttp.workflows.wandb import WandbRuns


class Points:
    """A writer that keeps points, or raises."""

    def __init__(self, *, broken: bool = False) -> None:
        self.points: list[tuple[str, str, int, dict[str, float]]] = []
        self.broken = broken
        self.closed = False

    def write(
        self, run: str, run_id: str, points: Mapping[str, float], *, axis: str, number: int, time: int
    ) -> None:
        if self.broken:
            raise OSError("no space left")
        assert time > 10**18
        self.points.append((run, axis, number, dict(points)))

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self.closed = True

    def after_fork(self) -> None:
        """Do nothing."""


def record(*destinations: Any, run: str = "my run/1") -> mttp.Session:
    """Two episodes, one of them without a reward of its own, and an update."""
    with mttp.configure([*destinations], run=run, run_id="abcdef0123456789") as session:
        with mttp.episode() as episode:
            with episode.step() as step:
                step.reward(0.25, components={"of step": 1.0})
            episode.reward(0.5, components={"a": 0.5, "b\n": 1.0})
            episode.end(outcome="success")
        with mttp.episode() as episode:
            for _ in range(2):
                with episode.step() as step:
                    step.reward(1.0)
            episode.end(outcome="failure")
        mttp.update(7, loss=float("nan"), kl=0.5)
    return session


EXPECTED = [
    (
        "episode",
        1,
        {
            "episode/return": 0.5,
            "episode/length": 1.0,
            "episode/success": 1.0,
            "episode/grader_errors": 0.0,
            "component/a": 0.5,
            "component/b⏎": 1.0,
        },
    ),
    ("episode", 2, {"episode/return": 2.0, "episode/length": 2.0, "episode/success": 0.0}),
    ("update", 7, {"update/kl": 0.5, "update/not_finite": 1.0}),
]


def test_curves_are_written_while_episodes_are_recorded():
    """
    Each point has the run's name, its axis and its place on it; steps are left out.
    """
    points = Points()
    session = record(CurveTransport("points", "points://", points))

    assert [("my run/1", *expected) for expected in EXPECTED] == points.points
    assert (True, {}, {}) == (points.closed, session.stats.lost, session.stats.faults)


def test_curves_of_a_recording_are_the_same(monkeypatch: pytest.MonkeyPatch):
    """
    With its run's name.
    """
    points = Points()
    record("file://a.jsonl")
    monkeypatch.setattr("mttp.transports.open", lambda _: CurveTransport("points", "points://", points))
    write_curves("a.jsonl", "wandb://p")

    assert [("my run/1", *expected) for expected in EXPECTED] == points.points


@pytest.mark.parametrize("made_by_hand", [False, True])
def test_curves_of_late_scores_have_their_components(made_by_hand: bool, monkeypatch: pytest.MonkeyPatch):
    """
    A score that came after the end counts, with its components and failed graders; also in values.
    """
    points = Points()
    with mttp.configure("file://a.jsonl", run="r", run_id="1"):
        with mttp.episode() as episode:
            episode.end(outcome="success")
        mttp.score(episode, 0.5, grader="late", components={"a": 0.5})
        with mttp.episode() as failed:
            failed.reward(mttp.Reward(status="error", component_statuses={"a": "error", "b": "ok"}))
    monkeypatch.setattr("mttp.transports.open", lambda _: CurveTransport("points", "points://", points))
    recording = mttp.read("a.jsonl")
    write_curves(replace(recording) if made_by_hand else recording, "wandb://p")

    assert [
        (
            1,
            {"episode/return": 0.5, "episode/success": 1.0, "component/a": 0.5, "episode/grader_errors": 0.0},
        ),
        (2, {"episode/grader_errors": 2.0}),
    ] == [
        (number, {name: value for name, value in values.items() if name != "episode/length"})
        for _, _, number, values in points.points
    ]


def test_a_failing_tool_is_counted_and_hurts_nothing(caplog: pytest.LogCaptureFixture):
    """
    The file has all spans; the log has one line.
    """
    caplog.set_level(logging.WARNING, "mttp")
    session = record("file://a.jsonl", CurveTransport("points", "points://", Points(broken=True)))
    transports = session.stats.transports

    assert 2 == len(mttp.read("a.jsonl"))
    assert [[], ["write_failed"]] == [[*transports[name].lost] for name in sorted(transports)]
    assert 1 == sum("no space left" in line.getMessage() for line in caplog.records)


def read_events(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Step and value of each scalar, by tag, as TensorBoard reads them."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulators.EventAccumulator(str(directory))
    found.Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]
    }


def test_tensorboard_reads_the_event_files():
    """
    Each run has a directory, whose name is a file name.
    """
    record("file://a.jsonl", "tensorboard://tb")
    write_curves("a.jsonl", "tensorboard://again")
    (live,), (read,) = list(Path("tb").iterdir()), list(Path("again").iterdir())

    assert ["my_run_1-abcdef01"] * 2 == [live.name, read.name]
    assert {
        "episode/return": [(1, 0.5), (2, 2.0)],
        "episode/length": [(1, 1.0), (2, 2.0)],
        "episode/success": [(1, 1.0), (2, 0.0)],
        "episode/grader_errors": [(1, 0.0)],
        "component/a": [(1, 0.5)],
        "component/b⏎": [(1, 1.0)],
        "update/kl": [(7, 0.5)],
        "update/not_finite": [(7, 1.0)],
    } == read_events(live)
    assert read_events(live) == read_events(read)


def test_two_writers_never_share_a_directory():
    """
    TensorBoard would make one curve of two.
    """
    record("file://a.jsonl", "tensorboard://tb", run="..")
    write_curves("a.jsonl", "tensorboard://tb")

    assert [1, 1] == [len(list(place.iterdir())) for place in Path("tb").iterdir()]


def test_wandb_gets_a_run_offline(monkeypatch: pytest.MonkeyPatch):
    """
    With the name of the run; its file has the curves and their axes.
    """
    record("file://a.jsonl")
    program = "from mttp.reading import write_curves; write_curves('a.jsonl', 'wandb://team/project')"
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    (file,) = Path("wandb").glob("offline-run-*/*.wandb")
    written = file.read_bytes()

    for text in (
        "my run/1",
        "project",
        "return",
        "component",
        "episode/number",
        "update/number",
        "not_finite",
    ):
        assert text.encode() in written, text


def test_a_wandb_run_that_can_not_be_started_is_tried_once():
    """
    A failing start takes a minute without a network.
    """
    runs = WandbRuns.__new__(WandbRuns)
    starts: list[str] = []

    def start(name: str, run_id: str) -> None:
        starts.append(run_id)
        raise OSError("no network")

    runs._runs, runs._errors, runs._started = {}, {}, start  # type: ignore[method-assign]
    for number in range(2):
        with pytest.raises(OSError, match="no network"):
            runs.write("r", "id", {}, axis="episode", number=number, time=0)

    assert ["id"] == starts


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("wandb://", "write wandb://PROJECT or wandb://ENTITY/PROJECT"),
        ("wandb:///p", "write wandb://PROJECT"),
        ("wandb://a/b/c", "write wandb://PROJECT"),
        ("wandb://p?x=1", "unknown option 'x'; this address has no options"),
        ("tensorboard://t?x=1", "unknown option 'x'; this address has no options"),
        ("tensorboard://file/tb", "can't make the directory"),
        ("file://a", "is not the address of a tool for curves"),
    ],
)
def test_a_wrong_address_is_an_error(address: str, message: str, monkeypatch: pytest.MonkeyPatch):
    """
    It says what to write.
    """
    monkeypatch.setenv("WANDB_MODE", "offline")
    Path("file").write_text("")
    record("file://a.jsonl")

    with pytest.raises(TransportError, match=message.replace("[", r"\[")):
        write_curves("a.jsonl", address)


@pytest.mark.parametrize(("scheme", "library"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_without_the_library_the_extra_is_named(scheme: str, library: str, monkeypatch: pytest.MonkeyPatch):
    """
    When the session is configured.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(MissingExtra, match=rf"pip install 'mttp\[{scheme}\]'"):
        mttp.configure(f"{scheme}://p")


def test_the_command_writes_curves():
    """
    The address stands for the output.
    """
    record("file://a.jsonl")
    done = CliRunner().invoke(app, ["convert", "a.jsonl", "tensorboard://tb"], prog_name="mttp")
    wrong = CliRunner().invoke(
        app, ["convert", "a.jsonl", "tensorboard://tb", "--as", "sft"], prog_name="mttp"
    )

    assert (0, "wrote the curves of 2 episodes and 1 update to tensorboard://tb\n") == (
        done.exit_code,
        done.stdout,
    )
    assert (2, True) == (wrong.exit_code, "can't be combined" in " ".join(wrong.output.split()))


def test_what_does_not_count_is_no_point(tmp_path: Path) -> None:
    """
    While it is recorded and later: an error has no number, an evaluation in between has no place.
    """
    written, later = tmp_path / "live", tmp_path / "later"
    path = f"{tmp_path}/a.jsonl"
    with mttp.configure([f"file://{path}", f"tensorboard://{written}"], run_id="r"):
        for total, split in ((1.0, None), (9.0, "eval"), (2.0, "train")):
            with mttp.episode(env="e", split=split) as episode:
                episode.reward(total)
        with pytest.raises(RuntimeError, match="gone"), mttp.episode(env="e") as episode:
            _fail_after(episode.reward(7.0))
    write_curves(path, f"tensorboard://{later}")

    for directory in (written, later):
        (run,) = directory.iterdir()
        assert [(1, 1.0), (2, 2.0)] == read_events(run)["episode/return"]


def _fail_after(_: object) -> None:
    raise RuntimeError("gone")

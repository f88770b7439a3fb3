"""The example of a fleet: episodes whose parts several processes write, in a directory that they share."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app

EXAMPLE = Path(__file__).parents[1] / "examples" / "fleet.py"
EPISODES = 64
"""Those of two updates, of four groups of eight each."""


def trained(
    folder: Path, *options: str, variables: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run the example for two updates without computing."""
    command = [sys.executable, str(EXAMPLE), "--updates", "2", "--work", "0", *options]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=200, check=True
    )


def spans(file: Path) -> Iterator[tuple[str, str]]:
    """The trace id and the name of each span in a file."""
    for line in file.read_text().splitlines():
        for block in json.loads(line)["resourceSpans"]:
            for scoped in block["scopeSpans"]:
                yield from ((span["traceId"], span["name"]) for span in scoped["spans"])


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """What two workers, a service and a learner wrote."""
    with tempfile.TemporaryDirectory() as folder:
        done = trained(Path(folder), "--workers", "2")
        assert f"{EPISODES} of {EPISODES} episodes complete, each written by 3 processes" in done.stdout
        yield Path(folder) / "runs" / "fleet"


def test_each_process_writes_its_own_file(directory: Path) -> None:
    """
    The one that configures, two workers, the service and the learner: an episode's spans are in three files.
    """
    files = {file: list(spans(file)) for file in directory.iterdir()}
    episodes = {trace for found in files.values() for trace, name in found if name.startswith("episode sums")}
    places = [sum(any(trace == one for one, _ in found) for found in files.values()) for trace in episodes]

    assert 5 == len(files)
    assert [3] * EPISODES == places


def test_every_episode_is_whole_and_linked(directory: Path) -> None:
    """
    It is complete, has its reward from the service and its metric from the learner, an advantage from its
    group, and the update that learned from it.
    """
    recording = mttp.read(directory)

    assert (EPISODES, 8, 2, []) == (
        len(recording),
        len(recording.groups),
        len(recording.updates),
        recording.problems,
    )
    assert 1 == len({run.id for run in recording.runs})
    for episode in recording:
        assert (True, 2, 4, 1) == (
            episode.complete,
            len(episode.segments),
            len(episode.steps),
            len(episode.consumed_by),
        )
        assert episode.reward is not None
        assert ("sums", episode.return_) == (episode.reward.grader, episode.reward.value)
        assert episode.advantage is not None
        assert 0 < episode.metrics["importance_ratio"]


def test_commands_read_the_directory(directory: Path) -> None:
    """
    Each episode is shown, counted and checked once, and there is nothing to find.
    """
    shown, summed, checked = (
        CliRunner().invoke(app, [command, str(directory), "--json"])
        for command in ("show", "summary", "check")
    )

    assert [0, 0, 0] == [done.exit_code for done in (shown, summed, checked)]
    episodes = json.loads(shown.stdout)["episodes"]
    assert (EPISODES, {True}) == (len(episodes), {episode["complete"] for episode in episodes})
    assert EPISODES == json.loads(summed.stdout)["totals"]["episodes"]
    assert [] == json.loads(checked.stdout)["findings"]


def test_actors_of_ray_do_the_same() -> None:
    """
    They end before Ray kills them, and nothing is lost.
    """
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # names of Ray's sockets may not be long
    quiet = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
    try:
        trained(folder, "--ray", "--workers", "1", "--out", "out", variables=os.environ | quiet)
        recording, findings = mttp.read(folder / "out"), mttp.check(folder / "out")
    finally:
        shutil.rmtree(folder, ignore_errors=True)

    assert (EPISODES, []) == (len(recording), findings.all)
    assert {(True, 2, 1)} == {
        (episode.complete, len(episode.segments), len(episode.consumed_by)) for episode in recording
    }


@pytest.mark.parametrize("wrong", [["--workers", "0"], ["--updates", "-1"], ["--work", "-5"]])
def test_a_fleet_of_nobody_is_refused(wrong: list[str]) -> None:
    """
    With usage, before anything is started.
    """
    done = subprocess.run([sys.executable, str(EXAMPLE), *wrong], capture_output=True, text=True, check=False)

    assert (2, True) == (done.returncode, "--workers and --updates are at least 1" in done.stderr)
    assert not Path("runs").exists()

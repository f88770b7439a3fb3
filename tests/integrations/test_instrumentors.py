"""The OpenTelemetry instrumentors, used by the command and by hand."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

import mttp
from mttp import integrations

pytest.importorskip("opentelemetry.instrumentation")
gymnasium = pytest.importorskip("gymnasium")

from mttp.integrations.instrumentors import GymnasiumInstrumentor, LibraryInstrumentor  # noqa: E402 - once it can be

TRAINING = """
import gymnasium

env = gymnasium.make("CartPole-v1")
env.reset(seed=7)
while not any(env.step(1)[2:4]):
    pass
env.close()
"""


def play() -> None:
    """Take one step in a new environment."""
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=1)
    env.step(0)
    env.close()


def test_opentelemetry_s_command_records_an_unchanged_script(tmp_path: Path) -> None:
    """
    The recording exists although the script does not mention mttp.
    """
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    command = Path(sys.executable).with_name("opentelemetry-instrument")

    done = subprocess.run(
        [command, "--traces_exporter", "none", sys.executable, script],
        env={"PATH": "/usr/bin:/bin", "MTTP_TRANSPORT": f"file://{tmp_path}/run.jsonl"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert 0 == done.returncode, done.stderr
    (episode,) = mttp.read(tmp_path / "run.jsonl").episodes
    assert ("CartPole-v1", 7, True, True) == (
        episode.env,
        episode.seed,
        episode.terminated,
        episode.complete,
    )


def test_every_library_has_an_instrumentor() -> None:
    """
    The command finds each one, and it states the supported versions of its library.
    """
    entries = distribution("mttp").entry_points.select(group="opentelemetry_instrumentor")
    found: list[type[LibraryInstrumentor]] = [entry.load() for entry in entries]

    assert set(integrations.LIBRARIES) == {kind.package for kind in found}
    for kind in found:
        assert [integrations.LIBRARIES[kind.package].requires] == kind().instrumentation_dependencies()


def test_uninstrumenting_puts_everything_back(session: mttp.Session) -> None:
    """
    Later environments are not recorded, and `make` is the original.
    """
    make = gymnasium.make
    instrumentor = GymnasiumInstrumentor()
    instrumentor.instrument(policy="p", tracer_provider=None)
    play()

    instrumentor.uninstrument()
    play()

    assert ["p"] == [episode.policy for episode in mttp.read(session)]
    assert make is gymnasium.make


def test_suppression_is_honoured(session: mttp.Session) -> None:
    """
    Nothing is recorded while OpenTelemetry's instrumentations are suppressed.
    """
    from opentelemetry.instrumentation.utils import suppress_instrumentation

    with mttp.instrument():
        with suppress_instrumentation():
            play()
        play()

    assert 1 == len(mttp.read(session).episodes)


def test_a_block_takes_nothing_from_the_command(session: mttp.Session) -> None:
    """
    A script may instrument a block with other options; afterwards recording continues as before.
    """
    instrumentor = GymnasiumInstrumentor()
    instrumentor.instrument()
    try:
        with mttp.instrument():
            play()
        play()
    finally:
        instrumentor.uninstrument()
    play()

    assert 2 == len(mttp.read(session).episodes)

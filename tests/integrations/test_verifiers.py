"""verifiers itself: environments that run episodes against a model server on loopback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers")
pytestmark = pytest.mark.filterwarnings("default")  # the library has warnings of its own

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "scripted")]
import verifiers_sums  # noqa: E402
from scripted_model import model_server  # noqa: E402
from verifiers_sums import environment  # noqa: E402

import mttp  # noqa: E402
from mttp.errors import InstrumentError  # noqa: E402
from mttp.formats import verifiers as format_  # noqa: E402
from mttp.integrations import verifiers as integration  # noqa: E402


@pytest.fixture
def server() -> Iterator[Any]:
    """A model server."""
    with model_server() as opened:
        yield opened


def run(env: Any, server: Any, *, model: str = "tiny", samples: int = 2) -> list[dict[str, Any]]:
    """Run all tasks at once, and return the records that verifiers saves."""
    saved: list[dict[str, Any]] = []

    async def complete(episode: Any) -> None:
        saved.append(json.loads(json.dumps(episode.to_record())))

    address = f"http://127.0.0.1:{server.server_port}/v1"
    asyncio.run(verifiers_sums.rollouts(env, address, model=model, samples=samples, complete=complete))
    return saved


def essence(record: Any) -> Any:
    """A record without ids, times and versions, which differ from run to run."""
    if isinstance(record, dict):
        varying = {"id", "timing", "time", "timestamp", "verifiers", "base_url", "runtime", "traceback"}
        return {key: essence(value) for key, value in record.items() if key not in varying}
    return [essence(one) for one in record] if isinstance(record, list) else record


def test_every_episode_is_recorded_as_verifiers_saves_it(server: Any) -> None:
    """
    Messages, tool calls, scores with weights, metrics and errors; the record comes back unchanged.
    """
    with mttp.configure("memory://") as session:
        handle = mttp.instrument(environment_ := environment())

        assert {"run_slot": True, "run_episode": True} == handle.status()

        saved = run(environment_, server)
        found = {episode.id: episode for episode in mttp.read(session)}

    assert {} == session.stats.faults
    assert len(saved) == len(found) == 6
    for record in saved:
        assert record == json.loads(json.dumps(format_.record(found[record["id"]])))


def test_what_is_recorded_of_an_episode(server: Any) -> None:
    """
    A scored one has its components; one whose scoring failed has an error and no number.
    """
    with mttp.configure("memory://") as session:
        with mttp.instrument(environment_ := environment()):
            run(environment_, server, samples=1)
        episodes = sorted(mttp.read(session), key=lambda episode: episode.inputs["idx"])
    wrong, right, failed = episodes

    assert [0.8 * 0 + 0.2 * 0.92, 0.8 + 0.2 * 0.92] == pytest.approx([wrong.return_, right.return_])
    assert {"correct": 1.0, "short": 0.92} == pytest.approx(dict(right.reward.components))
    assert {"correct": 0.8, "short": 0.2} == right.reward.weights
    assert {"letters": 8.0} == right.metrics
    assert ["chat", "execute_tool", "chat"] == [call.operation for step in right.steps for call in step.calls]
    assert (9, 3) == (right.steps[0].calls[0].input_tokens, right.steps[0].calls[0].output_tokens)
    assert {"a": 2, "b": 2} == right.steps[0].calls[1].arguments
    assert ("error", None, "error") == (failed.status, failed.return_, failed.reward.status)
    assert "the task has no answer" in str(failed.error_message)


def test_what_verifiers_returns_and_sends_is_unchanged(server: Any) -> None:
    """
    With recording and without, records and requests are equal.
    """
    bare = run(environment(), server, samples=1)
    requests, server.requests = server.requests, []
    with mttp.configure("memory://"), mttp.instrument(environment_ := environment()):
        recorded = run(environment_, server, samples=1)

    assert essence(sorted(bare, key=lambda one: one["task"]["data"]["idx"])) == essence(
        sorted(recorded, key=lambda one: one["task"]["data"]["idx"])
    )
    assert sorted(map(json.dumps, requests)) == sorted(map(json.dumps, server.requests))


def test_a_failing_model_is_recorded(server: Any) -> None:
    """
    The call has the error, and the episode says where it came from.
    """
    with mttp.configure("memory://") as session:
        with mttp.instrument(environment_ := environment()):
            run(environment_, server, model="broken", samples=1)
        episodes = list(mttp.read(session))

    assert ["error"] * 3 == [episode.status for episode in episodes]
    assert all(str(episode.stop_reason).endswith("_error") for episode in episodes)


def test_all_environments_are_recorded_once(server: Any) -> None:
    """
    Also where one of them is instrumented itself, and again after a detach.
    """
    with mttp.configure("memory://") as session:
        with integration.attach_all(), mttp.instrument(environment_ := environment(), policy="mine"):
            run(environment_, server, samples=1)
        run(environment_, server, samples=1)
        episodes = list(mttp.read(session))

    assert 3 == len(episodes)
    assert {"mine"} == {episode.policy for episode in episodes}


def test_a_failing_hook_harms_nothing(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The episode is lost and counted.
    """

    def broken(_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(format_, "episode", broken)
    with mttp.configure("memory://") as session, mttp.instrument(environment_ := environment()):
        saved = run(environment_, server, samples=1)

    assert 3 == len(saved)
    assert {"integration_error": 3} == session.stats.faults


def test_another_object_of_the_library_is_refused() -> None:
    """
    The message says what can be instrumented.
    """
    with pytest.raises(InstrumentError, match="give an environment of verifiers"):
        mttp.instrument(environment().taskset)


def test_the_example_runs(tmp_path: Path) -> None:
    """
    It takes seconds and needs neither a model nor a sandbox.
    """
    script = str(EXAMPLES / "verifiers_sums.py")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "<Recording of 6 episodes, 1 run, 0 problems" in done.stdout

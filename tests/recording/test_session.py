"""A session is one run: how it begins, what it says of itself, and that nothing happens after its end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from exporters import Exporter

import mttp
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a
from mttp.testing import Behaviour, OtlpReceiver


def run_of(source: Any) -> mttp.model.Run:
    """The one run of a recording."""
    (run,) = mttp.read(source).runs
    return run


def test_a_run_says_what_it_was_given() -> None:
    """
    Name, kind, seed, algorithm and configuration stand on the run's own span.
    """
    config = {"lr": 3e-4, "layers": [64, 64], "name": "ü"}
    with mttp.configure(
        "memory://", run="r", run_id="run-7", kind="eval", seed=3, config=config, algorithm="grpo"
    ) as session:
        pass

    run = run_of(session)
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    assert ("run-7", "r", "eval", 3, "grpo", config, "completed", True) == (
        run.id,
        run.name,
        run.kind,
        run.seed,
        run.algorithm,
        run.config,
        run.status,
        run.complete,
    )
    assert hashlib.sha256(canonical.encode()).hexdigest() == run.config_sha256


def test_every_span_says_which_run_it_belongs_to(session: mttp.Session) -> None:
    """
    By its resource and by an attribute of its own, with the convention's schema.
    """
    with mttp.episode() as episode, episode.step():
        pass

    records = list(session.records())
    assert {session.run_id} == {record.attributes[a.RUN_ID] for record in records}
    assert {session.run_id} == {record.scope.resource[a.RUN_ID] for record in records}
    assert {("mttp", mttp.__version__, SCHEMA_URL)} == {
        (record.scope.name, record.scope.version, record.scope.schema_url) for record in records
    }


@pytest.mark.parametrize(
    ("variables", "service"),
    [
        ({}, "mttp"),
        ({"OTEL_SERVICE_NAME": "trainer"}, "trainer"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=other,team=rl"}, "other"),
    ],
)
def test_the_service_is_named_as_opentelemetry_is_told(
    variables: dict[str, str], service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The SDK's variables mean what they always mean.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with mttp.configure("memory://") as session, mttp.episode():
        pass

    resource = next(session.records()).scope.resource
    assert service == resource["service.name"]
    assert ("rl" if "OTEL_RESOURCE_ATTRIBUTES" in variables else None) == resource.get("team")


def test_the_configuration_is_that_of_the_start() -> None:
    """
    What becomes of the object afterwards is not recorded.
    """
    config = {"lr": 1.0}
    session = mttp.configure("memory://", config=config)
    config["lr"] = 2.0
    session.close()

    assert {"lr": 1.0} == run_of(session).config


class Odd:
    """What JSON can't say."""

    def __repr__(self) -> str:
        return "<odd>"


class Broken:
    """What nobody can look at."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    @property
    def tolist(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"a": {1, 2}, "b": b"\x00"}, {"a": [1, 2], "b": "b'\\x00'"}),
        ({"odd": Odd()}, {"odd": "<odd>"}),
        (Odd(), "<odd>"),
        ({1: {"2": float("inf")}}, {"1": {"2": float("inf")}}),
        ([], []),
        ("text", "text"),
    ],
)
def test_a_configuration_that_json_can_not_say_is_kept_as_far_as_it_can_be(config: Any, kept: Any) -> None:
    """
    A run does not fail over its description.
    """
    with mttp.configure("memory://", config=config) as session:
        pass

    assert kept == run_of(session).config


def test_a_configuration_that_can_not_be_read_is_a_fault(session: mttp.Session) -> None:
    """
    The run is recorded without it.
    """
    session.close()
    with mttp.configure("memory://", config=Broken(), run="r") as other:
        pass

    run = run_of(other)
    assert ("r", "completed") == (run.name, run.status)
    assert run.config is None or "Broken" in str(run.config)
    assert run.faults


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "completed"),
        (ValueError("x"), "error"),
        (KeyboardInterrupt(), "aborted"),
        (SystemExit(1), "aborted"),
    ],
)
def test_leaving_the_block_says_how_the_run_ended(error: BaseException | None, status: str) -> None:
    """
    An exception goes on its way, and marks the run.
    """
    caught: BaseException | None = None
    try:
        with mttp.configure("memory://") as session:
            if error is not None:
                raise error
    except BaseException as raised:
        caught = raised

    assert error is caught
    assert status == run_of(session).status


def test_the_block_may_be_async() -> None:
    """
    An async training loop has the same session.
    """

    async def train() -> mttp.Session:
        async with mttp.configure("memory://") as session, mttp.episode(task="a") as episode, episode.step():
            await asyncio.sleep(0)
        return session

    session = asyncio.run(train())

    assert session.closed
    assert ["a"] == [episode.task for episode in mttp.read(session)]


def test_after_its_end_a_session_takes_everything_and_does_nothing() -> None:
    """
    No call raises, nothing is recorded, nothing is counted.
    """
    session = mttp.configure("memory://")
    session.close()
    before = session.stats.as_dict()

    episode = session.episode(env="late")
    with episode, episode.step() as step:
        step.reward(1.0)
    recorded = session.record(mttp.Episode(env="late"))
    outside = mttp.episode(env="late")
    again = (session.flush(), session.close(), session.closed)

    assert (False, False, False) == (bool(episode), bool(recorded), bool(outside))
    assert (True, True, True) == again
    assert before == session.stats.as_dict()
    assert [] == mttp.read(session).episodes


def test_a_session_says_where_it_records() -> None:
    """
    Its repr has the run, the transport, and whether it is open.
    """
    session = mttp.configure("memory://", run_id="r1")
    opened = repr(session)
    session.close()

    assert ("<mttp.Session r1 on memory://, open>", "<mttp.Session r1 on memory://, closed>") == (
        opened,
        repr(session),
    )


def test_faults_are_counted_and_the_first_of_a_kind_is_logged(
    session: mttp.Session, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A training loop that does something wrong a million times fills no log.
    """
    with mttp.episode() as episode:
        for _ in range(5):
            episode.metric("bad", "text")  # type: ignore[arg-type]

    assert 5 == session.stats.faults["metric_invalid"]
    assert 1 == len(caplog.messages)
    assert "metric_invalid" in caplog.messages[0]
    assert "not logged again" in caplog.messages[0]


def test_a_session_that_fails_within_counts_it(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Not even a bug of ours reaches the training loop.
    """
    monkeypatch.setattr("mttp.recording.session.OpenEpisode", lambda *args, **facts: 1 / 0)
    monkeypatch.setattr("mttp.recording.session.record_value.record", lambda *args, **facts: 1 / 0)

    assert not session.episode()
    assert not session.record(mttp.Episode())
    assert 2 == session.stats.faults["internal_error"]


def test_closing_from_many_threads_closes_once() -> None:
    """
    A signal handler, an atexit handler and a `with` block may all do it.
    """
    exporter = Exporter()
    session = mttp.configure(exporter)
    threads = [threading.Thread(target=session.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (["run"], 1) == (exporter.names(), exporter.shutdowns)


def test_indices_are_those_of_the_session(session: mttp.Session) -> None:
    """
    Episodes are numbered as they start, in all threads.
    """
    threads = [threading.Thread(target=lambda: mttp.episode().end()) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(20)) == sorted(episode.index or 0 for episode in mttp.read(session))
    assert 20 == session.stats.episodes


def test_the_working_directory_may_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As it is when a job's scratch directory was cleaned: recording works all the same.
    """
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with mttp.configure("memory://") as session, mttp.episode():
        pass

    assert 1 == len(mttp.read(session))
    monkeypatch.chdir(tmp_path)


def test_what_a_receiver_turns_down_is_not_delivered() -> None:
    """
    flush() and close() are false where a receiver answers 401; flush() is true once it takes things again.
    """
    with OtlpReceiver() as receiver:
        receiver.behave(Behaviour(status=401), forever=True)
        session = mttp.configure(receiver.http_address)
        with mttp.episode(env="refused"):
            pass

        assert not session.flush()
        assert session.stats.lost

        receiver.behave(Behaviour(), forever=True)
        with mttp.episode(env="taken"):
            pass

        assert session.flush()
        assert not session.close()

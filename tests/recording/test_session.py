"""A session is one run, with a start, facts and an end."""

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
    """Return the run of a recording."""
    (run,) = mttp.read(source).runs
    return run


def test_a_run_has_the_facts_of_configure() -> None:
    """
    Name, kind, seed, algorithm and configuration are on the run span.
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


def test_every_span_has_the_run_id(session: mttp.Session) -> None:
    """
    It is in the resource and in an attribute; spans have the convention's schema.
    """
    with mttp.episode() as episode, episode.step():
        pass

    records = list(session.records())
    assert {session.run_id} == {record.attributes[a.RUN_ID] for record in records}
    assert {session.run_id} == {record.scope.resource[a.RUN_ID] for record in records}
    assert {("mttp", mttp.__version__, SCHEMA_URL)} == {
        (record.scope.name, record.scope.version, record.scope.schema_url) for record in records
    }


def test_the_resource_tells_evaluation_from_training() -> None:
    """
    Spans of an evaluation's episodes have no attribute for it.
    """
    with mttp.configure("memory://", kind="eval") as session, mttp.episode():
        pass

    assert {"eval"} == {record.scope.resource[a.RUN_KIND] for record in session.records()}


@pytest.mark.parametrize(
    ("variables", "service"),
    [
        ({}, "mttp"),
        ({"OTEL_SERVICE_NAME": "trainer"}, "trainer"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=other,team=rl"}, "other"),
    ],
)
def test_the_service_name_comes_from_opentelemetry_s_variables(
    variables: dict[str, str], service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    They have the meaning that the SDK gives them.
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
    Later changes of the object are not recorded.
    """
    config = {"lr": 1.0}
    session = mttp.configure("memory://", config=config)
    config["lr"] = 2.0
    session.close()

    assert {"lr": 1.0} == run_of(session).config


class Odd:
    """An object that JSON can't represent."""

    def __repr__(self) -> str:
        return "<odd>"


class Broken:
    """An object that raises when it is read."""

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
def test_a_configuration_that_json_can_t_represent_is_kept_as_text(config: Any, kept: Any) -> None:
    """
    The run does not fail.
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
def test_an_exception_in_the_block_is_the_run_s_status(error: BaseException | None, status: str) -> None:
    """
    The exception is raised.
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


def test_a_closed_session_accepts_every_call() -> None:
    """
    No call raises, and nothing is recorded or counted.
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


def test_the_repr_of_a_session_has_its_transport() -> None:
    """
    It also has the run id, and whether the session is open.
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
    A fault that occurs a million times does not fill the log.
    """
    with mttp.episode() as episode:
        for _ in range(5):
            episode.metric("bad", "text")  # type: ignore[arg-type]

    assert 5 == session.stats.faults["metric_invalid"]
    assert 1 == len(caplog.messages)
    assert "metric_invalid" in caplog.messages[0]
    assert "not logged again" in caplog.messages[0]


def test_an_internal_error_of_a_session_is_counted(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    It never reaches the training loop.
    """
    monkeypatch.setattr("mttp.recording.session.OpenEpisode", lambda *args, **facts: 1 / 0)
    monkeypatch.setattr("mttp.recording.session.record_value.record", lambda *args, **facts: 1 / 0)

    assert not session.episode()
    assert not session.record(mttp.Episode())
    assert 2 == session.stats.faults["internal_error"]


def test_closing_from_many_threads_closes_once() -> None:
    """
    A signal handler, an atexit handler and a `with` block may close a session at the same time.
    """
    exporter = Exporter()
    session = mttp.configure(exporter)
    threads = [threading.Thread(target=session.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (["run"], 1) == (exporter.names(), exporter.shutdowns)


def test_episodes_are_numbered_in_the_session(session: mttp.Session) -> None:
    """
    They are numbered as they start, in all threads.
    """
    threads = [threading.Thread(target=lambda: mttp.episode().end()) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(20)) == sorted(episode.index or 0 for episode in mttp.read(session))
    assert 20 == session.stats.episodes


def test_recording_works_in_a_deleted_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A job's scratch directory may be removed while it runs.
    """
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with mttp.configure("memory://") as session, mttp.episode():
        pass

    assert 1 == len(mttp.read(session))
    monkeypatch.chdir(tmp_path)


def test_spans_that_a_receiver_rejects_are_not_delivered() -> None:
    """
    flush() and close() return False after a 401; flush() returns True once the receiver accepts spans again.
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

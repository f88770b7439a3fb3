"""`configure`, the variables, and the implicit session."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from exporters import Exporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from polling import eventually

import mttp
from mttp.errors import ConfigureError, TransportError
from mttp.recording import configuration
from mttp.testing import OtlpReceiver


def python(code: str, *, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process."""
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


# Configuring.


@pytest.mark.parametrize(("content", "is_told"), [(None, True), (False, False), (True, False)])
def test_content_that_a_receiver_does_not_get_is_told(
    content: bool | None, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Once, by the process that starts the run, where the program has not decided; and nothing of a file.
    """
    with (
        OtlpReceiver() as receiver,
        mttp.configure([receiver.http_address, "file://a.jsonl"], content=content),
    ):
        address = receiver.http_address
        told = capsys.readouterr().err
        here = python("import mttp; mttp.configure()", cwd=Path.cwd()).stderr
    with mttp.configure("file://b.jsonl"):
        pass

    assert (is_told, "") == ("content=True" in told, here)
    assert is_told == (address in told)
    assert "" == capsys.readouterr().err


def test_configuring_twice_raises_with_the_open_session() -> None:
    """
    A process has one configured session at a time.
    """
    with mttp.configure("memory://", run_id="first"):
        with pytest.raises(
            ConfigureError, match=r"<mttp.Session first on memory://, open> is open; close it"
        ):
            mttp.configure("memory://")
        assert "first" == mttp.current_session().run_id  # type: ignore[union-attr]


def test_another_session_can_be_configured_after_a_close() -> None:
    """
    A process can record several runs, one after the other.
    """
    ids = []
    for _ in range(3):
        with mttp.configure("memory://") as session:
            assert session is mttp.current_session()
            ids.append(session.run_id)
        assert mttp.current_session() is None

    assert 3 == len(set(ids))


def test_a_failed_configure_leaves_no_session(tmp_path: Path) -> None:
    """
    `configure` raises, and can be called again.
    """
    (tmp_path / "occupied").write_text("")
    with pytest.raises(TransportError):
        mttp.configure("file://occupied/a.jsonl")
    assert mttp.current_session() is None
    assert not {name for name in os.environ if name.startswith("MTTP_")}

    with mttp.configure("memory://"):
        assert mttp.episode()


@pytest.mark.parametrize("kind", ["test", "", "Train"])
def test_an_unknown_kind_of_run_is_an_error(kind: str) -> None:
    """
    The message lists the valid kinds.
    """
    with pytest.raises(ConfigureError, match=f"kind '{kind}' is not one of train, eval, replay"):
        mttp.configure("memory://", kind=kind)


@pytest.mark.parametrize("transport", [3, object(), [3], InMemorySpanExporter, b"memory://"])
def test_an_object_without_export_is_not_a_transport(transport: Any) -> None:
    """
    The class of an exporter is not an exporter.
    """
    with pytest.raises(ConfigureError, match="neither an address nor an object that exports spans"):
        mttp.configure(transport)


@pytest.mark.parametrize("name", ["a.jsonl", "100%41 ?#.jsonl", "ü.jsonl.gz"])
def test_a_path_is_not_parsed_as_an_address(name: str, tmp_path: Path) -> None:
    """
    Special characters of addresses are part of the file's name.
    """
    with mttp.configure(tmp_path / name):
        pass

    assert [name] == [path.name for path in tmp_path.iterdir()]


def test_a_path_may_be_a_directory(tmp_path: Path) -> None:
    """
    An existing directory is used as it is for an address.
    """
    (tmp_path / "runs").mkdir()
    with mttp.configure(tmp_path / "runs"):
        pass

    assert 1 == len(list((tmp_path / "runs").iterdir()))


def test_the_default_transport_is_a_directory_per_run(tmp_path: Path) -> None:
    """
    It is below `mttp-runs` and named by the run id.
    """
    with mttp.configure() as session, mttp.episode(task="a"):
        pass

    (directory,) = (tmp_path / "mttp-runs").iterdir()
    assert session.run_id == directory.name
    assert ["a"] == [episode.task for episode in mttp.read(directory)]


# Variables.


def test_a_variable_names_the_default_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An argument has precedence.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", "file://variable.jsonl")
    with mttp.configure() as session:
        from_variable = repr(session.transport)
    with mttp.configure("memory://") as session:
        given = repr(session.transport)

    assert (f"file://{Path.cwd()}/variable.jsonl", "memory://") == (from_variable, given)


def test_a_wrong_variable_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    `configure` raises with the variable's name.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", "nowhere://")

    with pytest.raises(TransportError, match=r"^MTTP_TRANSPORT: transport 'nowhere://': unknown scheme"):
        mttp.configure()


@pytest.mark.parametrize(
    ("stated", "opened"),
    [(" memory:// ", 1), ("memory:// , memory://\n", 2), ("\tmemory://,memory://", 2)],
)
def test_blanks_in_a_variable_are_ignored(stated: str, opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Blanks may be around an address, and around the commas between several.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", stated)
    monkeypatch.setenv("MTTP_RUN_ID", "  ")

    with mttp.configure() as session:
        assert ["memory://"] * opened == [repr(transport) for transport in session.transports]
        assert session.run_id.strip()


def test_a_blank_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The default directory is used.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", "  ")

    with mttp.configure() as session:
        assert "mttp-runs" in repr(session.transport)


@pytest.mark.parametrize("value", ["true", "TRUE", " True "])
def test_otel_sdk_disabled_turns_recording_off(
    value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    All calls work and do nothing; not even a wrong address is checked.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", value)

    with mttp.configure("file://x/") as session, mttp.episode() as episode, episode.step() as step:
        step.reward(1.0)
    assert not mttp.episode()

    assert (True, False, 0) == (session.closed, bool(episode), session.stats.spans)
    assert [] == list(tmp_path.iterdir())
    assert "MTTP_RUN_ID" not in os.environ


def test_otel_sdk_disabled_turns_an_implicit_session_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Nothing is printed.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    for _ in range(2):
        assert not mttp.episode()

    assert ([], "") == (list(tmp_path.iterdir()), capsys.readouterr().err)


@pytest.mark.parametrize("value", ["false", "1", ""])
def test_otel_sdk_disabled_has_effect_only_as_true(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    This is OpenTelemetry's rule.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", value)

    with mttp.configure("memory://"):
        assert mttp.episode()


def test_a_new_run_id_is_published_for_child_processes() -> None:
    """
    The variable is set while the session is open.
    """
    with mttp.configure("memory://") as session:
        during = os.environ.get("MTTP_RUN_ID")

    assert (session.run_id, None) == (during, os.environ.get("MTTP_RUN_ID"))
    assert 16 == len(session.run_id)


@pytest.mark.parametrize(
    ("argument", "variable", "launched", "expected"),
    [
        ("given", "variable", "torch", "given"),
        (None, "variable", "torch", "variable"),
        (None, None, "torch", "torch"),
    ],
)
def test_a_given_run_id_is_used(
    argument: str | None, variable: str | None, launched: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The argument has precedence over the variable, and that over the launcher; the variable is restored.
    """
    if variable is not None:
        monkeypatch.setenv("MTTP_RUN_ID", variable)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": launched}.items():
        monkeypatch.setenv(name, value)

    with mttp.configure("memory://", run_id=argument) as session:
        during = os.environ["MTTP_RUN_ID"]

    assert (expected, expected, variable) == (session.run_id, during, os.environ.get("MTTP_RUN_ID"))


def test_closing_restores_only_unchanged_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A variable that the program has changed meanwhile keeps its value.
    """
    session = mttp.configure("memory://")
    monkeypatch.setenv("MTTP_RUN_ID", "changed")
    session.close()

    assert "changed" == os.environ["MTTP_RUN_ID"]


def test_the_transport_is_published_for_child_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    A file or directory is published as an absolute address; memory is not published.
    """
    with mttp.configure("file://runs/?max_bytes=5MB"):
        assert f"file://{tmp_path}/runs/?max_bytes=5000000" == os.environ["MTTP_TRANSPORT"]
    assert "MTTP_TRANSPORT" not in os.environ

    with mttp.configure("memory://"):
        assert "MTTP_TRANSPORT" not in os.environ


@pytest.mark.parametrize(
    ("variables", "rank", "world_size", "attempt"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8"}, 3, 8, None),
        ({"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "2"}, 3, 8, 2),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1", "SLURM_RESTART_COUNT": "1"}, 1, 4, 1),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, None, None, None),
        ({"RANK": "x", "WORLD_SIZE": "8"}, None, 8, None),
        ({"RANK": "3"}, None, None, None),
        ({}, None, None, None),
    ],
)
def test_rank_and_world_size_come_from_the_launcher(
    variables: dict[str, str],
    rank: int | None,
    world_size: int | None,
    attempt: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    The variables are torchrun's or Slurm's; values that are not numbers are ignored.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with mttp.configure("memory://") as session:
        pass

    (run,) = mttp.read(session).runs
    assert (rank, world_size, attempt) == (run.rank, run.world_size, run.attempt)


def test_the_processes_of_a_slurm_job_share_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The run id is made from the job id.
    """
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_ID", "77")

    with mttp.configure("memory://") as session:
        assert "slurm-77" == session.run_id


@pytest.mark.parametrize("run_id", ["none", ""])
def test_torchrun_s_default_id_is_not_a_run_id(run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The default "none" is equal for all runs.
    """
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": run_id}.items():
        monkeypatch.setenv(name, value)

    with mttp.configure("memory://") as session:
        assert 16 == len(session.run_id)


# The implicit session.


def test_an_implicit_session_prints_its_transport_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    A program that only calls `mttp.episode` gets a log line with the path of its recording.
    """
    for number in range(3):
        with mttp.episode(task=number), mttp.step():
            pass
    session = mttp.current_session()
    assert session is not None
    session.close()

    (directory,) = (tmp_path / "mttp-runs").iterdir()
    message = f"mttp: recording episodes to file://{directory}/\n"
    assert message == capsys.readouterr().err
    assert 3 == len(mttp.read(directory))


def test_configure_closes_an_implicit_session(tmp_path: Path) -> None:
    """
    The spans that it recorded stay in its file.
    """
    with mttp.episode(task="before"):
        pass
    implicit = mttp.current_session()
    with mttp.configure("memory://") as session, mttp.episode(task="after"):
        pass

    assert implicit is not None
    assert implicit.closed
    assert ["before"] == [episode.task for episode in mttp.read(tmp_path / "mttp-runs" / implicit.run_id)]
    assert ["after"] == [episode.task for episode in mttp.read(session)]
    assert implicit.run_id != session.run_id


def test_no_implicit_session_starts_after_a_configured_one(tmp_path: Path) -> None:
    """
    A closed session stays closed.
    """
    mttp.configure("memory://").close()

    assert not mttp.episode()
    assert [] == list(tmp_path.iterdir())


def test_a_closed_implicit_session_stays_closed() -> None:
    """
    No other one starts.
    """
    mttp.episode().end()
    session = mttp.current_session()
    assert session is not None
    session.close()

    assert not mttp.episode()


@pytest.mark.parametrize("address", [None, "nowhere://", "file://occupied/a.jsonl"])
def test_a_failed_implicit_session_is_logged_once(
    address: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    Calls do nothing and do not raise.
    """
    (tmp_path / "mttp-runs").write_text("in the way")
    (tmp_path / "occupied").write_text("in the way")
    if address is not None:
        monkeypatch.setenv("MTTP_TRANSPORT", address)

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with mttp.episode() as episode, mttp.step() as step:
                step.reward(1.0)
            assert not episode

    assert 1 == len(caplog.messages)
    named = "" if address is None else "MTTP_TRANSPORT: "
    assert caplog.messages[0].startswith(f"mttp: nothing is recorded: {named}transport ")
    assert "" == capsys.readouterr().err

    with mttp.configure("memory://"):
        assert mttp.episode()


def test_any_error_of_an_implicit_session_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    An unexpected exception does not reach the training loop.
    """
    monkeypatch.setattr("mttp.transports.routes.transports.open", lambda url, **options: 1 / 0)

    assert not mttp.episode()
    assert ["mttp: nothing is recorded: division by zero"] == caplog.messages


def test_threads_that_start_together_start_one_session() -> None:
    """
    Several threads may record their first episodes at the same time.
    """
    barrier = threading.Barrier(8)
    runs: list[str] = []

    def play() -> None:
        barrier.wait()
        with mttp.episode() as episode:
            runs.append(episode.run_id)

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (8, 1) == (len(runs), len(set(runs)))


def test_a_step_outside_an_episode_is_counted(session: mttp.Session) -> None:
    """
    The step does nothing.
    """
    with mttp.step() as step:
        step.reward(1.0)

    assert not step
    assert 1 == session.stats.faults["step_outside_episode"]


def test_forget_returns_to_the_state_of_a_new_process() -> None:
    """
    Tests use it.
    """
    session = mttp.configure("memory://")
    configuration.forget()

    assert session.closed
    assert mttp.current_session() is None
    assert mttp.episode()


def test_closed_sessions_leak_nothing() -> None:
    """
    Variables are restored, transports are shut down, and threads end.
    """
    before = dict(os.environ)
    exporters: Sequence[Exporter] = [Exporter() for _ in range(5)]
    for exporter in exporters:
        with mttp.configure(exporter), mttp.episode():
            pass

    assert before == dict(os.environ)
    assert [1] * 5 == [exporter.shutdowns for exporter in exporters]
    assert eventually(lambda: "mttp-flush" not in {thread.name for thread in threading.enumerate()})


# The end of a process.


def test_a_session_is_closed_at_exit(tmp_path: Path) -> None:
    """
    The last spans are written, and the run has its end.
    """
    done = python(
        "import mttp\nmttp.configure('file://a.jsonl')\nfor i in range(3): mttp.episode(task=i).end()",
        cwd=tmp_path,
    )

    recording = mttp.read(tmp_path / "a.jsonl")
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert ["0", "1", "2"] == [episode.task for episode in recording]
    assert ["completed"] == [run.status for run in recording.runs]


def test_a_session_that_starts_during_exit_is_written(tmp_path: Path) -> None:
    """
    No thread can start any more, and spans are written all the same.
    """
    done = python(
        "import atexit, mttp\n"
        "def last():\n"
        "  with mttp.episode(task='last'): pass\n"
        "session = mttp.configure('file://a.jsonl')\n"
        "atexit.register(last)",
        cwd=tmp_path,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert ["last"] == [episode.task for episode in mttp.read(tmp_path / "a.jsonl")]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("raise ValueError('x')", "error"),
        ("raise KeyboardInterrupt", "aborted"),
        ("import sys; sys.exit(3)", "completed"),
    ],
)
def test_an_uncaught_exception_is_the_run_s_status(end: str, status: str, tmp_path: Path) -> None:
    """
    This needs no `with` block.
    """
    done = python(f"import mttp\nmttp.configure('file://a.jsonl')\n{end}", cwd=tmp_path)

    assert 0 != done.returncode
    assert [status] == [run.status for run in mttp.read(tmp_path / "a.jsonl").runs]


def test_an_implicit_session_is_closed_at_exit(tmp_path: Path) -> None:
    """
    The shortest program records its episode.
    """
    done = python("import mttp\nwith mttp.episode(): pass", cwd=tmp_path)

    recording = mttp.read(tmp_path / "mttp-runs")
    assert (1, ["completed"]) == (len(recording), [run.status for run in recording.runs])
    assert 1 == done.stderr.count("mttp: recording episodes to file://")


def test_a_child_process_joins_the_run(tmp_path: Path) -> None:
    """
    For example an evaluation script that training starts in another directory.
    """
    (tmp_path / "elsewhere").mkdir()
    with mttp.configure("file://runs/", run_id="shared"), mttp.episode(task="parent"):
        done = python("import mttp\nwith mttp.episode(task='child'): pass", cwd=tmp_path / "elsewhere")

    recording = mttp.read(tmp_path / "runs")
    assert 0 == done.returncode
    found = {(episode.task, episode.run_id) for episode in recording}
    assert {("parent", "shared"), ("child", "shared")} == found
    assert ["shared", "shared"] == [run.id for run in recording.runs]

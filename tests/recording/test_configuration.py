"""Recording is turned on by one call, by variables, or by itself; and off again."""

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


def python(code: str, *, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own."""
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


# Configuring.


def test_configuring_twice_names_the_session_that_is_open() -> None:
    """
    Two recordings of one process would each have half of it.
    """
    with mttp.configure("memory://", run_id="first"):
        with pytest.raises(
            ConfigureError, match=r"<mttp.Session first on memory://, open> is open; close it"
        ):
            mttp.configure("memory://")
        assert "first" == mttp.current_session().run_id  # type: ignore[union-attr]


def test_after_closing_another_may_be_configured() -> None:
    """
    One run after another in one process.
    """
    ids = []
    for _ in range(3):
        with mttp.configure("memory://") as session:
            assert session is mttp.current_session()
            ids.append(session.run_id)
        assert mttp.current_session() is None

    assert 3 == len(set(ids))


def test_a_failure_leaves_nothing_configured(tmp_path: Path) -> None:
    """
    Set-up fails loudly, and can be tried again.
    """
    (tmp_path / "occupied").write_text("")
    with pytest.raises(TransportError):
        mttp.configure("file://occupied/a.jsonl")
    assert mttp.current_session() is None
    assert not {name for name in os.environ if name.startswith("MTTP_")}

    with mttp.configure("memory://"):
        assert mttp.episode()


@pytest.mark.parametrize("kind", ["test", "", "Train"])
def test_a_kind_of_run_that_nobody_knows_is_refused(kind: str) -> None:
    """
    The message lists those that there are.
    """
    with pytest.raises(ConfigureError, match=f"kind '{kind}' is not one of train, eval, replay"):
        mttp.configure("memory://", kind=kind)


@pytest.mark.parametrize("transport", [3, object(), [3], InMemorySpanExporter, b"memory://"])
def test_what_can_not_export_is_no_transport(transport: Any) -> None:
    """
    The class of an exporter is not an exporter.
    """
    with pytest.raises(ConfigureError, match="neither an address nor an object that exports spans"):
        mttp.configure(transport)


@pytest.mark.parametrize("name", ["a.jsonl", "100%41 ?#.jsonl", "ü.jsonl.gz"])
def test_a_path_is_a_path_whatever_is_in_its_name(name: str, tmp_path: Path) -> None:
    """
    Nothing in it is taken for an address's syntax.
    """
    with mttp.configure(tmp_path / name):
        pass

    assert [name] == [path.name for path in tmp_path.iterdir()]


def test_a_path_may_be_a_directory(tmp_path: Path) -> None:
    """
    As with an address, where it is there already.
    """
    (tmp_path / "runs").mkdir()
    with mttp.configure(tmp_path / "runs"):
        pass

    assert 1 == len(list((tmp_path / "runs").iterdir()))


def test_by_default_a_run_has_a_directory_of_its_own(tmp_path: Path) -> None:
    """
    Below `mttp-runs`, by its id.
    """
    with mttp.configure() as session, mttp.episode(task="a"):
        pass

    (directory,) = (tmp_path / "mttp-runs").iterdir()
    assert session.run_id == directory.name
    assert ["a"] == [episode.task for episode in mttp.read(directory)]


# Variables.


def test_the_transport_may_be_told_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An argument overrules it.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", "file://told.jsonl")
    with mttp.configure() as session:
        told = repr(session.transport)
    with mttp.configure("memory://") as session:
        given = repr(session.transport)

    assert (f"file://{Path.cwd()}/told.jsonl", "memory://") == (told, given)


def test_a_wrong_variable_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Whoever configures hears of it.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", "nowhere://")

    with pytest.raises(TransportError, match=r"^MTTP_TRANSPORT: transport 'nowhere://': unknown scheme"):
        mttp.configure()


@pytest.mark.parametrize(
    ("stated", "opened"),
    [(" memory:// ", 1), ("memory:// , memory://\n", 2), ("\tmemory://,memory://", 2)],
)
def test_blanks_in_a_variable_mean_nothing(stated: str, opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A file of variables may have them around an address, and around the commas between several.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", stated)
    monkeypatch.setenv("MTTP_RUN_ID", "  ")

    with mttp.configure() as session:
        assert ["memory://"] * opened == [repr(transport) for transport in session.transports]
        assert session.run_id.strip()


def test_a_variable_of_blanks_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The default directory is recorded to.
    """
    monkeypatch.setenv("MTTP_TRANSPORT", "  ")

    with mttp.configure() as session:
        assert "mttp-runs" in repr(session.transport)


@pytest.mark.parametrize("value", ["true", "TRUE", " True "])
def test_opentelemetrys_switch_turns_recording_off(
    value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    Everything works and does nothing; not even a wrong address is looked at.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", value)

    with mttp.configure("file://x/") as session, mttp.episode() as episode, episode.step() as step:
        step.reward(1.0)
    assert not mttp.episode()

    assert (True, False, 0) == (session.closed, bool(episode), session.stats.spans)
    assert [] == list(tmp_path.iterdir())
    assert "MTTP_RUN_ID" not in os.environ


def test_the_switch_turns_recording_that_starts_by_itself_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Silently.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    for _ in range(2):
        assert not mttp.episode()

    assert ([], "") == (list(tmp_path.iterdir()), capsys.readouterr().err)


@pytest.mark.parametrize("value", ["false", "1", ""])
def test_the_switch_is_on_true_only(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As OpenTelemetry has it.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", value)

    with mttp.configure("memory://"):
        assert mttp.episode()


def test_a_run_id_is_minted_and_handed_to_children() -> None:
    """
    By a variable, for as long as the session is open.
    """
    with mttp.configure("memory://") as session:
        during = os.environ.get("MTTP_RUN_ID")

    assert (session.run_id, None) == (during, os.environ.get("MTTP_RUN_ID"))
    assert 16 == len(session.run_id)


@pytest.mark.parametrize(
    ("argument", "variable", "launched", "expected"),
    [
        ("given", "told", "torch", "given"),
        (None, "told", "torch", "told"),
        (None, None, "torch", "torch"),
    ],
)
def test_a_run_id_that_is_given_is_taken(
    argument: str | None, variable: str | None, launched: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    By argument, by variable, by the launcher, in this order; children are told, and the variable is put back.
    """
    if variable is not None:
        monkeypatch.setenv("MTTP_RUN_ID", variable)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": launched}.items():
        monkeypatch.setenv(name, value)

    with mttp.configure("memory://", run_id=argument) as session:
        during = os.environ["MTTP_RUN_ID"]

    assert (expected, expected, variable) == (session.run_id, during, os.environ.get("MTTP_RUN_ID"))


def test_a_variable_that_somebody_else_changed_meanwhile_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Closing puts back only what it set.
    """
    session = mttp.configure("memory://")
    monkeypatch.setenv("MTTP_RUN_ID", "theirs")
    session.close()

    assert "theirs" == os.environ["MTTP_RUN_ID"]


def test_children_are_told_where_to_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    A file or directory by its absolute address; memory is of no use to them.
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
def test_the_launcher_says_which_part_of_the_run_a_process_is(
    variables: dict[str, str],
    rank: int | None,
    world_size: int | None,
    attempt: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    torchrun's variables or Slurm's; what is not a number is not taken for one.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with mttp.configure("memory://") as session:
        pass

    (run,) = mttp.read(session).runs
    assert (rank, world_size, attempt) == (run.rank, run.world_size, run.attempt)


def test_the_processes_of_a_slurm_job_share_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    By the job's id.
    """
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_ID", "77")

    with mttp.configure("memory://") as session:
        assert "slurm-77" == session.run_id


@pytest.mark.parametrize("run_id", ["none", ""])
def test_torchrun_without_an_id_shares_none(run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Its default would make every run of everybody the same one.
    """
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": run_id}.items():
        monkeypatch.setenv(name, value)

    with mttp.configure("memory://") as session:
        assert 16 == len(session.run_id)


# A session that starts by itself.


def test_recording_starts_by_itself_and_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Whoever only calls `mttp.episode` finds a recording, and is told where.
    """
    for number in range(3):
        with mttp.episode(task=number), mttp.step():
            pass
    session = mttp.current_session()
    assert session is not None
    session.close()

    (directory,) = (tmp_path / "mttp-runs").iterdir()
    told = f"mttp: recording episodes to file://{directory}/\n"
    assert told == capsys.readouterr().err
    assert 3 == len(mttp.read(directory))


def test_a_session_that_started_by_itself_gives_way(tmp_path: Path) -> None:
    """
    What it recorded so far stays where it is.
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


def test_after_a_configured_session_none_starts_by_itself(tmp_path: Path) -> None:
    """
    Who closed it meant it.
    """
    mttp.configure("memory://").close()

    assert not mttp.episode()
    assert [] == list(tmp_path.iterdir())


def test_a_session_that_started_by_itself_and_was_closed_stays_closed() -> None:
    """
    Likewise.
    """
    mttp.episode().end()
    session = mttp.current_session()
    assert session is not None
    session.close()

    assert not mttp.episode()


@pytest.mark.parametrize("address", [None, "nowhere://", "file://occupied/a.jsonl"])
def test_where_nothing_can_be_recorded_the_loop_goes_on(
    address: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    A log line says why, once; every call does nothing.
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


def test_any_failure_to_start_by_itself_is_quiet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Even one that nobody thought of.
    """
    monkeypatch.setattr("mttp.transports.routes.transports.open", lambda url, **options: 1 / 0)

    assert not mttp.episode()
    assert ["mttp: nothing is recorded: division by zero"] == caplog.messages


def test_threads_that_start_together_start_one_session() -> None:
    """
    The first episodes of a vector of environments.
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
    It does nothing, and the counter tells.
    """
    with mttp.step() as step:
        step.reward(1.0)

    assert not step
    assert 1 == session.stats.faults["step_outside_episode"]


def test_forgetting_begins_anew() -> None:
    """
    For tests: nothing was ever configured.
    """
    session = mttp.configure("memory://")
    configuration.forget()

    assert session.closed
    assert mttp.current_session() is None
    assert mttp.episode()


def test_sessions_leave_nothing_behind() -> None:
    """
    However many there are in one process.
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


def test_a_process_that_just_ends_has_recorded_everything(tmp_path: Path) -> None:
    """
    Closing is not needed: what was recorded last is there, and the run has its end.
    """
    done = python(
        "import mttp\nmttp.configure('file://a.jsonl')\nfor i in range(3): mttp.episode(task=i).end()",
        cwd=tmp_path,
    )

    recording = mttp.read(tmp_path / "a.jsonl")
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert ["0", "1", "2"] == [episode.task for episode in recording]
    assert ["completed"] == [run.status for run in recording.runs]


def test_a_process_that_starts_recording_at_its_very_end_is_recorded(tmp_path: Path) -> None:
    """
    Where no thread can be started any more, what ended is written all the same.
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
def test_a_process_that_fails_has_a_run_that_says_so(end: str, status: str, tmp_path: Path) -> None:
    """
    Even without a `with` block around it.
    """
    done = python(f"import mttp\nmttp.configure('file://a.jsonl')\n{end}", cwd=tmp_path)

    assert 0 != done.returncode
    assert [status] == [run.status for run in mttp.read(tmp_path / "a.jsonl").runs]


def test_a_session_that_started_by_itself_is_closed_by_the_end(tmp_path: Path) -> None:
    """
    The shortest program there is.
    """
    done = python("import mttp\nwith mttp.episode(): pass", cwd=tmp_path)

    recording = mttp.read(tmp_path / "mttp-runs")
    assert (1, ["completed"]) == (len(recording), [run.status for run in recording.runs])
    assert 1 == done.stderr.count("mttp: recording episodes to file://")


def test_a_child_that_configures_nothing_joins_the_run(tmp_path: Path) -> None:
    """
    An evaluation script that training starts, say, in a directory of its own.
    """
    (tmp_path / "elsewhere").mkdir()
    with mttp.configure("file://runs/", run_id="shared"), mttp.episode(task="parent"):
        done = python("import mttp\nwith mttp.episode(task='child'): pass", cwd=tmp_path / "elsewhere")

    recording = mttp.read(tmp_path / "runs")
    assert 0 == done.returncode
    found = {(episode.task, episode.run_id) for episode in recording}
    assert {("parent", "shared"), ("child", "shared")} == found
    assert ["shared", "shared"] == [run.id for run in recording.runs]

"""Detected facts of a run; a failed detector is a fault."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp.codec.plain import Faults
from mttp.recording import provenance


def git(directory: Path, *arguments: str) -> str:
    """Run git there, without the machine's configuration."""
    someone = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        **dict.fromkeys(someone, "a@example.org"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    directory = tmp_path / "repository"
    directory.mkdir()
    git(directory, "init", "-q")
    (directory / "train.py").write_text("print(1)\n")
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", "first")
    return directory


def run() -> mttp.model.Run:
    """Record a run in the working directory, and return it."""
    with mttp.configure("memory://") as session:
        pass
    (found,) = mttp.read(session).runs
    return found


def test_a_run_has_interpreter_host_and_packages() -> None:
    """
    They are recorded without any argument.
    """
    found = run()

    assert f"{sys.implementation.name} {platform.python_version()}" == found.python
    assert f"{platform.system().lower()} {platform.machine()}" == found.platform
    assert (socket.gethostname(), os.getpid()) == (found.host, found.pid)
    assert importlib.metadata.version("numpy") == found.packages["numpy"]
    assert () == found.faults


def test_packages_imported_later_are_recorded_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A trainer imports modules while it runs.
    """
    with mttp.configure("memory://") as session:
        monkeypatch.setattr("mttp.recording.provenance.packages", lambda: {"late": "1.0"})

    (found,) = mttp.read(session).runs
    assert {"late": "1.0"} == found.packages


def test_the_revision_is_that_of_the_working_directory(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Any directory in the repository works; without changes it is not dirty.
    """
    (repository / "deep").mkdir()
    monkeypatch.chdir(repository / "deep")

    found = run()

    assert (git(repository, "rev-parse", "HEAD"), False) == (found.revision, found.dirty)


def test_only_changed_files_make_a_revision_dirty(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A new recording in the repository must not make every run dirty.
    """
    monkeypatch.chdir(repository)
    with mttp.configure("file://a.jsonl"):
        pass
    (untouched,) = mttp.read(repository / "a.jsonl").runs
    (repository / "train.py").write_text("print(2)\n")

    assert (False, True) == (untouched.dirty, run().dirty)


def test_the_revision_is_that_of_the_start(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A later change of the working directory has no effect.
    """
    monkeypatch.chdir(repository)
    with mttp.configure("memory://") as session:
        monkeypatch.chdir(repository.parent)

    (found,) = mttp.read(session).runs
    assert git(repository, "rev-parse", "HEAD") == found.revision


def test_outside_a_repository_there_is_no_revision() -> None:
    """
    This is not a fault.
    """
    found = run()

    assert (None, None, ()) == (found.revision, found.dirty, found.faults)


def test_without_git_there_is_no_revision(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    This is not a fault.
    """
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", str(repository))

    found = run()

    assert (None, None, ()) == (found.revision, found.dirty, found.faults)


@pytest.mark.parametrize("printed", ["", "HEAD", "a" * 39, "warning: me", f"{'a' * 40}\nnote", "g" * 40])
def test_a_revision_is_a_commit_or_absent(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A program that is called git may print anything.
    """
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{printed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with mttp.configure("file://a.jsonl"):
        pass
    (run,) = mttp.read("a.jsonl").runs

    assert (None, None) == (run.revision, run.dirty)


def test_a_repository_without_a_commit_has_no_revision(tmp_path: Path) -> None:
    """
    This is not a fault.
    """
    git(tmp_path, "init", "-q")

    assert {} == provenance.revision(str(tmp_path))


def test_a_git_that_hangs_is_a_fault(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    A network disk without a connection delays nothing longer than two seconds.
    """
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(provenance, "_GIT_SECONDS", 0.1)
    monkeypatch.chdir(repository)

    found = run()

    assert (None, True) == (found.revision, found.python is not None)
    assert 1 == len(found.faults)
    assert "TimeoutExpired" in found.faults[0]


def test_without_git_status_dirty_is_unknown(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Unknown is not the same as unchanged.
    """
    real = provenance._git

    def only_revision(directory: str, *arguments: str) -> str | None:
        return real(directory, *arguments) if "rev-parse" in arguments else None

    monkeypatch.setattr(provenance, "_git", only_revision)

    assert ["revision"] == list(provenance.revision(str(repository)))


@pytest.mark.parametrize("broken", provenance.DETECTORS, ids=lambda detector: detector.__name__)
def test_a_failed_detector_is_a_fault(
    broken: provenance.Detector, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    All other facts are recorded, and the session counts the fault.
    """
    monkeypatch.chdir(repository)
    usual = provenance.detect(str(repository), [])
    missing = set(broken(str(repository)))

    def fails(directory: str) -> dict[str, Any]:
        raise RuntimeError("no")

    fails.__name__ = broken.__name__
    detectors = tuple(fails if detector is broken else detector for detector in provenance.DETECTORS)
    monkeypatch.setattr(provenance, "DETECTORS", detectors)
    faults: Faults = []
    found = provenance.detect(str(repository), faults)
    with mttp.configure("memory://") as session:
        pass

    assert usual.keys() - missing == found.keys()
    assert [f"detector_failed: {broken.__name__}: RuntimeError('no')"] == faults
    (recorded,) = mttp.read(session).runs
    assert faults == list(recorded.faults)
    assert 1 == session.stats.faults["detector_failed"]


def test_packages_that_can_not_be_listed_at_the_end_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The run has its end.
    """
    with mttp.configure("memory://") as session:
        monkeypatch.setattr("mttp.recording.provenance.packages", lambda: 1 / 0)

    (found,) = mttp.read(session).runs
    assert "completed" == found.status
    assert all("ZeroDivisionError" in fault for fault in found.faults)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of installed packages, first on the path."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setitem(sys.modules, "some_module.sub", sys)
    provenance._installed.cache_clear()
    yield tmp_path / "site"
    provenance._installed.cache_clear()


def install(site: Path, name: str, metadata: str, **files: str) -> None:
    """Install a distribution there."""
    directory = site / f"{name}.dist-info"
    directory.mkdir(parents=True)
    for file, content in {"METADATA": metadata, **files}.items():
        (directory / file.replace("top_level", "top_level.txt")).write_text(content)


@pytest.mark.parametrize(
    "files",
    [
        {"top_level": "some_module\n"},
        {"RECORD": "some_module/__init__.py,,\nsome_module/sub.py,,\nx.dist-info/RECORD,,\n"},
        {"RECORD": "some_module.py,sha256=abc,3\n"},
    ],
)
def test_a_package_is_found_by_its_modules(files: dict[str, str], site: Path) -> None:
    """
    Its own name may differ.
    """
    install(site, "x", "Metadata-Version: 2.1\nName: Some-Package\nVersion: 1.2\n\nName: not this\n", **files)

    assert "1.2" == provenance.packages()["Some-Package"]


def test_a_package_without_a_list_of_modules_is_found_by_its_name(site: Path) -> None:
    """
    An editable install lists none of its modules.
    """
    install(site, "x", "Name: some-module\nVersion: 1.2\n")

    assert "1.2" == provenance.packages()["some-module"]


def test_of_a_package_installed_twice_the_first_counts(site: Path) -> None:
    """
    Imports use the first one too.
    """
    install(site, "a", "Name: numpy\nVersion: 0.0.1\n")

    assert "0.0.1" == provenance.packages()["numpy"]


@pytest.mark.parametrize("metadata", ["", "Name: some-module\n", "Version: 1\n", "\x00"])
def test_a_package_without_metadata_is_omitted(metadata: str, site: Path) -> None:
    """
    All others are recorded.
    """
    install(site, "x", metadata, top_level="some_module")

    found = provenance.packages()
    assert (True, False) == ("numpy" in found, "some-module" in found)


def test_accelerators_are_those_that_the_driver_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each has a name, in order; without a driver there are none.
    """
    for number in range(2):
        directory = tmp_path / f"0000:0{number}:00.0"
        directory.mkdir()
        (directory / "information").write_text(f"Model: \t\t Large GPU {number}\nIRQ:   1\n")

    def path(name: str) -> Path:
        return tmp_path if name == "/proc/driver/nvidia/gpus" else Path(name)

    monkeypatch.setattr(provenance, "Path", path)

    assert {"accelerators": ("Large GPU 0", "Large GPU 1")} == provenance.accelerators("")
    monkeypatch.setattr(provenance, "Path", lambda name: tmp_path / "none")
    assert {} == provenance.accelerators("")


def test_detection_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The run ends without the missing facts.
    """
    go = threading.Event()
    monkeypatch.setattr(provenance, "DETECTORS", (lambda directory: go.wait(60) and {},))
    monkeypatch.setattr("mttp.recording.run_recorder._DETECTION_SECONDS", 0.05)

    found = run()
    go.set()

    assert ("completed", ("detector_failed: detection took too long",)) == (found.status, found.faults)


def test_a_launcher_is_recognized_by_its_variables() -> None:
    """
    torchrun has precedence over Slurm, which may have started it.
    """
    slurm = {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_JOB_ID": "9"}
    torch = {"RANK": "0", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "job"}

    assert {"rank": 1, "world_size": 2, "run_id": "slurm-9"} == provenance.launch(slurm)
    assert {"rank": 0, "world_size": 4, "run_id": "job"} == provenance.launch(slurm | torch)
    assert {} == provenance.launch({})


def test_describe_adds_facts_to_an_open_run() -> None:
    """
    A trainer that is created after the session can add its facts.
    """
    with mttp.configure("memory://") as session:
        session.describe(
            config={"gamma": 0.99},
            algorithm="ppo",
            trainer="stable-baselines3",
            trainer_version="2.9.2",
            seed=7,
            policy_architecture="MlpPolicy(64, 64)",
            policy_parameters=9155,
            optimizer="Adam",
        )

    (found,) = mttp.read(session).runs
    assert ({"gamma": 0.99}, "ppo", 7) == (found.config, found.algorithm, found.seed)
    assert ("stable-baselines3", "2.9.2") == (found.trainer, found.trainer_version)
    assert ("MlpPolicy(64, 64)", 9155, "Adam") == (
        found.policy_architecture,
        found.policy_parameters,
        found.optimizer,
    )


def test_describe_does_not_change_stated_facts() -> None:
    """
    The user's facts count, and of two trainers the first one's.
    """
    with mttp.configure("memory://", algorithm="mine", config={"own": 1}) as session:
        session.describe(algorithm="ppo", config={"gamma": 0.99}, optimizer="Adam")
        session.describe(optimizer="SGD", policy_parameters=3)

    (found,) = mttp.read(session).runs
    assert ("mine", {"own": 1}) == (found.algorithm, found.config)
    assert ("Adam", 3) == (found.optimizer, found.policy_parameters)


def test_described_facts_survive_a_killed_process(tmp_path: Path) -> None:
    """
    They are in the next start marker of the run.
    """
    with mttp.configure(tmp_path / "run.jsonl") as session:
        with mttp.episode():
            pass
        session.flush()
        session.describe(optimizer="Adam")
        with mttp.episode():
            pass
        session.flush()

        (found,) = mttp.read(tmp_path / "run.jsonl").runs

    assert (False, "Adam") == (found.complete, found.optimizer)


def test_an_invalid_description_never_raises() -> None:
    """
    `describe` is called during training.
    """
    with mttp.configure("memory://") as session:
        session.describe(policy_parameters=2**70, config=object())
    session.describe(optimizer="Adam")

    (found,) = mttp.read(session).runs
    assert None is found.optimizer
    assert "policy_parameters_invalid" in " ".join(found.faults)

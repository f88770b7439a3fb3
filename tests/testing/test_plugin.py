"""The pytest plugin records test sessions by test, and changes no test's outcome."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import mttp
from mttp.semconv import attributes as a

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "no:mttp", "-p", "mttp.testing.plugin", "-p", "no:cacheprovider")
"""The plugin by its module, whether or not it is installed."""

Run = Callable[..., pytest.RunResult]

PLAYING = """
    import mttp

    def play(task):
        with mttp.episode(task=task) as episode, episode.step() as step:
            step.reward(1.0)
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run tests in this process."""
    pytester.makepyfile(playing=PLAYING)
    pytester.syspathinsert()

    def run_tests(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=f"from playing import *\n{source}")
        return pytester.runpytest_inprocess(*PLUGIN, *arguments)

    return run_tests


def found(path: Path) -> list[tuple[str | None, str]]:
    """Return the recorded episodes: task, and the test's name in its file."""
    return [(episode.task, episode.extra[a.TEST_CASE_NAME].partition("::")[2]) for episode in mttp.read(path)]


# The option.


def test_episodes_are_written_with_the_test_that_recorded_them(run: Run, pytester: pytest.Pytester) -> None:
    """
    All of them belong to one run.
    """
    result = run(
        """
import pytest

@pytest.mark.parametrize("task", ["a", "b"])
def test_play(task):
    play(task)

def test_quiet():
    pass

class TestGroup:
    def test_play(self):
        play("c")
""",
        "--mttp=episodes.jsonl",
    )

    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["mttp: 3 episodes in episodes.jsonl"])
    path = pytester.path / "episodes.jsonl"
    assert [("a", "test_play[a]"), ("b", "test_play[b]"), ("c", "TestGroup::test_play")] == found(path)
    assert [("pytest", "completed")] == [(run.name, run.status) for run in mttp.read(path).runs]
    assert [] == mttp.read(path).problems


@pytest.mark.parametrize("place", ["runs/", "runs", "new/deep/runs", "a.jsonl.gz", "file://a.jsonl"])
def test_the_path_is_a_directory_or_a_file(place: str, run: Run, pytester: pytest.Pytester) -> None:
    """
    A name without a suffix is a directory; a transport's address works too.
    """
    run("def test_play(): play('a')", f"--mttp={place}").assert_outcomes(passed=1)

    path = pytester.path / place.removeprefix("file://")
    assert "." in path.name or path.is_dir()
    assert [("a", "test_play")] == found(path)


def test_another_run_is_appended(run: Run, pytester: pytest.Pytester) -> None:
    """
    A second test session appends to the file.
    """
    for _ in range(2):
        run("def test_play(): play('a')", "--mttp=episodes.jsonl")

    recording = mttp.read(pytester.path / "episodes.jsonl")
    assert (2, 2) == (len(recording), len({run.id for run in recording.runs}))


def test_tests_that_record_nothing_leave_a_run_without_episodes(run: Run, pytester: pytest.Pytester) -> None:
    """
    The recording can be read all the same.
    """
    run("def test_nothing(): pass", "--mttp=episodes.jsonl").stdout.fnmatch_lines(["mttp: 0 episodes in*"])

    recording = mttp.read(pytester.path / "episodes.jsonl")
    assert (0, 1, []) == (len(recording), len(recording.runs), recording.problems)


def test_without_the_option_the_plugin_does_nothing(run: Run, pytester: pytest.Pytester) -> None:
    """
    No session is open, and nothing is printed.
    """
    result = run("def test_session(): assert mttp.current_session() is None")

    result.assert_outcomes(passed=1)
    assert "mttp:" not in result.stdout.str()


def test_the_configuration_file_can_set_the_path(run: Run, pytester: pytest.Pytester) -> None:
    """
    Relative to its directory; the option overrides it, and turns it off if empty.
    """
    pytester.makeini("[pytest]\nmttp_path = kept/always.jsonl")
    source = "def test_play(mttp_episodes): play('a')"
    below = pytester.mkdir("below")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        run(source, "..").assert_outcomes(passed=1)
    run(source, "--mttp=other.jsonl")
    run(source, "--mttp=")

    assert [("a", "test_play")] == found(pytester.path / "kept" / "always.jsonl")
    assert [("a", "test_play")] == found(pytester.path / "other.jsonl")


def test_a_path_that_cannot_be_written_is_an_error_at_the_start(run: Run, pytester: pytest.Pytester) -> None:
    """
    Before any test runs.
    """
    (pytester.path / "occupied").write_text("")
    result = run("def test_play(): play('a')", "--mttp=occupied/a.jsonl")

    assert pytest.ExitCode.USAGE_ERROR == result.ret
    result.stderr.fnmatch_lines(["*--mttp occupied/a.jsonl: *can't write*"])


def test_disabled_recording_is_an_error_at_the_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The message names OTEL_SDK_DISABLED.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    result = run("def test_play(): play('a')", "--mttp=a.jsonl")

    assert pytest.ExitCode.USAGE_ERROR == result.ret
    result.stderr.fnmatch_lines(["*OTEL_SDK_DISABLED is true; unset it*"])


# Tests that have sessions of their own.


def test_sessions_of_the_code_are_recorded_and_unchanged(run: Run, pytester: pytest.Pytester) -> None:
    """
    They write to their own transports, without a label, under their own run ids; later tests are recorded
    too.
    """
    result = run(
        """
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_own(number):
    with mttp.configure(f"file://own{number}.jsonl") as session:
        play(f"own {number}")
    assert not mttp.episode()
    assert f"own{number}.jsonl" in repr(session.transport)

def test_default():
    with mttp.configure("memory://") as session:
        play("memory")
    assert ["memory"] == [episode.task for episode in mttp.read(session)]
    assert "MemoryTransport" == type(session.transport).__name__

def test_bare():
    play("bare")

def test_closed():
    play("to be closed")
    mttp.current_session().close()

def test_after():
    play("after")
""",
        "--mttp=episodes.jsonl",
    )

    result.assert_outcomes(passed=6)
    path = pytester.path / "episodes.jsonl"
    tasks = ["own 1", "own 2", "memory", "bare", "to be closed", "after"]
    assert tasks == [episode.task for episode in mttp.read(path)]
    assert 5 == len({run.id for run in mttp.read(path).runs})
    (own,) = mttp.read(pytester.path / "own1.jsonl")
    assert ("own 1", {}) == (own.task, own.extra)


def test_a_session_that_a_fixture_has_open_stays_open(run: Run, pytester: pytest.Pytester) -> None:
    """
    Over all the tests that use it.
    """
    result = run(
        """
import pytest

@pytest.fixture(scope="module", autouse=True)
def session():
    with mttp.configure("memory://") as session:
        yield session

@pytest.mark.parametrize("number", [1, 2])
def test_it(session, number):
    assert session is mttp.current_session()
    play(str(number))
""",
        "--mttp=episodes.jsonl",
    )

    result.assert_outcomes(passed=2)
    assert [("1", "test_it[1]"), ("2", "test_it[2]")] == found(pytester.path / "episodes.jsonl")


def test_an_episode_open_at_a_crash_has_its_test(run: Run, pytester: pytest.Pytester) -> None:
    """
    It is unfinished, and has the name of the test that started it.
    """
    run(
        """
def test_leak():
    global episode
    episode = mttp.episode(task="leaked")
    with episode.step():
        pass

def test_other():
    play("a")
""",
        "--mttp=episodes.jsonl",
    ).assert_outcomes(passed=2)

    assert [("leaked", "test_leak"), ("a", "test_other")] == found(pytester.path / "episodes.jsonl")


def test_a_test_begins_as_in_a_new_process(run: Run) -> None:
    """
    It begins without a session until it records, and nothing is printed then.
    """
    run(
        """
import pytest

@pytest.mark.parametrize("_", [1, 2])
def test_it(_, capfd):
    assert mttp.current_session() is None
    play("a")
    assert mttp.current_session() is not None
    assert ("", "") == capfd.readouterr()
""",
        "--mttp=episodes.jsonl",
    ).assert_outcomes(passed=2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_record_their_part(run: Run, pytester: pytest.Pytester) -> None:
    """
    Whether or not the test has recorded before, and in sessions of their own too.
    """
    run(
        """
import multiprocessing

def fork(task):
    child = multiprocessing.get_context("fork").Process(target=play, args=(task,))
    child.start()
    child.join()

def test_first():
    fork("first")

def test_second():
    play("before")
    fork("second")

def test_own():
    with mttp.configure("memory://"):
        fork("own")
""",
        "--mttp=runs/",
        "-Wignore",
    ).assert_outcomes(passed=3)

    recording = mttp.read(pytester.path / "runs")
    tasks = {"first": "test_first", "second": "test_second", "before": "test_second", "own": "test_own"}
    assert tasks == dict(found(pytester.path / "runs"))
    assert (4, []) == (len(recording), recording.problems)


def test_processes_that_a_test_starts_join_its_run(run: Run, pytester: pytest.Pytester) -> None:
    """
    If they configure nothing else; their episodes do not name the test.
    """
    run(
        """
import subprocess, sys

def test_child():
    code = "import mttp\\nwith mttp.episode(task='child'): pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    play("parent")
""",
        "--mttp=episodes.jsonl",
    ).assert_outcomes(passed=1)

    recording = mttp.read(pytester.path / "episodes.jsonl")
    assert [("child", False), ("parent", True)] == [
        (episode.task, a.TEST_CASE_NAME in episode.extra) for episode in recording
    ]
    assert (2, 1) == (len(recording.runs), len({run.id for run in recording.runs}))


# The fixture.


def test_the_fixture_captures_the_test_s_episodes(run: Run, pytester: pytest.Pytester) -> None:
    """
    They are only this test's, and `--mttp` records them too.
    """
    source = """
import pytest

@pytest.mark.parametrize("task", ["a", "b"])
def test_play(mttp_episodes, task):
    play(task)
    assert [task] == [episode.task for episode in mttp_episodes.episodes]
"""
    run(source).assert_outcomes(passed=2)
    assert ["playing.py", "test_it.py"] == sorted(path.name for path in pytester.path.glob("*.*"))
    run(source, "--mttp=episodes.jsonl").assert_outcomes(passed=2)

    assert [("a", "test_play[a]"), ("b", "test_play[b]")] == found(pytester.path / "episodes.jsonl")


def test_episodes_with_counted_ids_are_left_out(run: Run, pytester: pytest.Pytester) -> None:
    """
    Their ids are equal in every test.
    """
    run(
        """
import pytest
from mttp.testing import capture_episodes, counting_ids

@pytest.mark.parametrize("_", [1, 2])
def test_counting(_):
    with counting_ids():
        play("counted")
    with capture_episodes(deterministic=True) as captured:
        play("deterministic")
    assert 1 == len(captured.episodes)
    play("kept")
""",
        "--mttp=episodes.jsonl",
    ).assert_outcomes(passed=2)

    assert ["kept", "kept"] == [task for task, _ in found(pytester.path / "episodes.jsonl")]


def test_a_comparison_that_fails_names_the_places(run: Run) -> None:
    """
    Also without `assert_same`.
    """
    result = run(
        """
def test_play(mttp_episodes):
    play("a")
    expected = mttp.Episode(task="b")
    assert expected == mttp_episodes.episodes[0]

def test_list(mttp_episodes):
    play("a")
    assert [mttp.Episode(task="b")] == mttp_episodes.episodes

def test_others():
    assert [1] == [2]
"""
    )

    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*what was recorded differs:", "E*  task: expected 'b', was 'a'"])
    result.stdout.fnmatch_lines(["E*  [[]0].task: expected 'b', was 'a'"])
    result.stdout.fnmatch_lines(["E*At index 0 diff: 1 != 2"])


# Workers.


def test_workers_record_one_run_together(pytester: pytest.Pytester) -> None:
    """
    Each worker of pytest-xdist appends to the same file.
    """
    pytester.makepyfile(playing=PLAYING)
    source = "import pytest\nfrom playing import *\n"
    source += "@pytest.mark.parametrize('task', list('abcdef'))\ndef test_play(task): play(task)"
    pytester.makepyfile(test_it=source)
    result = pytester.runpytest_subprocess(*PLUGIN, "-n2", "--mttp=episodes.jsonl")

    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["mttp: 6 episodes in episodes.jsonl"])
    recording = mttp.read(pytester.path / "episodes.jsonl")
    played = sorted(found(pytester.path / "episodes.jsonl"))
    assert [(task, f"test_play[{task}]") for task in "abcdef"] == played
    assert (2, 1) == (len(recording.runs), len({run.id for run in recording.runs}))
    assert [] == recording.problems


def test_pytest_finds_the_plugin() -> None:
    """
    By the package's entry point.
    """
    project = Path(__file__).parents[2] / "pyproject.toml"

    assert '[project.entry-points.pytest11]\nmttp = "mttp.testing.plugin"\n' in project.read_text()


# The gate.


def test_an_inconclusive_gate_fails_unless_it_need_not_be_strict(run: Run, pytester: pytest.Pytester) -> None:
    """
    As the command's exit code does; what failed is said.
    """
    with mttp.configure("file://new.jsonl", kind="eval"):
        for task in range(6):
            with mttp.episode(task=f"t{task}") as episode:
                episode.end(outcome="success" if task % 2 else "failure")

    result = run(
        """
import pytest

@pytest.mark.parametrize("options", [{}, {"strict": True}, {"strict": False}])
def test_gate(mttp_gate, options):
    rules = {"aggregate": [{"metric": "success", "min": 0.4}]}
    assert mttp_gate("new.jsonl", rules=rules, **options).verdict == "inconclusive"
"""
    )

    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["*inconclusive: aggregate success min: *"])

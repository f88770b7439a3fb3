"""Captured episodes: complete, separate from other sessions, and without side effects after the block."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import mttp
from mttp.errors import ConfigureError
from mttp.reading.jsonable import to_json
from mttp.recording import configuration
from mttp.semconv import spans as names
from mttp.testing import Captured, capture_episodes


def play(task: str) -> None:
    """Record one episode in the current session."""
    with mttp.episode(env="toy", task=task) as episode, episode.step() as step:
        step.action("left")
        step.reward(0.5)


def tasks(captured: Captured) -> list[str | None]:
    return [episode.task for episode in captured.episodes]


# What is captured.


def test_episodes_are_there_inside_the_block_and_after_it() -> None:
    """
    `episodes` can be read inside the block and after it.
    """
    with capture_episodes() as captured:
        play("a")
        inside = tasks(captured)
        play("b")

    assert (["a"], ["a", "b"]) == (inside, tasks(captured))
    assert [("completed", True)] == [(run.status, run.complete) for run in captured.runs]
    assert [] == captured.recording.problems


def test_nothing_is_written(tmp_path: Path) -> None:
    """
    No file is written, although an unconfigured session would write to a directory.
    """
    with capture_episodes():
        play("a")

    assert [] == list(tmp_path.iterdir())


def test_an_open_episode_is_unfinished() -> None:
    """
    An open episode has the steps that it has so far.
    """
    with capture_episodes() as captured, mttp.episode(task="long") as episode:
        with episode.step():
            pass
        found = captured.episodes

    assert [("long", "unfinished", 1)] == [(one.task, one.status, len(one.steps)) for one in found]
    assert ["completed"] == [one.status for one in captured.episodes]


def test_options_are_those_of_configure() -> None:
    """
    `capture_episodes` takes every option of `configure` except the transport.
    """
    with capture_episodes(run="first", kind="eval", seed=3, config={"lr": 0.1}) as captured:
        pass

    assert [("first", "eval", 3, {"lr": 0.1})] == [
        (run.name, run.kind, run.seed, run.config) for run in captured.runs
    ]


def test_code_that_configures_a_session_is_captured_too(tmp_path: Path) -> None:
    """
    Its episodes are captured and also go to its own transport.
    """
    with capture_episodes() as captured:
        play("before")
        with mttp.configure("file://own.jsonl", run="own"):
            play("own")

    assert ["before", "own"] == tasks(captured)
    assert ["own"] == [episode.task for episode in mttp.read(tmp_path / "own.jsonl")]
    assert 2 == len({run.id for run in captured.runs})


def test_code_that_configures_no_transport_writes_nothing(tmp_path: Path) -> None:
    """
    Its default transport is the capture, not a directory, and episodes are captured once.
    """
    with capture_episodes() as captured, mttp.configure(run="own"):
        play("own")

    assert (["own"], 0) == (tasks(captured), captured.recording.duplicates)
    assert [] == list(tmp_path.iterdir())


def test_after_its_session_was_closed_code_records_nothing() -> None:
    """
    After the code closed its own session, nothing is recorded, although the capture's session is open.
    """
    with capture_episodes() as captured:
        with mttp.configure():
            play("own")
        play("nowhere")
        captured.session.record(mttp.Episode(task="by hand"))

    assert ["own", "by hand"] == tasks(captured)


def test_two_sessions_of_the_code_at_once_are_an_error() -> None:
    """
    The code cannot open a second session inside a capture either.
    """
    with (
        capture_episodes(),
        mttp.configure("memory://"),
        pytest.raises(ConfigureError, match="close it before configuring another"),
    ):
        mttp.configure("memory://")


def test_a_session_that_is_left_open_ends_with_the_block() -> None:
    """
    The end of the block closes it, and its episodes are complete.
    """
    with capture_episodes() as captured:
        left = mttp.configure("file://own.jsonl")
        play("own")

    assert left.closed
    assert ["own"] == tasks(captured)


def test_faults_of_all_sessions_are_counted() -> None:
    """
    `faults` adds up the faults of all sessions by kind.
    """
    with capture_episodes() as captured:
        with mttp.episode() as episode:
            episode.metric("speed", "fast")  # type: ignore[arg-type]
        with mttp.configure("memory://"), mttp.episode() as episode:
            episode.metric("speed", "slow")  # type: ignore[arg-type]
            episode.reward(float("nan"))

    assert {"metric_invalid": 2, "reward_invalid": 1} == captured.faults


def test_coroutines_are_captured() -> None:
    """
    The block may be around an event loop or inside a coroutine.
    """

    async def rollouts() -> list[str | None]:
        with capture_episodes() as captured:
            await asyncio.gather(asyncio.to_thread(play, "a"), asyncio.to_thread(play, "b"))
        return tasks(captured)

    with capture_episodes() as captured:
        found = asyncio.run(rollouts())

    assert ["a", "b"] == sorted(map(str, found)) == sorted(map(str, tasks(captured)))


# What is set aside.


def test_an_open_session_is_suspended_and_continues(session: mttp.Session) -> None:
    """
    A capture in the middle of a training leaves no trace in the training's recording.
    """
    play("before")
    with capture_episodes() as captured:
        play("test")
        assert captured.session is mttp.current_session()
    assert session is mttp.current_session()
    play("after")

    assert ["test"] == tasks(captured)
    assert ["before", "after"] == [episode.task for episode in mttp.read(session)]


def test_an_open_episode_stays_in_its_session(session: mttp.Session) -> None:
    """
    Inside the block it is not the current episode, but its handle still records.
    """
    with mttp.episode(task="outer") as episode, episode.step() as step:
        with capture_episodes() as captured:
            current = mttp.current_episode(), mttp.current_step()
            step.action("left")
            play("inner")
        assert (episode, step) == (mttp.current_episode(), mttp.current_step())

    (outer,) = mttp.read(session)
    assert (False, False) == tuple(map(bool, current))
    assert ("outer", "left") == (outer.task, outer.steps[0].action)
    assert ["inner"] == tasks(captured)
    (root,) = [record for record in captured._memory.records() if record.name == "episode toy"]
    assert not root.links


def test_an_instrumented_environment_records_where_its_episode_began(session: mttp.Session) -> None:
    """
    An episode from before the block stays in its session, the next one is captured, and the one after the
    block is not.
    """
    pytest.importorskip("gymnasium")
    from integrations.toys import Scripted

    env = Scripted()
    with mttp.instrument(env):
        env.reset(seed=1)
        env.step(1)
        with capture_episodes() as captured:
            env.step(0)
            env.step(1)
            env.reset(seed=2)
            env.step(0)
            env.step(0)
        env.reset(seed=3)
        env.step(1)

    assert [(2, 2)] == [(one.seed, len(one.steps)) for one in captured.episodes]
    assert [(1, 3), (3, 1)] == [(one.seed, len(one.steps)) for one in mttp.read(session)]


def test_afterwards_there_is_no_configured_session(tmp_path: Path) -> None:
    """
    The next episode starts a session by itself, as in a new process.
    """
    with capture_episodes():
        play("test")
    assert mttp.current_session() is None
    play("real")
    configuration.forget()

    assert ["real"] == [episode.task for episode in mttp.read(tmp_path / "mttp-runs")]


def test_a_session_that_started_by_itself_continues(tmp_path: Path) -> None:
    """
    After the block, `configure` still replaces it.
    """
    play("before")
    with capture_episodes():
        play("test")
    play("after")
    with mttp.configure("memory://"):
        pass

    assert ["before", "after"] == [episode.task for episode in mttp.read(tmp_path / "mttp-runs")]


@pytest.mark.parametrize("options", [{"kind": "nonsense"}, {"colour": "red"}, {"transport": "memory://"}])
def test_wrong_options_leave_nothing_behind(options: dict[str, str], session: mttp.Session) -> None:
    """
    They raise before anything is changed.
    """
    environment = dict(os.environ)
    with pytest.raises((ConfigureError, TypeError)), capture_episodes(**options):
        pass

    assert session is mttp.current_session()
    assert environment == dict(os.environ)


def test_an_exception_leaves_nothing_behind(session: mttp.Session) -> None:
    """
    An exception in the block propagates, and the capture is undone.
    """
    with pytest.raises(ZeroDivisionError), capture_episodes() as captured:
        captured.session.record(mttp.Episode(task=f"a {1 / 0}"))

    assert session is mttp.current_session()
    assert [] == tasks(captured)


def test_disabled_recording_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A capture raises where OTEL_SDK_DISABLED would leave it empty.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    with pytest.raises(ConfigureError, match="OTEL_SDK_DISABLED is true; unset it"), capture_episodes():
        pass


def test_nested_captures_both_capture() -> None:
    """
    The inner capture's episodes are in the outer capture too.
    """
    with capture_episodes() as outer:
        play("a")
        with capture_episodes() as inner:
            play("b")
        play("c")

    assert (["a", "b", "c"], ["b"]) == (tasks(outer), tasks(inner))


# Other processes.


def test_child_processes_record_nothing_anywhere(tmp_path: Path) -> None:
    """
    They write neither into the outer recording nor into a directory, and the variables are restored.
    """
    child = "import mttp\nwith mttp.episode(task='child'): pass\nprint(mttp.current_session())"
    with mttp.configure("file://real.jsonl") as session:
        before = dict(os.environ)
        with capture_episodes() as captured:
            told = os.environ["MTTP_RUN_ID"]
            done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
        after = dict(os.environ)

    assert f"<mttp.Session {told} on memory://, open>\n" == done.stdout
    assert told == captured.session.run_id != session.run_id
    assert before == after
    assert [] == mttp.read(tmp_path / "real.jsonl").episodes
    assert [tmp_path / "real.jsonl"] == list(tmp_path.iterdir())


def test_the_variables_for_children_do_not_reach_the_code_itself() -> None:
    """
    Two sessions that the code configures are two runs, as outside a test.
    """
    with capture_episodes() as captured:
        for _ in range(2):
            with mttp.configure():
                pass

    assert 3 == len({run.id for run in captured.runs})


def test_variables_that_the_test_sets_apply(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    A test can set the transport and the run id by environment variables.
    """
    with capture_episodes() as captured, monkeypatch.context() as patch:
        patch.setenv("MTTP_TRANSPORT", "file://told.jsonl")
        patch.setenv("MTTP_RUN_ID", "told")
        with mttp.configure():
            play("a")

    assert ["a"] == tasks(captured)
    assert ["told"] == [run.id for run in mttp.read(tmp_path / "told.jsonl").runs]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_may_leave_the_block(tmp_path: Path) -> None:
    """
    A session from before the block continues in the child, and the child's captured episodes are not the
    parent's.
    """
    with mttp.configure("file://runs/"):
        with capture_episodes() as captured, mttp.configure("memory://"):
            play("parent")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of threads that others have started
                child = os.fork()
            if not child:
                play("child")
        if not child:
            play("real")
            mttp.current_session().close()  # type: ignore[union-attr]
            os._exit(0)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        play("after")

    assert ["parent"] == tasks(captured)
    assert {"real", "after"} == {episode.task for episode in mttp.read(tmp_path / "runs")}


# The same each time.


def test_a_deterministic_capture_is_the_same_each_time(tmp_path: Path) -> None:
    """
    Ids and times are equal, whatever other threads record.
    """

    def once() -> str:
        with capture_episodes(deterministic=True) as captured:
            play("a")
            with mttp.episode(task="b") as episode:
                captured.session.flush()
                episode.reward(1, components={"format": 0.5})
        return to_json(captured.episodes)

    alone = once()
    with mttp.configure("file://real.jsonl"), mttp.episode() as episode, episode.step():
        within = once()

    assert alone == within
    assert f'"trace_id": "{1:032x}"' in alone


def test_times_of_a_deterministic_capture_tell_the_order() -> None:
    """
    Each reading of the clock is a millisecond later.
    """
    with capture_episodes(deterministic=True) as captured:
        play("a")

    (episode,) = captured.episodes
    (run,) = captured.runs
    (step,) = episode.steps
    moments = [run.start_time, episode.start_time, step.start_time, step.end_time, episode.end_time]
    assert [0, 1, 2, 3, 4] == [(moment - moments[0]) // 10**6 for moment in moments]  # type: ignore[operator]


def test_a_deterministic_capture_has_no_marker_before_its_end() -> None:
    """
    Start markers depend on timing, so that none is written before the block ends; unended episodes keep their
    identity.
    """
    with capture_episodes(deterministic=True) as captured:
        open_ = mttp.episode(task="never ends")
        captured.session.flush()
        inside = [record.name for record in captured._memory.records()]

    assert open_
    assert names.EPISODE_START not in inside
    assert [("never ends", "unfinished")] == [(one.task, one.status) for one in captured.episodes]


def test_a_deterministic_capture_is_not_part_of_an_outer_one() -> None:
    """
    Its ids equal those of the next deterministic capture.
    """
    with capture_episodes() as outer:
        for _ in range(2):
            with capture_episodes(deterministic=True) as inner:
                play("a")

    assert ([], ["a"]) == (tasks(outer), tasks(inner))

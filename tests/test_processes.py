"""Whatever processes do (fork, spawn, get killed), what was recorded is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import SECONDS, eventually

import mttp

NAMES = ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "runs/")
LAG = 0.5
SLACK = 2.5
"""On a machine that is busy with other tests the writing thread may wait for its turn."""

PLAY = """
import os, random, signal, sys, threading, time
import mttp

def play(task, steps=2):
    with mttp.episode(task=task) as episode:
        for _ in range(steps):
            with episode.step() as step:
                step.reward(1.0)
    return episode
"""


class Program:
    """A Python program that runs in a directory."""

    def __init__(self, directory: Path, code: str, *arguments: str) -> None:
        path = directory / "program.py"
        path.write_text(PLAY + textwrap.dedent(code))
        self.process = subprocess.Popen(
            # from 3.12 on, Python warns of a fork where there are threads: it is what is tested here
            [sys.executable, "-W", "ignore::DeprecationWarning", str(path), *arguments],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ended(self) -> list[str]:
        """What it printed, once it has ended well."""
        try:
            out, err = self.process.communicate(timeout=2 * SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            pytest.fail(f"it hangs; it printed {out!r} and {err!r}")
        assert (0, "") == (self.process.returncode, err)
        return out.splitlines()

    def killed(self, how: signal.Signals) -> list[str]:
        """What it printed until it was killed."""
        self.process.send_signal(how)
        out, _ = self.process.communicate()
        return out.splitlines()


@pytest.fixture(autouse=True)
def no_program_is_left() -> Iterator[None]:
    """A test that fails leaves no process behind."""
    started: list[Program] = []
    begin = Program.__init__

    def watched(self: Program, directory: Path, code: str, *arguments: str) -> None:
        begin(self, directory, code, *arguments)
        started.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "__init__", watched)
        yield
    for program in started:
        if program.process.poll() is None:
            os.killpg(program.process.pid, signal.SIGKILL)
        program.process.communicate()


def recorded(path: Path) -> mttp.Recording:
    """What is there now; nothing while there is nothing."""
    try:
        return mttp.read(path)
    except mttp.errors.ReadError:
        return mttp.Recording([])


def tasks(recording: mttp.Recording) -> dict[str, int]:
    """How many complete episodes each task has."""
    return dict(Counter(str(episode.task) for episode in recording if episode.complete))


def program_output(program: Program) -> list[str]:
    """Both of its streams, where it may complain."""
    out, err = program.process.communicate(timeout=2 * SECONDS)
    assert 0 == program.process.returncode
    return [*out.splitlines(), *err.splitlines()]


# A process that is killed.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_what_ended_before(name: str, how: signal.Signals, tmp_path: Path) -> None:
    """
    Up to the last flush: every step and episode, the open episode by its identity, and the run.

    Told to terminate it writes the rest, too, and ends its run.
    """
    program = Program(
        tmp_path,
        f"""
        mttp.configure("file://{name}", run="killed", seed=3)
        play("first")
        with mttp.episode(task="open", group="g", seed=7) as episode:
            while True:
                with episode.step() as step:
                    step.reward(1.0)
                print(time.monotonic(), flush=True)
                time.sleep(0.005)
        """,
    )

    def enough() -> bool:
        found = recorded(tmp_path / name)
        return any(run.python for run in found.runs) and any(len(episode.steps) > 20 for episode in found)

    assert eventually(enough)
    now = time.monotonic()
    printed = program.killed(how)
    told = how == signal.SIGTERM
    due = len(printed) if told else sum(float(line) < now - LAG - SLACK for line in printed)

    recording = mttp.read(tmp_path / name)
    first, left = recording.episodes
    (run,) = recording.runs
    assert ("first", True) == (first.task, first.complete)
    assert ("open", "g", 7, "unfinished", False) == (
        left.task,
        left.group,
        left.seed,
        left.status,
        left.complete,
    )
    assert due <= len(left.steps) <= len(printed) + 1
    assert list(range(len(left.steps))) == [step.index for step in left.steps]
    assert ("killed", 3, "aborted" if told else None, told, run.id) == (
        run.name,
        run.seed,
        run.status,
        run.complete,
        left.run_id,
    )
    assert run.python
    assert {"unfinished_episode"} == {problem.kind for problem in recording.problems}


def test_a_run_that_is_started_again_goes_on_where_a_kill_ended_it(tmp_path: Path) -> None:
    """
    Even a compressed file is whole after a kill, and is appended to.
    """
    for number in range(2):
        program = Program(
            tmp_path,
            f"""
            mttp.configure("file://a.jsonl.gz")
            play("{number}")
            time.sleep(600)
            """,
        )
        assert eventually(lambda number=number: str(number) in tasks(recorded(tmp_path / "a.jsonl.gz")))
        program.killed(signal.SIGKILL)

    recording = mttp.read(tmp_path / "a.jsonl.gz")
    assert [tmp_path / "a.jsonl.gz"] == recording.sources
    assert {"0": 1, "1": 1} == tasks(recording)
    assert [] == recording.problems


# Children.


@pytest.mark.parametrize("name", NAMES)
def test_forked_children_record_a_part_of_the_run_each(name: str, tmp_path: Path) -> None:
    """
    By os.fork: what the parent had not written yet is written by the parent alone.
    """
    program = Program(
        tmp_path,
        f"""
        session = mttp.configure("file://{name}", run_id="r")
        play("parent")
        children = []
        for number in range(3):
            child = os.fork()
            if not child:
                play(f"child {{number}}")
                grandchild = os.fork()
                if not grandchild:
                    play(f"grandchild {{number}}")
                    session.close()
                    os._exit(0)
                os.waitpid(grandchild, 0)
                session.close()
                os._exit(0)
            children.append(child)
        play("parent")
        print(*(os.waitpid(child, 0)[1] for child in children))
        """,
    )

    assert ["0 0 0"] == program.ended()
    recording = mttp.read(tmp_path / name)
    each = {f"{who} {number}": 1 for who in ("child", "grandchild") for number in range(3)}
    assert {"parent": 2, **each} == tasks(recording)
    assert ([], 0, 7) == (recording.problems, recording.duplicates, len(recording.runs))
    assert (7, {"r"}, {"completed"}) == (
        len({run.pid for run in recording.runs}),
        {run.id for run in recording.runs},
        {run.status for run in recording.runs},
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("name", ["runs/", "a.jsonl"])
def test_children_of_multiprocessing_record_and_close(method: str, name: str, tmp_path: Path) -> None:
    """
    However they are started, and though they run no atexit handlers; what they do not configure they inherit.
    """
    program = Program(
        tmp_path,
        f"""
        import multiprocessing

        def work(number):
            play(f"child {{number}}")

        if __name__ == "__main__":
            mttp.configure("file://{name}", run_id="r")
            play("parent")
            context = multiprocessing.get_context("{method}")
            processes = [context.Process(target=work, args=(number,)) for number in range(3)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            print(*(process.exitcode for process in processes))
        """,
    )

    printed, err = program.process.communicate(timeout=2 * SECONDS)
    assert ("0 0 0\n", 0) == (printed, err.count("Error"))
    recording = mttp.read(tmp_path / name)
    assert {"parent": 1, "child 0": 1, "child 1": 1, "child 2": 1} == tasks(recording)
    assert ([], 0, 4) == (recording.problems, recording.duplicates, len(recording.runs))
    assert {("r", "completed")} == {(run.id, run.status) for run in recording.runs}
    assert {"r"} == {episode.run_id for episode in recording}


def test_a_pool_of_processes_records_everything(tmp_path: Path) -> None:
    """
    The usual way to play episodes in parallel.
    """
    program = Program(
        tmp_path,
        """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        def work(number):
            play("child", steps=number % 5)
            return os.getpid()

        if __name__ == "__main__":
            mttp.configure("file://runs/")
            with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as pool:
                print(len(set(pool.map(work, range(100)))))
        """,
    )

    (workers,) = program.ended()
    recording = mttp.read(tmp_path / "runs")
    assert {"child": 100} == tasks(recording)
    assert 200 == sum(len(episode.steps) for episode in recording)
    assert (int(workers) + 1, []) == (len(recording.runs), recording.problems)


def test_a_child_that_records_nothing_leaves_nothing(tmp_path: Path) -> None:
    """
    Data loaders fork too: no file, no run, and no second spent on looking at the machine.
    """
    program = Program(
        tmp_path,
        """
        import multiprocessing

        mttp.configure("file://runs/")
        play("parent")
        processes = [multiprocessing.get_context("fork").Process(target=len, args=("",)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        """,
    )
    program.ended()

    assert 1 == len(list((tmp_path / "runs").iterdir()))
    assert 1 == len(mttp.read(tmp_path / "runs").runs)


def test_ids_differ_in_processes_that_are_seeded_alike(tmp_path: Path) -> None:
    """
    Replicas that begin with `random.seed(1)`, and children that a fork made equal.
    """
    program = Program(
        tmp_path,
        """
        import numpy as np

        session = mttp.configure("file://runs/")
        play("before")
        for number in range(4):
            if not os.fork():
                random.seed(1)
                np.random.seed(1)
                for _ in range(100):
                    play("child")
                session.close()
                os._exit(0)
        for _ in range(4):
            os.wait()
        """,
    )
    program.ended()

    recording = mttp.read(tmp_path / "runs")
    spans = [step.span_id for episode in recording for step in episode.steps]
    assert (401, 0) == (len({episode.trace_id for episode in recording}), recording.duplicates)
    assert 802 == len(set(spans)) == len(spans)


def test_a_fork_within_an_episode_leaves_the_episode_to_the_parent(tmp_path: Path) -> None:
    """
    The child's copy of it takes every call and records nothing; episodes that the child starts are its own.
    """
    program = Program(
        tmp_path,
        """
        session = mttp.configure("file://runs/")
        with mttp.episode(task="outer") as outer:
            with outer.step() as step:
                child = os.fork()
                if not child:
                    with mttp.step() as copy:
                        copy.reward(5.0)
                    outer.metric("x", 1)
                    play("inner")
            if not child:
                outer.reward(7.0)
                outer.end()
        if not child:
            session.close()
            print(session.stats.faults["episode_of_parent"] > 0, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """,
    )

    told, *warnings = program_output(program)
    assert "True" == told
    assert 1 == sum("episode_of_parent" in line for line in warnings)
    recording = mttp.read(tmp_path / "runs")
    (outer,) = [episode for episode in recording if episode.task == "outer"]
    assert {"outer": 1, "inner": 1} == tasks(recording)
    assert (1, None, {}) == (len(outer.steps), outer.return_, outer.metrics)
    assert ([], 0) == (recording.problems, recording.duplicates)


@pytest.mark.parametrize("name", ["runs/", "a.jsonl.gz"])
def test_forking_while_everything_is_busy_deadlocks_nobody(name: str, tmp_path: Path) -> None:
    """
    Threads record and flush while another forks: children record, close, and leave.
    """
    program = Program(
        tmp_path,
        f"""
        session = mttp.configure("file://{name}")
        over = threading.Event()
        played = [0] * 3

        def record(number):
            while not over.is_set():
                play("parent")
                played[number] += 1

        def flush():
            while not over.is_set():
                session.flush()

        threads = [threading.Thread(target=record, args=(number,)) for number in range(3)]
        threads.append(threading.Thread(target=flush))
        for thread in threads:
            thread.start()
        codes = []
        for _ in range(25):
            child = os.fork()
            if not child:
                signal.alarm(50)
                play("child")
                session.flush()
                play("child")
                os._exit(0 if session.close() else 1)
            codes.append(os.waitpid(child, 0)[1])
        over.set()
        for thread in threads:
            thread.join()
        print(set(codes), sum(played))
        """,
    )

    (line,) = program.ended()
    assert line.startswith("{0} ")
    recording = mttp.read(tmp_path / name)
    assert {"child": 50, "parent": int(line.split()[-1])} == tasks(recording)
    assert ([], 0, 26) == (recording.problems, recording.duplicates, len(recording.runs))


def test_a_child_of_a_session_in_memory_begins_empty(tmp_path: Path) -> None:
    """
    What is kept so far is the parent's.
    """
    program = Program(
        tmp_path,
        """
        session = mttp.configure("memory://")
        play("parent")
        session.flush()
        if not os.fork():
            play("child")
            print([episode.task for episode in mttp.read(session)], flush=True)
            os._exit(0)
        os.wait()
        print([episode.task for episode in mttp.read(session)])
        """,
    )

    assert ["['child']", "['parent']"] == program.ended()


def test_forking_again_and_again_registers_nothing_again_and_again(tmp_path: Path) -> None:
    """
    A server that forks for each request does not grow.
    """
    program = Program(
        tmp_path,
        """
        import multiprocessing.util as util

        mttp.configure("file://runs/")
        for _ in range(5):
            if not os.fork():
                os._exit(0)
            os.wait()
        print(len(util._afterfork_registry) <= 2)
        """,
    )

    assert ["True"] == program.ended()


# Signals.


def test_a_signal_handler_may_record_flush_and_close(tmp_path: Path) -> None:
    """
    It interrupts recording anywhere, even where a lock is held, and gets its answers.
    """
    program = Program(
        tmp_path,
        """
        session = mttp.configure("file://runs/")
        handled = 0

        def handler(number, frame):
            global handled
            play("handler")
            session.flush()
            handled += 1
            signal.setitimer(signal.ITIMER_REAL, 0.003)

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        played = 0
        deadline = time.monotonic() + 20
        while handled < 100 and time.monotonic() < deadline:
            play("main")
            played += 1
        signal.setitimer(signal.ITIMER_REAL, 0)

        def closing(number, frame):
            session.close()

        signal.signal(signal.SIGALRM, closing)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not session.closed:
            play("late")
        for _ in range(10):
            play("late")
        session.close()
        stats = session.stats.as_dict()
        print(played, handled, stats["pending"], stats["lost"].get("write_failed", 0))
        """,
    )

    line, *_ = program_output(program)
    played, handled, *rest = map(int, line.split())
    recording = mttp.read(tmp_path / "runs")
    counts = tasks(recording)
    assert [0, 0] == rest
    assert (played, handled) == (counts["main"], counts["handler"])
    assert {"late", None} >= {episode.task for episode in recording if not episode.complete}
    assert handled >= 20


def test_an_interrupt_ends_the_run_as_aborted(tmp_path: Path) -> None:
    """
    Ctrl-C: what was recorded is there, with its episode.
    """
    program = Program(
        tmp_path,
        """
        with mttp.configure("file://runs/"), mttp.episode(task="long") as episode:
            while True:
                with episode.step():
                    time.sleep(0.01)
        """,
    )
    assert eventually(lambda: recorded(tmp_path / "runs").runs)
    program.killed(signal.SIGINT)

    recording = mttp.read(tmp_path / "runs")
    (episode,) = recording.episodes
    assert ("aborted", True, ["aborted"]) == (
        episode.status,
        episode.complete,
        [run.status for run in recording.runs],
    )

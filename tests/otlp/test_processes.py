"""Whatever processes do (fork, spawn, get killed), what was recorded is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import SECONDS, eventually

import mttp

NAMES = ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "runs/")

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
        out, _ = self.process.communicate(timeout=2 * SECONDS)
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


@pytest.mark.parametrize(
    ("name", "how"), [*((name, signal.SIGKILL) for name in NAMES), ("a.jsonl.gz", signal.SIGTERM)]
)
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
                print("stepped", flush=True)
                time.sleep(0.005)
        """,
    )

    def enough() -> bool:
        found = recorded(tmp_path / name)
        return any(run.python for run in found.runs) and any(len(episode.steps) > 20 for episode in found)

    assert eventually(enough)
    seen = len(recorded(tmp_path / name).episodes[-1].steps)
    printed = program.killed(how)
    told = how == signal.SIGTERM
    due = len(printed) if told else seen

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


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_process_that_is_killed_at_work_leaves_what_ended_before(name: str, tmp_path: Path) -> None:
    """
    Of some megabytes a second, compressed or not, nothing that had reached the file is lost.
    """
    program = Program(
        tmp_path,
        f"""
        import numpy as np
        rng = np.random.default_rng(0)
        ids = [rng.integers(0, 150_000, 256) for _ in range(50)]
        logprobs = [rng.random(256).astype(np.float32) for _ in range(50)]
        mttp.configure("file://{name}")
        for number in range(10**9):
            with mttp.episode(task=number) as episode:
                for step in range(4):
                    with episode.step() as step_handle:
                        step_handle.tokens(ids[number % 50], logprobs=logprobs[number % 49])
            print("played", flush=True)
            time.sleep(0.002)
        """,
    )
    printed: list[str] = []
    assert program.process.stdout is not None
    while len(printed) < 2000:
        printed.append(program.process.stdout.readline())
    due = set(map(str, range(len(printed))))
    assert eventually(lambda: due <= tasks(recorded(tmp_path / name)).keys())
    program.killed(signal.SIGKILL)

    assert due <= tasks(recorded(tmp_path / name)).keys()


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


@pytest.mark.parametrize("name", ["runs/", "a.jsonl.gz", pytest.param("a.jsonl.zst", marks=pytest.mark.long)])
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


@pytest.mark.parametrize(
    ("method", "name"),
    [("fork", "runs/"), ("fork", "a.jsonl"), ("spawn", "runs/"), ("forkserver", "a.jsonl")],
)
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
    assert 1 == sum("episode_of_parent:" in line for line in warnings)
    recording = mttp.read(tmp_path / "runs")
    (outer,) = [episode for episode in recording if episode.task == "outer"]
    assert {"outer": 1, "inner": 1} == tasks(recording)
    assert (1, None, {}) == (len(outer.steps), outer.return_, outer.metrics)
    assert ([], 0) == (recording.problems, recording.duplicates)


@pytest.mark.parametrize(
    ("name", "forks"),
    [("a.jsonl.gz", 6), *(pytest.param(name, 60, marks=pytest.mark.long) for name in NAMES)],
)
def test_forking_while_everything_is_busy_deadlocks_no_process(name: str, forks: int, tmp_path: Path) -> None:
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
        for _ in range({forks}):
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
    assert {"child": 2 * forks, "parent": int(line.split()[-1])} == tasks(recording)
    assert ([], 0, forks + 1) == (recording.problems, recording.duplicates, len(recording.runs))


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
        while handled < 40:
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
    assert handled >= 40


def test_an_interrupt_ends_the_run_as_aborted(tmp_path: Path) -> None:
    """
    Ctrl-C: what was recorded is there, with its episode.
    """
    program = Program(
        tmp_path,
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests may ignore it
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


# One episode in several processes.

TOLD = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def act(reward):
    with mttp.step() as step:
        step.reward(reward)
    return os.getpid()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_episode_goes_on_in_children_of_multiprocessing(method: str, tmp_path: Path) -> None:
    """
    However they are started: each has a part of its own, closed when its function returns.
    """
    program = Program(
        tmp_path,
        f"""{TOLD}
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    with mttp.configure("file://runs/", run_id="r"), mttp.episode(task="shared"):
        act(1.0)
        processes = [context.Process(target=mttp.recording.bind_context(act), args=(2.0,)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    print(*(process.exitcode for process in processes))
""",
    )

    printed, _ = program.process.communicate(timeout=2 * SECONDS)
    recording = mttp.read(tmp_path / "runs")
    assert "0 0 0\n" == printed
    (episode,) = recording.episodes
    assert (7.0, 4, 3, True) == (
        episode.return_,
        len(episode.steps),
        len(episode.segments),
        episode.complete,
    )
    assert ([], 4, {"r"}) == (recording.problems, len(recording.runs), {run.id for run in recording.runs})


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_that_is_terminated_loses_nothing_that_was_answered(method: str, tmp_path: Path) -> None:
    """
    Leaving the block of a `multiprocessing.Pool` kills its workers: what they did was written before.
    """
    program = Program(
        tmp_path,
        f"""{TOLD}
if __name__ == "__main__":
    with mttp.configure("file://runs/"):
        with multiprocessing.get_context("{method}").Pool(2) as pool:
            for task in range(3):
                with mttp.episode(task=str(task)):
                    pool.map(mttp.recording.bind_context(act), [1.0] * 10)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("{method}")) as pool:
            with mttp.episode(task="futures"):
                list(pool.map(mttp.recording.bind_context(act), [1.0] * 10))
""",
    )

    program.process.communicate(timeout=2 * SECONDS)
    recording = mttp.read(tmp_path / "runs")
    assert {"0": 1, "1": 1, "2": 1, "futures": 1} == tasks(recording)
    assert [(10.0, 10)] * 4 == [(episode.return_, len(episode.segments)) for episode in recording]
    assert [] == recording.problems


def test_a_forked_child_makes_a_part_of_its_own(tmp_path: Path) -> None:
    """
    Handles that it inherited are the parent's; what the carrier tells of is there for everybody.
    """
    program = Program(
        tmp_path,
        """
        session = mttp.configure("file://runs/")
        with mttp.episode(task="shared") as episode, mttp.step() as step:
            carrier = mttp.inject()
            child = os.fork()
            if not child:
                with mttp.extract(carrier) as part:
                    mttp.current_step().reward(0.5)
                    with mttp.step() as own:
                        own.reward(1.0)
                session.close()
                os._exit(0)
            os.waitpid(child, 0)
        """,
    )
    program.ended()

    recording = mttp.read(tmp_path / "runs")
    (episode,) = recording.episodes
    assert ([0, 1], [0.5], 1.0, True) == (
        [step.index for step in episode.steps],
        [reward.value for reward in episode.steps[0].rewards],
        episode.return_,
        episode.complete,
    )
    assert [] == recording.problems


@pytest.mark.parametrize("flushes", [True, False])
def test_a_worker_that_dies_in_its_part_makes_the_episode_incomplete(flushes: bool, tmp_path: Path) -> None:
    """
    By `os._exit`, as by a kill: whether it had ended a span or only begun, its part has no end.
    """
    program = Program(
        tmp_path,
        f"""
        session = mttp.configure("file://runs/")
        with mttp.episode(task="shared"):
            carrier = mttp.inject()
            child = os.fork()
            if not child:
                with mttp.extract(carrier):
                    if {flushes}:
                        with mttp.step() as step:
                            step.reward(1.0)
                    session.flush()
                    os._exit(0)
            os.waitpid(child, 0)
        """,
    )
    program.ended()

    recording, summary = mttp.read(tmp_path / "runs"), mttp.summarize(tmp_path / "runs")
    (episode,) = recording.episodes
    (segment,) = episode.segments
    assert ("completed", False, int(flushes)) == (episode.status, episode.complete, len(episode.steps))
    message = f"episode {episode.trace_id} lacks spans: the end of segment {segment} was not found"
    assert [message] == [str(problem) for problem in recording.problems]
    assert [message] == [str(problem) for problem in summary.problems]


SERVICE = """
import http.server
import json

class Judge(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with mttp.extract(self.headers) as part:
            mttp.current_step().reward(given["last"], grader="process")
            part.reward(sum(given["all"]), components={"total": sum(given["all"])}, grader="outcome")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Judge)
print(server.server_port, flush=True)
server.handle_request()
server.server_close()
mttp.current_session().close()
"""

WORKER = """
import json, sys
import mttp

with mttp.extract(json.loads(sys.stdin.readline())) as part:
    for _ in range(2):
        with mttp.step() as step:
            step.action(sys.argv[1])
            step.reward(1.0)
    print(json.dumps(mttp.inject()), flush=True)
"""


def test_three_processes_record_one_episode(tmp_path: Path) -> None:
    """
    Two rollout workers, over a pipe, and a reward service, over HTTP: one complete trace in the directory.
    """
    (tmp_path / "service.py").write_text("import mttp\n" + SERVICE)
    (tmp_path / "worker.py").write_text(WORKER)
    program = Program(
        tmp_path,
        """
        import json, subprocess, urllib.request

        session = mttp.configure("file://runs/", run_id="r")
        quiet = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        service = subprocess.Popen([sys.executable, "service.py"], **quiet)
        port = service.stdout.readline().strip()
        with mttp.episode(task="shared", group="g") as episode:
            with mttp.step() as step:
                step.action("owner")
            carrier = mttp.inject()
            for name in ("first", "second"):
                worker = [sys.executable, "worker.py", name]
                done = subprocess.run(worker, input=json.dumps(carrier), **quiet)
                carrier = json.loads(done.stdout)
            with mttp.step(index=5) as step:
                body = json.dumps({"last": 0.5, "all": [1, 2]}).encode()
                headers = mttp.inject({"Content-Type": "application/json"})
                url = f"http://127.0.0.1:{port}/"
                urllib.request.urlopen(urllib.request.Request(url, body, headers)).close()
            episode.end(terminated=True, outcome="success")
        service.wait()
        session.close()
        print(service.returncode, session.stats.faults.total())
        """,
    )

    assert ["0 0"] == program.ended()
    recording = mttp.read(tmp_path / "runs")
    (episode,) = recording.episodes
    assert (3.0, "episode", "outcome", 4.0) == (
        episode.return_,
        episode.return_basis,
        episode.reward.grader,
        episode.step_reward_sum,
    )
    assert ["owner", "first", "first", "second", "second", None] == [step.action for step in episode.steps]
    assert [0, 1, 2, 3, 4, 5] == [step.index for step in episode.steps]
    assert [("process", 0.5)] == [(reward.grader, reward.value) for reward in episode.steps[-1].rewards]
    assert (3, True, "success", "g") == (
        len(episode.segments),
        episode.complete,
        episode.outcome,
        episode.group,
    )
    assert ([], 4, 4) == (recording.problems, len(recording.runs), len(recording.sources))
    assert {"r"} == {episode.run_id, *(run.id for run in recording.runs)}
    assert [3.0] == mttp.summarize(tmp_path / "runs").returns.tolist()


def test_a_forked_child_is_ended_by_sigterm_at_once(tmp_path: Path) -> None:
    """
    Only the process that configured writes the rest first: a pool's worker must never outlive its end.
    """
    program = Program(
        tmp_path,
        """
        mttp.configure("file://runs/")
        handled = signal.getsignal(signal.SIGTERM)
        child = os.fork()
        if not child:
            os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        print(os.waitpid(child, 0)[1], handled is signal.SIG_DFL)
        """,
    )

    assert ["0 False"] == program.ended()

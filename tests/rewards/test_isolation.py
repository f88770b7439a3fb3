"""Components in worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from polling import eventually
from programs import told
from rewards.factories import answering

import mttp
from mttp.otlp.processes import can_start
from mttp.rewards.locking import write_lock

GRADERS = """
import os, re, signal, subprocess, time

def fine(completion):
    print("to standard output")
    said = {"label": "long", "explanation": "counted", "evidence": {"pid": os.getpid()}}
    return {"value": len(completion), **said}

def stuck(completion):
    while True:
        pass

def hog(completion):
    return bool(re.fullmatch(r"(a+)+b", completion))

def stopped(completion):
    os.kill(os.getpid(), signal.SIGSTOP)

def dying(completion):
    os._exit(7)

def shell(completion):
    return float(subprocess.run(["sh", "-c", "exit 3"]).returncode)

class Own:
    def __repr__(self):
        return "<my own>"

def odd(completion):
    return 1.0, {"evidence": [Own(), (1, 2.5)]}

async def slowly(completion):
    return 0.5

def many(completions):
    return [float(len(one)) for one in completions]

def criteria(completion):
    return {"a": (1.0, {"evidence": [Own()]}), "b": 0.5}

def longer(completion):
    one, other = map(len, completion)
    return float(one > other)

def length(completion):
    return float(completion.length)
"""

SPEC = """
mttp: reward-spec/1
name: apart
version: 1.0.0
inputs: {{completion: any}}
components:
  - {{name: it, kind: rubric, use: "graders:{use}", isolation: process, timeout: {timeout}{more}}}
"""


@pytest.fixture
def apart(tmp_path: Path):
    """Makes a spec of one isolated component."""

    def make(use: str, timeout: float | str = 60.0, more: str = "") -> mttp.RewardSpec:
        (tmp_path / "graders.py").write_text(GRADERS)
        file = tmp_path / f"{use}.yaml"
        file.write_text(SPEC.format(use=use, timeout=timeout, more=more))
        return mttp.RewardSpec.load(file)

    return make


def test_a_worker_answers_as_the_function_would(apart, capfd):
    """
    Values and reasons come back from one process; prints do not mix with replies.
    """
    made = apart("fine")
    grades = [made.score(completion="abc").components["it"] for _ in range(2)]

    assert [(3.0, "long", "counted")] * 2 == [(one.value, one.label, one.explanation) for one in grades]
    assert os.getpid() != grades[0].evidence["pid"] == grades[1].evidence["pid"]
    assert "to standard output" in capfd.readouterr().err


def test_a_worker_trusts_what_its_process_trusts(apart, tmp_path, caplog):
    """
    A spec that changes while it scores can't extend a worker's trust.
    """
    made = apart("fine")
    assert made.plan
    (tmp_path / "fine.yaml").write_text(
        SPEC.format(use="fine", timeout=60.0, more="").replace("graders", "this")
    )

    result = made.score(completion="abc")

    assert "the module this is not trusted" in str(result.error)


def test_a_worker_calls_what_the_user_trusts(tmp_path):
    """
    Trusted modules elsewhere work by name.
    """
    text = SPEC.format(use="mean", timeout=60.0, more="")
    text = text.replace("graders", "statistics").replace("completion: any", "data: any")
    (tmp_path / "mean.yaml").write_text(text)

    result = mttp.RewardSpec.load(tmp_path / "mean.yaml", trust="statistics").score(
        data=[1, 2, 3], weights=None
    )

    assert (2.0, None) == (result.value, result.error)


def test_what_never_ends_is_ended(apart):
    """
    The worker is killed at the time limit, and the error names it.
    """
    result = apart("stuck", timeout=0.2).score(completion="abc")

    assert (None, "it: timed out after 0.2 s") == (result.value, result.error)


def test_what_holds_the_interpreter_is_ended_too(apart):
    """
    A runaway regular expression holds the GIL.
    """
    result = apart("hog", timeout=0.3).score(completion="a" * 60)

    assert "it: timed out after 0.3 s" == result.error


def test_a_worker_that_dies_is_replaced(apart):
    """
    Its sample is invalid, and the next one gets a new worker.
    """
    made = apart("dying")

    assert ["it: the worker ended with exit code 7"] * 2 == [made.score(completion="a").error for _ in "ab"]


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="the system does not say what is stopped")
@pytest.mark.parametrize("timeout", [60.0, "null"])
def test_a_worker_that_is_stopped_is_ended(apart, monkeypatch, timeout):
    """
    With and without a time limit, since it would never reply.
    """
    monkeypatch.setattr("mttp.rewards.isolation.STOPPED_SECONDS", 0.2)
    made = apart("stopped", timeout=timeout)

    assert ["it: the worker was stopped by a signal"] * 2 == [made.score(completion="a").error for _ in "ab"]


def test_what_can_t_be_sent_is_reported(apart):
    """
    A sample that can't be pickled is invalid; evidence comes back as JSON values.
    """
    assert "it: the sample can't be pickled for a worker" in apart("fine").score(completion=lambda: 1).error
    assert ["<my own>", [1, 2.5]] == apart("odd").score(completion="a").components["it"].evidence


def test_asynchronous_and_batch_functions_work_apart(apart):
    """
    Every kind of function works in a worker.
    """
    assert 0.5 == apart("slowly").score(completion="a").value
    batch = apart("many", more=", arity: batch")
    assert [1.0, 2.0] == [one.value for one in batch.score_batch([{"completion": "a"}, {"completion": "ab"}])]


def test_calls_at_once_have_workers_each(apart):
    """
    Concurrent calls use one worker each.
    """
    results = apart("fine").score_batch([{"completion": "a"}] * 8, concurrency=2)

    assert [1.0] * 8 == [result.value for result in results]
    assert len({result.components["it"].evidence["pid"] for result in results}) <= 2


def test_a_changed_spec_is_not_scored_by(apart, tmp_path):
    """
    A worker refuses code that differs from this process's digest.
    """
    made = apart("fine")
    _ = made.plan
    (tmp_path / "graders.py").write_text(GRADERS.replace("len(completion)", "2 * len(completion)"))

    assert "changed after the spec was loaded; load the spec again" in made.score(completion="a").error


def test_isolation_needs_a_file():
    """
    A worker loads the spec by its path.
    """
    with pytest.raises(ValueError, match="isolation: process needs a spec file"):
        answering(1.0, isolation="process").score()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("use", "last"), [("fine", "a"), ("hog", "a" * 60)])
def test_a_worker_ends_with_its_parent(apart, use, last):
    """
    It does however the parent ends, even while a component holds the GIL.
    """
    made = apart(use, timeout=1.0)
    program = f"""
import mttp, os, signal, threading, time
spec = mttp.RewardSpec.load({str(made.path)!r})
spec.score(completion="b")
print(spec.plan.prepared["workers"]._idle[0]._process.pid, flush=True)
threading.Thread(target=lambda: spec.score(completion={last!r}), daemon=True).start()
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    worker = int(done.stdout)

    assert eventually(lambda: not _runs(worker))


CHILDREN = """
import ctypes, json, os, signal, sys, threading, time
import mttp
reaped, done = [], threading.Event()
def reap(*_):
    while True:
        try:
            pid = os.waitpid(-1, os.WNOHANG)[0]
        except ChildProcessError:
            return
        if not pid:
            return
        reaped.append(pid)
{before}
spec = mttp.RewardSpec.load({path!r})
values = [spec.score(completion=text).value for text in ("a", "ab")]
{after}
print(json.dumps([values, reaped]))
"""
REAPS_IN_A_THREAD = """
def loop():
    while not done.is_set():
        reap()
        time.sleep(0.0005)
thread = threading.Thread(target=loop)
thread.start()
"""
WAITS_FOR_ALL = """
started = os.fork() or os._exit(0)
while True:
    try:
        reaped.append(os.wait()[0])
    except ChildProcessError:
        break
reaped.remove(started)
"""


@pytest.mark.skipif(not can_start(), reason="no orphan can be started here")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", WAITS_FOR_ALL),
        (REAPS_IN_A_THREAD, "done.set()\nthread.join()"),
        ("signal.signal(signal.SIGCHLD, reap)", ""),
        ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", ""),
    ],
    ids=["waits for all", "reaps in a thread", "reaps in a handler", "ignores children"],
)
def test_a_worker_is_no_child_that_the_program_can_wait_for(apart, before: str, after: str) -> None:
    """
    Its own children have their exit codes, as everywhere.
    """
    code = CHILDREN.format(before=before, after=after, path=str(apart("shell").path))

    assert [[3.0, 3.0], []] == told(code)


@pytest.mark.parametrize("use", ["fine", "dying", "stuck"])
def test_where_orphans_come_back_a_worker_is_a_child(apart, use: str) -> None:
    """
    As in containers; it leaves no process behind, however it ends.
    """
    made = apart(use, timeout=1.0)
    code = f"""
        import ctypes, gc, json, os
        import mttp
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        spec = mttp.RewardSpec.load({str(made.path)!r})
        result = spec.score(completion="abc")
        del spec
        gc.collect()
        children = []
        try:
            children.append(os.waitpid(-1, os.WNOHANG)[0])
        except ChildProcessError:
            pass
        print(json.dumps([result.value or result.error, children]))
    """
    expected = {
        "fine": 3.0,
        "dying": "it: the worker ended with exit code 7",
        "stuck": "it: timed out after 1 s",
    }

    assert [expected[use], []] == told(code, warned="to standard output")


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_several_criteria_come_back_from_a_worker(apart):
    """
    Reasons come back as JSON values.
    """
    grade = apart("criteria", more=", criteria: [a, b]").score(completion="a").components["it"]

    assert (0.75, [1.0, 0.5]) == (grade.value, [part.value for part in grade.parts])
    assert ["<my own>"] == grade.parts[0].evidence


def test_pairs_are_compared_in_a_worker(apart):
    """
    Pairwise components work in a worker.
    """
    ranking = apart("longer", more=", relative: pairwise").rank([{"completion": one} for one in ("aa", "a")])

    assert (1.0, 0.0) == ranking.values


def test_a_recorded_episode_reaches_a_worker(apart, session):
    """
    The worker scores an equal episode.
    """
    with mttp.episode() as ep, ep.step():
        pass

    assert 1.0 == apart("length").score(completion=mttp.read(session).episodes[0]).value


def test_a_lock_that_does_not_fit_is_reported_once(apart, capfd, caplog):
    """
    The scoring process logs it, its workers do not.
    """
    write_lock(apart("fine"))
    made = apart("fine", more=", weight: 2")
    made.score_batch([{"completion": "a"}] * 4)

    said = [record.getMessage() for record in caplog.records if "in its lock" in record.getMessage()]
    assert (1, False) == (len(said), "in its lock" in capfd.readouterr().err)


@pytest.mark.parametrize(
    "written",
    [
        "struct.pack('<BQ', 0, 2**62)",
        "struct.pack('<BQ', 0, 2**31 - 1)",
        "b'\\xff' * 9",
        "struct.pack('<BQ', 0, 4) + b'junk'",
        "struct.pack('<BQ', 0, len(pickle.dumps(7))) + pickle.dumps(7)",
    ],
)
def test_a_component_that_answers_in_place_of_its_worker_is_invalid(tmp_path: Path, written: str) -> None:
    """
    Bytes written to the worker's socket are no reply, and the next sample is scored.
    """
    (tmp_path / "graders.py").write_text(
        f"""
import os, pickle, stat, struct

def it(completion):
    for fd in range(3, 64) if completion == "bad" else ():
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, {written})
        except OSError:
            pass
    return 1.0
"""
    )
    (tmp_path / "it.yaml").write_text(SPEC.format(use="it", timeout=5.0, more=""))
    made = mttp.RewardSpec.load(tmp_path / "it.yaml")

    bad, good = made.score(completion="bad"), made.score(completion="good")

    assert bad.value is None
    assert str(bad.error).startswith("it: ")
    assert 1.0 == good.value

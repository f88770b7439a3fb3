"""Processes that mttp starts are no children of the program, and never come back to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from programs import told

from mttp.otlp import orphans
from mttp.otlp.orphans import Orphan
from mttp.otlp.processes import can_start

pytestmark = pytest.mark.skipif(not can_start(), reason="no orphan can be started here")

PROGRAM = """
import ctypes, json, os, signal, subprocess, sys, threading, time
import mttp
from mttp.otlp.encoding import encoder

encoder.WORTH_SECONDS = 0.0
signals = []
{before}
session = mttp.configure("file://runs/")

def play():
    with mttp.episode(env="a") as episode:
        for _ in range(50):
            episode.step().end()
    session.flush()

def helper():
    own = encoder._encoding._helper
    return own if own is not None and own.is_ready else None

until = time.monotonic() + {seconds}
while time.monotonic() < until and not helper():
    play()
pid = helper() and helper().pid
{after}
session.close()
print(json.dumps({result}))
"""


def program(*, before: str = "", after: str = "", result: str, seconds: float = 60.0) -> str:
    """A program that records until it has a helper, or until it is clear that it gets none."""
    parts = {"{before}": before, "{after}": after, "{result}": result, "{seconds}": str(seconds)}
    code = PROGRAM
    for mark, part in parts.items():
        code = code.replace(mark, part)
    return code


def test_a_program_that_waits_for_its_children_gets_only_those() -> None:
    """
    Until none is left, as launchers do.
    """
    after = """
waited = []
started = [os.fork() or os._exit(0) for _ in range(2)]
while True:
    try:
        waited.append(os.wait()[0])
    except ChildProcessError:
        break
"""
    is_there, are_same = told(
        program(after=after, result="[pid is not None, sorted(waited) == sorted(started)]")
    )

    assert (True, True) == (is_there, are_same)


def test_a_program_that_reaps_all_children_at_any_time_gets_no_process_of_mttp() -> None:
    """
    Neither by a loop in another thread, nor by a handler, which no start calls.
    """
    before = """
reaped, done = [], threading.Event()
signal.signal(signal.SIGCHLD, lambda *_: signals.append(1))
def reap():
    while not done.is_set():
        try:
            reaped.append(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            pass
        time.sleep(0.0005)
thread = threading.Thread(target=reap)
thread.start()
"""
    result = "[pid is not None, reaped, signals]"

    assert [True, [], []] == told(program(before=before, after="done.set(); thread.join()", result=result))


def test_a_program_that_ignores_its_children_is_recorded() -> None:
    """
    The system then forgets children at once, and a helper is none.
    """
    before = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"

    found = told(program(before=before, after="play()", result="[pid is not None, encoder.losses()]"))

    assert [True, 0] == found


def test_children_of_the_program_have_their_exit_codes() -> None:
    """
    Whatever starts them.
    """
    after = """
from concurrent.futures import ProcessPoolExecutor
import asyncio, multiprocessing
async def ended():
    return await (await asyncio.create_subprocess_exec("sh", "-c", "exit 3")).wait()
codes = [subprocess.run(["sh", "-c", "exit 2"]).returncode, asyncio.run(ended())]
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
    codes.append(pool.submit(abs, -4).result())
"""

    assert [True, [2, 3, 4]] == told(program(after=after, result="[helper() is not None, codes]"))


@pytest.mark.parametrize(
    "before",
    [
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)",
        "os.getpid = lambda: 1",
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\nif os.fork():\n    os._exit(os.wait()[1])",
    ],
    ids=["subreaper", "process 1", "forked by a subreaper"],
)
def test_where_orphans_come_back_to_the_program_there_is_no_helper(before: str) -> None:
    """
    As in containers: the process itself encodes, and nothing is lost.
    """
    result = "[encoder._encoding._helper is None, encoder._encoding._may_help, session.stats.lost.total()]"

    assert [True, False, 0] == told(program(before=before, result=result, seconds=0.5))


def test_a_process_1_has_no_helper() -> None:
    """
    The real thing, where the system permits it.
    """
    enter = ["unshare", "--pid", "--fork", "--mount-proc"]
    try:
        if subprocess.run([*enter, "true"], capture_output=True).returncode:
            pytest.skip("no namespace of processes can be made here")
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    Path("program.py").write_text(
        program(result="[os.getpid(), encoder._encoding._helper is None]", seconds=0.5)
    )
    done = subprocess.run([*enter, sys.executable, "program.py"], capture_output=True, text=True, timeout=60)

    assert ("[1, true]", "") == (done.stdout.strip(), done.stderr)


def test_a_program_that_closes_every_descriptor_gets_nothing_of_the_helper() -> None:
    """
    The number of the helper's socket is another socket by then; the process encodes, and goes on.
    """
    after = """
import socket
os.closerange(3, 256)
pairs = [socket.socketpair() for _ in range(8)]
play()
received = b""
for pair in pairs:
    for end in pair:
        end.setblocking(False)
        try:
            received += end.recv(1)
        except BlockingIOError:
            pass
"""
    code = program(after=after, result="[len(received), encoder.losses()]")

    assert [0, 1] == told(code, warned="mttp: the")


def test_a_process_is_known_by_its_start() -> None:
    """
    Another one that gets its id later is never killed in its place.
    """
    process = subprocess.Popen(["sleep", "60"])
    try:
        orphan = Orphan(process.pid)
        orphan._started = "0"
        orphan.kill()

        assert orphan.has_ended
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["printf", "a\\nb\\n"], b"a\nb"),
        (["true"], b""),
        (["false"], None),
        (["sh", "-c", "echo it; exit 3"], None),
        (["echo", "a 'b' $c"], b"a 'b' $c"),
    ],
)
def test_the_output_of_a_command_is_read(words: list[str], expected: bytes | None) -> None:
    """
    Of one that succeeds.
    """
    found = orphans.output(words, 30.0)

    assert expected == (found.rstrip() if found is not None else None)

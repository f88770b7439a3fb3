"""A session that lost something says so once, when it ends."""

from __future__ import annotations

import re
import socket
import subprocess
import sys

import pytest

RECORDED = """
import os, signal, sys
import mttp
session = mttp.configure({transport}, close_timeout={timeout})
for _ in range(3):
    with mttp.episode() as episode:
        with episode.step() as step:
            step.reward({reward})
{ending}
"""
FINE = "file://runs/"


def closed_port() -> str:
    """The address of a receiver that is not there."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"


def summaries(*, transport: object, reward: str = "1.0", ending: str = "", code: int = 0) -> list[str]:
    """The lines of this kind on standard error of a program."""
    timeout = 60 if transport == FINE else 3  # what a receiver does not take is given up
    program = RECORDED.format(transport=repr(transport), reward=reward, ending=ending, timeout=timeout)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)

    print(done.stderr)
    assert code == done.returncode
    return [line for line in done.stderr.splitlines() if "mttp doctor" in line]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("session.close()", 0),
        ("session.close(); session.close()", 0),
        ("raise ValueError(1)", 1),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
    ],
)
def test_what_was_lost_is_said_in_one_line(ending: str, code: int) -> None:
    """
    However the program ends.
    """
    (line,) = summaries(transport=closed_port(), ending=ending, code=code)

    found = re.fullmatch(
        r"mttp: run [0-9a-f]+: (\d+) spans recorded, 0 delivered, (\d+) lost \(\w+ (\d+)\);"
        r" `mttp doctor` checks the set-up",
        line,
    )
    assert found is not None, line
    assert found[1] == found[2] == found[3]
    assert int(found[1]) >= 6


def test_faults_alone_are_said_too() -> None:
    """
    Everything was delivered.
    """
    (line,) = summaries(transport=FINE, reward="float('nan')")

    assert re.search(r"(\d+) spans recorded, \1 delivered, 0 lost, 3 faults \(reward_\w+ 3\);", line), line


def test_several_transports_are_said_in_one_line() -> None:
    """
    One of which delivered.
    """
    (line,) = summaries(transport=[FINE, closed_port()])

    recorded, delivered, lost = map(int, re.findall(r"(\d+) (?:spans recorded|delivered|lost)", line))
    assert recorded == delivered + lost
    assert 0 < delivered


def test_nothing_is_said_where_nothing_was_lost() -> None:
    """
    With or without an end of its own.
    """
    assert [] == summaries(transport=FINE)
    assert [] == summaries(transport=FINE, ending="session.close()")


def test_each_session_of_a_program_says_it() -> None:
    """
    Once each, with its own counts.
    """
    again = "session.close(); s = mttp.configure('memory://'); mttp.step().reward(1.0); s.close()"
    first, second = summaries(transport=closed_port(), ending=again)

    assert "fault" not in first
    assert "0 lost, 1 fault (step_outside_episode 1)" in second

"""Descriptors of a program that closes numbers, and reuses them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mttp
from mttp.otlp.descriptors import Descriptor

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="there are no such descriptors here"
)


def play(count: int) -> None:
    """Record so many episodes."""
    for _ in range(count):
        with mttp.episode(env="a"):
            pass


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_file_of_the_program_that_gets_our_number_is_never_written(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The recording is opened again by its path, nothing is lost, and the log says so once.
    """
    session = mttp.configure(f"file://{name}")
    play(2)
    session.flush()
    for link in [*Path("/proc/self/fd").iterdir()]:
        if link.resolve().name == name:
            os.close(int(link.name))
    files = [os.open(f"checkpoint{number}", os.O_WRONLY | os.O_CREAT) for number in range(8)]
    play(3)
    session.flush()
    play(1)

    assert session.close()
    assert [0] * 8 == [os.fstat(file).st_size for file in files]
    assert 6 == len(mttp.read(name))
    assert 1 == caplog.text.count("the program has closed the descriptor")
    for file in files:
        os.close(file)


def test_a_new_file_with_the_inode_of_a_deleted_one_is_not_ours() -> None:
    """
    How it was opened tells them apart.
    """
    ours = Descriptor(os.open("a", os.O_RDWR | os.O_CREAT | os.O_APPEND))
    os.close(ours.number)
    other = os.open("a", os.O_WRONLY)
    os.dup2(other, ours.number)

    assert not ours.is_ours
    ours.close()
    os.fstat(ours.number)
    os.close(ours.number)


PROGRAM = """
import os, sys
for number in (0, 1, 2):
    os.close(number)
import mttp
session = mttp.configure("file://a.jsonl", provenance={provenance})
with mttp.episode(env="e"):
    pass
session.flush()
for number in (0, 1, 2):
    try:
        os.write(number, b"printed")
    except OSError:
        pass
with mttp.episode(env="e"):
    pass
session.close()
"""


@pytest.mark.parametrize("provenance", [True, False])
def test_what_a_daemon_prints_is_not_in_its_recording(provenance: bool) -> None:
    """
    Its standard streams are closed, and no file of mttp takes their numbers.
    """
    code = PROGRAM.replace("{provenance}", str(provenance))
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)

    assert "printed" not in Path("a.jsonl").read_text()
    assert 2 == len(mttp.read("a.jsonl"))

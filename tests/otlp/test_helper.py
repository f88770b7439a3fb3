"""A helper that is stopped, killed, slow, or dies within its answer: nothing is lost, nothing is twice."""

from __future__ import annotations

import os
import signal
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from polling import SECONDS, eventually
from programs import told
from specimen import EVERYTHING

import mttp
from mttp.codec.profiles import unpacked
from mttp.otlp.encoding import encoder
from mttp.otlp.json_decode import decode_line
from mttp.otlp.processes import Process, can_start
from mttp.otlp.protobuf import encode_span
from mttp.otlp.spans.span_records import framed
from mttp.testing import OtlpReceiver
from mttp.transports.file import FileTransport

pytestmark = pytest.mark.skipif(not can_start(), reason="no helper can be started here")

FILE = "file://a.jsonl"
LONG = pytest.mark.long


def play(episodes: int, *, steps: int = 500, tokens: int = 4) -> None:
    """Episodes whose steps say something."""
    for _ in range(episodes):
        with mttp.episode(env="a") as episode:
            for number in range(steps):
                with episode.step() as step:
                    step.reward(float(number))
                    step.tokens([number] * tokens)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that does not answer is lost soon."""
    monkeypatch.setattr("mttp.otlp.encoding.encoder.TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr("mttp.transports.pipeline.pipeline.HELPER_SECONDS", 0.5)


def stop(helped: encoder._Encoding) -> int:
    """Stop the helper, as a debugger or a job scheduler does."""
    assert helped._helper is not None
    pid = helped._helper.pid
    os.kill(pid, signal.SIGSTOP)
    return pid


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even one whose parent has not waited for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def holds(session: mttp.Session, *, path: str = "a.jsonl") -> None:
    """Everything that was recorded was delivered, and is in the file once."""
    stats, recording = session.stats, mttp.read(path)
    spans = Counter(step.span_id for episode in recording.episodes for step in episode.steps)

    assert (stats.recorded, 0, {}) == (stats.delivered, stats.pending, dict(stats.lost))
    assert [] == list(recording.problems)
    assert (stats.episodes, stats.steps) == (len(recording.episodes), len(spans))
    assert {1} == set(spans.values())


@pytest.mark.parametrize(("timeout", "episodes"), [pytest.param(None, 60, marks=LONG), (60.0, 20)])
def test_close_delivers_what_a_stopped_helper_does_not_encode(
    helped: encoder._Encoding,
    caplog: pytest.LogCaptureFixture,
    timeout: float | None,
    episodes: int,
) -> None:
    """
    It is killed in time for this process to encode all that waits: tens of thousands of spans.
    """
    session = mttp.configure(FILE)
    pid = stop(helped)
    play(episodes)
    assert 480 * episodes < session.stats.pending

    assert session.close(timeout)

    holds(session)
    assert eventually(lambda: is_gone(pid))
    assert {"helper_lost": 1} == dict(session.stats.faults)
    assert 1 == caplog.text.count("the encoding process was lost")
    assert "it did not answer for 2.0 s" in caplog.text


@pytest.mark.usefixtures("impatient")
def test_flush_delivers_what_a_stopped_helper_does_not_encode(helped: encoder._Encoding) -> None:
    """
    A run that goes on stops waiting for it after the timeout.
    """
    with mttp.configure(FILE) as session:
        stop(helped)
        play(2)

        assert session.flush()
        assert {"helper_lost": 1} == dict(session.stats.faults)
    holds(session)


@pytest.mark.usefixtures("impatient")
def test_a_collector_gets_what_a_stopped_helper_does_not_encode(helped: encoder._Encoding) -> None:
    """
    Its messages are then encoded when they are sent.
    """
    with OtlpReceiver() as receiver:
        session = mttp.configure(receiver.http_address)
        stop(helped)
        play(4)

        assert session.close()
        assert [500] * 4 == [len(one.steps) for one in mttp.read(receiver).episodes]


def test_spans_of_a_file_are_encoded_alike(helped: encoder._Encoding) -> None:
    with mttp.configure(FILE) as session:
        session.record(EVERYTHING)
        play(2, steps=5)
    lines = Path("a.jsonl").read_bytes().splitlines()
    records = [one for line in lines for one in decode_line(line)]
    whole = [replace(one, attributes=unpacked(one.attributes)) for one in records]

    assert list(map(encode_span, whole)) == encoder.messages(list(map(framed, whole)))


@pytest.mark.usefixtures("impatient")
def test_several_transports_wait_for_a_stopped_helper_together(helped: encoder._Encoding) -> None:
    """
    One of them asks it, and the others learn from that.
    """
    session = mttp.configure([FILE, "file://b.jsonl", "file://c.jsonl"])
    stop(helped)
    play(4)

    assert session.close()

    assert {"helper_lost": 1} == dict(session.stats.faults)
    for name in "abc":
        assert session.stats.steps == sum(len(one.steps) for one in mttp.read(f"{name}.jsonl").episodes)


def test_a_full_buffer_does_not_wait_for_a_stopped_helper(helped: encoder._Encoding) -> None:
    """
    Before an episode has been held up for as long as it may, this process encodes, and there is space again.
    """
    transport = FileTransport("a.jsonl")
    transport.buffer_bytes, transport.max_block_seconds = 2**21, SECONDS  # type: ignore[attr-defined]
    with mttp.configure(transport) as session:
        stop(helped)
        play(40, steps=100, tokens=1000)

        assert 0 < session.stats.blocked_seconds < SECONDS
    holds(session)


def test_helpers_that_stop_again_and_again_are_given_up(
    helped: encoder._Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    After the second one this process goes on alone.
    """
    monkeypatch.setattr(encoder, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr("mttp.otlp.encoding.encoder.TIMEOUT_SECONDS", 0.5)
    with mttp.configure(FILE) as session:
        for _ in range(2):
            assert eventually(lambda: helped._helper is not None and helped._helper.is_ready)
            stop(helped)
            play(1)
            assert session.flush()
        play(1)
        assert session.flush()

        assert helped._helper is None
        assert {"helper_lost": 2} == dict(session.stats.faults)
    holds(session)


FOREIGN = """
import os, signal, struct, time
from mttp.otlp import processes
from mttp.otlp import frames

def half(end, kind, data, *_):
    if not data:
        return send(end, kind, data)
    end.sendall(struct.pack("<BQ", kind, len(data)))
    end.sendall(data[: len(data) // 2])
    {then}

def late(end, kind, data, *_):
    time.sleep(0.8 if data else 0.0)
    send(end, kind, data)

send, processes._send = processes._send, {kind}
processes.serve(frames.answer)
"""


@pytest.fixture
def misbehaving(
    helped: encoder._Encoding, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., None]:
    """Put a helper in place of the one that is there, which answers in its own way."""
    monkeypatch.syspath_prepend(tmp_path)

    def replaced(kind: str, then: str = "") -> None:
        (tmp_path / "misbehaving.py").write_text(FOREIGN.replace("{kind}", kind).replace("{then}", then))
        assert helped._helper is not None
        helped._helper.close()
        own = helped._helper = Process("misbehaving")
        assert eventually(lambda: own.is_ready)

    return replaced


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("then", ["os._exit(1)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 19)"])
def test_half_an_answer_is_none(misbehaving: Callable[..., None], then: str) -> None:
    """
    A helper that dies, or is stopped, within its answer has encoded nothing.
    """
    misbehaving("half", then)
    session = mttp.configure(FILE)
    play(2)

    assert session.close()
    holds(session)
    assert {"helper_lost": 1} == dict(session.stats.faults)


def test_a_slow_helper_is_waited_for(misbehaving: Callable[..., None], helped: encoder._Encoding) -> None:
    """
    On a busy machine each answer takes its time; nothing is encoded twice meanwhile, nor is it killed.
    """
    misbehaving("late")
    session = mttp.configure(FILE)
    play(2)

    assert session.flush()
    assert session.close()
    holds(session)
    assert {} == dict(session.stats.faults)
    assert helped._helper is not None


def test_a_killed_helper_loses_nothing(helped: encoder._Encoding) -> None:
    """
    Wherever it was.
    """
    session = mttp.configure(FILE)
    play(10)
    assert helped._helper is not None
    os.kill(helped._helper.pid, signal.SIGKILL)
    play(10)

    assert session.close()
    holds(session)


PROGRAM = """
import os, signal, time
import mttp
from mttp.otlp.encoding import encoder
from mttp.transports.pipeline import pipeline

def play():
    with mttp.episode(env="a") as episode:
        for _ in range(500):
            with episode.step() as step:
                step.tokens([1, 2, 3])

encoder.WORTH_SECONDS = 0.0
pipeline.HELPER_SECONDS = 0.5
session = mttp.configure("file://runs/")
while not (encoder._encoding._helper and encoder._encoding._helper.is_ready):
    play()
    session.flush()
    time.sleep(0.01)
os.kill(encoder._encoding._helper.pid, signal.SIGSTOP)
play()
{then}
print(session.stats.steps)
"""


def test_a_program_ends_in_time_with_a_stopped_helper() -> None:
    """
    Also one that never closes its session: all that it recorded is in its file.
    """
    steps = told(PROGRAM.replace("{then}", ""), warned="the encoding process was lost")

    assert steps == sum(len(one.steps) for one in mttp.read("runs").episodes)


def test_a_forked_child_does_not_wait_for_its_parents_stopped_helper() -> None:
    """
    Both write what they recorded.
    """
    then = """
    if not os.fork():
        play()
        os._exit(0 if session.close() and not session.stats.faults else 1)
    assert not os.waitstatus_to_exitcode(os.wait()[1])
    assert session.close()
    """
    steps = told(PROGRAM.replace("{then}", textwrap.dedent(then)), warned="the encoding process was lost")

    assert steps + 500 == sum(len(one.steps) for one in mttp.read("runs").episodes)


def test_an_encoding_process_that_is_ended_is_not_lost(
    helped: encoder._Encoding, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Closing ends a pending request without a warning.
    """
    session = mttp.configure(FILE)
    stop(helped)
    play(2)
    asked = session.flush(0.1)
    helper = helped._helper
    assert helper is not None
    assert eventually(lambda: helper.is_working)

    helped.close()

    assert not asked
    assert session.close()
    assert 0 == helped.deaths
    assert "was lost" not in caplog.text
    holds(session)

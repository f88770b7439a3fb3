"""Faults of the process itself: its clock, its memory, its encoding process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from unittest.mock import patch

from polling import eventually

from faults.account import Account, arrived_at, arrived_in_files, recording
from faults.scene import fault
from mttp.model import clock
from mttp.otlp.encoding import encoder
from mttp.testing import Behaviour, OtlpReceiver
from mttp.transports.otlp import OtlpTransport

HOUR = 3600.0


@fault("The wall clock is set back by an hour, then forward again.", "Spans are written as before.")
def clock_goes_back(folder: Path) -> Account:
    account, path = Account(), folder / "a.jsonl"
    with recording(f"file://{path}", account) as loop:
        loop.train()
        real = clock.wall
        with patch.object(clock, "wall", lambda: real() - int(HOUR * 1e9)):
            loop.train(0.5)
        loop.train()
    account.arrived = arrived_in_files(path)
    account.check()
    return account


@fault(
    "Memory runs out for a while when spans are encoded.",
    "The spans wait, and are encoded when there is memory.",
)
def memory_runs_out(folder: Path) -> Account:
    account, path = Account(), folder / "a.jsonl"
    failures = 0

    def fails(_: object) -> bytes:
        nonlocal failures
        failures += 1
        raise MemoryError

    with recording(f"file://{path}", account) as loop:
        loop.train()
        loop.session.flush(5)
        for _ in range(2):
            with patch.object(encoder, "lines", fails):
                loop.train(0.8)
            loop.train()
    account.arrived = arrived_in_files(path)
    account.check()
    assert failures > 4
    account.note = f"{failures} attempts without memory"
    return account


@fault(
    "A collector's queue in memory is full.", "Whole episodes are counted as `buffer_full`; the rest arrives."
)
def queue_full(folder: Path) -> Account:
    account = Account()
    with OtlpReceiver() as receiver:
        transport = OtlpTransport(f"{receiver.http_address}/v1/traces", timeout=5)
        transport.buffer_bytes = 200_000
        receiver.behave(Behaviour(status=503), forever=True)
        with recording(transport, account) as loop:
            loop.train(0.8)
            receiver.behave()
            assert eventually(lambda: loop.session.stats.pending == 0)
            loop.train()
        account.arrived = arrived_at(receiver)
    account.check(lost=["buffer_full"])
    return account


@fault("The encoding process is stopped by SIGSTOP.", "The session's process encodes instead.")
def encoding_process_stopped(folder: Path) -> Account:
    return _encoding_process(folder, signal.SIGSTOP)


@fault("The encoding process is killed.", "The session's process encodes instead.")
def encoding_process_killed(folder: Path) -> Account:
    return _encoding_process(folder, signal.SIGKILL)


def _encoding_process(folder: Path, how: signal.Signals) -> Account:
    account, path = Account(), folder / "a.jsonl"
    with recording(f"file://{path}", account) as loop:
        loop.train(10, until=_helper)
        helper = _helper()
        assert helper, "no encoding process was started"
        os.kill(helper, how)
        loop.train(0.5)
    account.arrived = arrived_in_files(path)
    account.check()
    return account


def _helper() -> int:
    """The encoding process of this process; 0 without one."""
    helper = encoder._encoding._helper
    return helper.pid if helper is not None and helper.is_ready else 0

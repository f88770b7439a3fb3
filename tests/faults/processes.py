"""Faults of processes: they are killed, fork, start others, or end without closing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polling import SECONDS, eventually

from faults.account import Account, arrived_in_files
from faults.scene import fault

_HEAD = """
    import json, multiprocessing, os, signal, sys, time
    sys.path.insert(0, {tests!r})
    from dataclasses import asdict
    from faults.account import Account, Recording, recording

    address, account = sys.argv[1], Account()

    def say(account, **more):
        line = asdict(account) | more
        line["lost"] = dict(line["lost"])
        print(json.dumps(line), flush=True)

    def moment(loop):
        '''Say how many spans have ended by now.'''
        now = loop.session.stats.as_dict()
        say(account, now=now["recorded"], counted=now["steps"])
"""


class Program:
    """A program that records, and says its accounts line by line."""

    def __init__(self, code: str, address: str) -> None:
        head = textwrap.dedent(_HEAD).format(tests=str(Path(__file__).parents[1]))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", head + textwrap.dedent(code), address],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def lines(
        self, *, kill: signal.Signals | None = None, once: Callable[[dict[str, Any]], bool] = bool
    ) -> list[dict[str, Any]]:
        """What it said until it ended; it gets a signal after its first line, once that is true of it."""
        assert self.process.stdout is not None
        found = []
        with self.process:
            try:
                if kill is not None:
                    found.append(json.loads(self.process.stdout.readline()))
                    assert eventually(lambda: once(found[0]))
                    self.process.send_signal(kill)
                out, _ = self.process.communicate(timeout=SECONDS)
            finally:
                self.process.kill()
        return [*found, *(json.loads(line) for line in out.splitlines())]


def _account(line: dict[str, Any]) -> Account:
    fields = {name: line[name] for name in Account.__dataclass_fields__ if name in line}
    return Account(**fields | {"lost": Counter(line["lost"]), "arrived": Counter(line["arrived"])})


_TRAIN_FOREVER = """
    loop = Recording(__import__("mttp").configure(address), account)
    while True:
        loop.train(0.05)
        moment(loop)
"""


def _killed(folder: Path, how: signal.Signals) -> Account:
    """The account of a process that gets a signal: what ended a moment before has arrived."""
    path = folder / "a.jsonl"
    lines = Program(_TRAIN_FOREVER, f"file://{path}").lines(
        kill=how, once=lambda line: path.exists() and arrived_in_files(path).total() >= line["now"]
    )
    last = lines[-1]
    arrived = arrived_in_files(path)
    account = _account(last)
    account.recorded, account.arrived = max(last["now"], len(arrived)), arrived
    assert arrived.total() == len(arrived) >= lines[0]["now"]
    account.delivered = len(arrived)
    account.pending = account.recorded - account.delivered
    return account


@fault("`kill -9`.", "Spans that ended more than half a second earlier are in the file.")
def kill_9(folder: Path) -> Account:
    account = _killed(folder, signal.SIGKILL)
    account.note = f"{account.pending:,} of the last half second ended with the process"
    return account


@fault("SIGTERM.", "The run ends as aborted, and every span is written.")
def sigterm(folder: Path) -> Account:
    account = _killed(folder, signal.SIGTERM)
    assert 0 == account.pending
    return account


@fault("`os._exit` right after a flush.", "All spans are written.")
def exit_at_once(folder: Path) -> Account:
    code = """
        loop = Recording(__import__("mttp").configure(address), account)
        loop.train(0.5)
        assert loop.session.flush()
        loop.take_counters()
        say(account)
        os._exit(1)
    """
    return _of_one(folder, code)


@fault(
    "The interpreter ends with an open episode, without a close.",
    "Every span is written, and the episode is aborted.",
)
def interpreter_ends(folder: Path) -> Account:
    code = """
        import atexit, mttp
        session = mttp.configure(address)
        loop = Recording(session, account)
        loop.train(0.5)
        left = mttp.episode(env="left").__enter__()

        @session._after_close
        def ended():
            loop.take_counters()
            say(account)
    """
    return _of_one(folder, code)


def _of_one(folder: Path, code: str) -> Account:
    path = folder / "a.jsonl"
    (line,) = Program(code, f"file://{path}").lines()
    account = _account(line)
    account.arrived = arrived_in_files(path)
    account.check()
    return account


@fault("The process forks while it records; parent and child go on.", "Each counts its own spans.")
def fork(folder: Path) -> Account:
    code = """
        with recording(address, account) as loop:
            loop.train()
            child = os.fork()
            if not child:
                loop.account = Account()
                loop.train()
                loop.account.closed = loop.session.close()
                loop.take_counters()
                say(loop.account)
                os._exit(0)
            loop.train()
            os.waitpid(child, 0)
        say(account)
    """
    return _of_several(folder, code, 2)


def _started(folder: Path, method: str) -> Account:
    """The account of a process and of three that `multiprocessing` starts, which record as well."""
    package = folder / "worker_of_faults.py"
    package.write_text(
        textwrap.dedent("""
            import json, sys
            from dataclasses import asdict
            import mttp
            from faults.account import Account, Recording

            def work(number):
                account = Account()
                loop = Recording(mttp.current_session() or mttp.configure(), account)
                loop.train()
                loop.end()
                line = asdict(account)
                line["lost"] = dict(line["lost"])
                sys.stdout.write(json.dumps(line) + "\\n")
                sys.stdout.flush()
        """)
    )
    code = f"""
        import worker_of_faults

        if __name__ == "__main__":
            os.environ["MTTP_TRANSPORT"] = address
            with recording(address, account) as loop:
                loop.train()
                start = multiprocessing.get_context({method!r}).Process
                started = [start(target=worker_of_faults.work, args=(number,)) for number in range(3)]
                for process in started:
                    process.start()
                loop.train()
                for process in started:
                    process.join()
            say(account)
    """
    return _of_several(folder, f"        sys.path.insert(0, {str(folder)!r})\n{code}", 4)


@fault("Processes are started by spawn, and record to the same directory.", "Each counts its own spans.")
def spawn(folder: Path) -> Account:
    return _started(folder, "spawn")


@fault("Processes are started by forkserver, and record to the same directory.", "Each counts its own spans.")
def forkserver(folder: Path) -> Account:
    return _started(folder, "forkserver")


@fault("Two processes write to one file.", "No line of one is torn by the other.")
def two_writers(folder: Path) -> Account:
    code = """
        with recording(address, account) as loop:
            loop.train(1.0)
        say(account)
    """
    path = folder / "a.jsonl"
    programs = [Program(code, f"file://{path}") for _ in range(2)]
    accounts = [_account(line) for program in programs for line in program.lines()]
    return _sum(accounts, arrived_in_files(path))


def _of_several(folder: Path, code: str, processes: int) -> Account:
    lines = Program(code, f"file://{folder / 'runs'}/").lines()
    assert processes == len(lines), lines
    return _sum(list(map(_account, lines)), arrived_in_files(*(folder / "runs").glob("*.jsonl")))


def _sum(accounts: list[Account], arrived: Counter[str]) -> Account:
    total = Account(arrived=arrived)
    for account in accounts:
        total.add(account)
    total.check()
    total.note = f"{len(accounts)} processes"
    return total

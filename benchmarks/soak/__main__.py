"""
Records for hours while a receiver, a worker process and files fail, and accounts for every span.

    python benchmarks/soak --hours 2 --rate 2000 --json soak.json
    python benchmarks/soak --seconds 120

Ctrl-C or SIGTERM ends it early, and the checks are applied to the recording so far.
Exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from checks import checked, live_growth, memory
from files import Parts, children
from sampling import cpu_seconds, descendants, sampled
from schedule import FAULTS, RECEIVER, Fault, schedule

_HERE = Path(__file__).parent
_SAMPLE_SECONDS, _SHOW_SECONDS, _TURN = 10.0, 60.0, 0.5
_CLOCK_STEP = 3600.0


class Told:
    """A process that answers each command, a line of JSON, with a line of JSON."""

    def __init__(self, program: str, *arguments: str, log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(_HERE / program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the soak, which ends them
        )
        self.pid = self._process.pid
        self.first = self._answer()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and return the answer; raises EOFError if the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"{self._process.args!r} has ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._process.communicate(timeout=30)
        self._log.close()


class Soak:
    """The run: a receiver, a training process, files, and faults."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._options = options
        self.folder = folder
        (folder / "recording").mkdir(parents=True)
        self.receiver = Told("receiver.py", log=folder / "receiver.log")
        address = f"http://127.0.0.1:{self.receiver.first['port']}?timeout=10&compression=gzip"
        if options.spool:
            address += f"&spool={folder / 'spool'}"
        arguments = (str(folder), address, str(options.rate), str(options.seed))
        self.training = Told("training.py", *arguments, log=folder / "training.log")
        self.parts = Parts(folder / "recording")
        self.found: dict[str, Any] = {"samples": [], "faults": [], "disagreements": []}
        self._start = time.monotonic()
        self._is_over = False
        self._stopped: int | None = None
        self._current: Fault | None = None
        self._restarts: set[int] = set()

    def run(self) -> None:
        """Record until the time is over, with faults by the schedule."""
        faults = schedule(self._options.seed, self._options.seconds, self._options.faults)
        coming, next_sample, next_shown = next(faults, None), 5.0, 0.0
        while not self._is_over and (at := time.monotonic() - self._start) < self._options.seconds:
            if self._current is not None and at >= self._current.end:
                self._end(self._current)
            elif self._current is None and coming is not None and at >= coming.start:
                self._begin(coming)
                coming = next(faults, None)
            self.parts.follow(time.monotonic())
            if at >= next_sample:
                next_sample = at + _SAMPLE_SECONDS
                sample = self._sample(at)
                if at >= next_shown:
                    next_shown = at + _SHOW_SECONDS
                    _show(sample)
            time.sleep(_TURN)
        if self._current is not None:
            self._end(self._current)

    def stop(self, *_: object) -> None:
        """End the recording early; a handler of signals."""
        self._is_over = True

    def finish(self) -> list[dict[str, Any]]:
        """End the training, read what is left, and return what its processes report."""
        own_cpu, receiver_cpu = time.process_time(), cpu_seconds(self.receiver.pid)
        training_cpu = cpu_seconds(self.training.pid) + sum(map(_cpu, descendants(self.training.pid)))
        self.found["seconds"] = time.monotonic() - self._start
        last = self.training.ask(do="end")
        self.training.close()
        self.parts.follow(time.monotonic())
        self.parts.close()
        self.found["receiver"] = self.receiver.ask()
        self.receiver.close()
        self.found["files"] = self.parts.as_dict()
        self.found["training"] = last
        self.found["cpu_share"] = {
            name: round(used / self.found["seconds"], 3)
            for name, used in (("training", training_cpu), ("receiver", receiver_cpu), ("soak", own_cpu))
        }
        self.found["memory"] = {name: memory(self.found["samples"], name) for name in ("training", "worker")}
        self.found["live"] = live_growth(self.found["samples"])
        self.found["workers"] = len(self._restarts)
        return [last, *children(self.folder)]

    def _worker(self) -> int | None:
        """The process that encodes for the training process, if there is one."""
        for pid in descendants(self.training.pid):
            with suppress(OSError):
                if b"mttp.otlp.encoding" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    self._restarts.add(pid)
                    return pid
        return None

    def _begin(self, fault: Fault) -> None:
        self._current = fault
        entry: dict[str, Any] = {"kind": fault.kind, "at": round(time.monotonic() - self._start, 1)}
        if fault.kind in RECEIVER:
            self.receiver.ask(behave=fault.kind)
        elif fault.kind in ("stop_worker", "kill_worker"):
            worker = self._worker()
            entry["found"] = worker is not None
            if worker is not None:
                with suppress(OSError):
                    os.kill(worker, signal.SIGSTOP if fault.kind == "stop_worker" else signal.SIGKILL)
                self._stopped = worker if fault.kind == "stop_worker" else None
        elif fault.kind in ("rename_file", "delete_file"):
            self.parts.follow(time.monotonic())
            entry["found"] = self.parts.remove_current(rename=fault.kind == "rename_file")
        elif fault.kind == "fork":
            self.training.ask(do="fork")
        else:
            step = _CLOCK_STEP if fault.kind == "clock_forward" else -_CLOCK_STEP
            self.training.ask(do="clock", seconds=step)
        self.found["faults"].append(entry)

    def _end(self, fault: Fault) -> None:
        self._current = None
        if fault.kind in RECEIVER:
            self.receiver.ask(behave="good")
        elif self._stopped is not None:
            with suppress(OSError):
                os.kill(self._stopped, signal.SIGCONT)
            self._stopped = None

    def _sample(self, at: float) -> dict[str, Any]:
        told = self.training.ask(do="stats")
        sample = {
            "at": round(at, 1),
            "is_quiet": self._current is None and not told["own"]["children"],
            "fault": self._current.kind if self._current else None,
            "training": sampled(self.training.pid),
            "live": told["own"]["live"],
            "steps": told["own"]["steps"],
            "skipped_s": round(told["own"]["skipped_s"], 1),
        }
        with suppress(OSError):
            if (worker := self._worker()) is not None:
                sample["worker"] = sampled(worker)
        for address, stats in told["stats"]["transports"].items():
            lost = sum(stats["lost"].values())
            sample["file" if address.startswith("file") else "otlp"] = {**stats, "lost": lost}
            if stats["recorded"] != stats["delivered"] + stats["pending"] + lost or stats["pending"] < 0:
                self.found["disagreements"].append(sample)
        self.found["samples"].append(sample)
        return sample


def _cpu(pid: int) -> float:
    try:
        return cpu_seconds(pid)
    except OSError:
        return 0.0


def _show(sample: dict[str, Any]) -> None:
    training, worker = sample["training"], sample.get("worker", {"rss": 0})
    print(
        f"{sample['at']:7.0f} s  {sample['steps']:>11,} steps"
        f"  {training['rss'] / 1e6:6.1f} + {worker['rss'] / 1e6:5.1f} MB"
        f"  {training['fds']:3} fds  {training['threads']:2} threads"
        f"  pending {sample['file']['pending']:>7,} {sample['otlp']['pending']:>7,}"
        f" ({sample['otlp']['spooled']:,} on disk)"
        f"  lost {sample['file']['lost']:,} {sample['otlp']['lost']:,}  {sample['fault'] or ''}",
        flush=True,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, help="how long; 2 by default")
    length.add_argument("--seconds", type=float, help="how long, in seconds")
    parser.add_argument("--rate", type=float, default=2000, help="steps per second (default: 2000)")
    parser.add_argument("--seed", type=int, default=7, help="of the faults and the episodes (default: 7)")
    parser.add_argument(
        "--faults", nargs="+", choices=FAULTS, default=FAULTS, metavar="FAULT", help=", ".join(FAULTS)
    )
    parser.add_argument(
        "--spool", action="store_true", help="what the receiver does not accept waits on disk"
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--folder", type=Path, help="work here, and leave the logs; default: a temporary folder"
    )
    options = parser.parse_args()
    options.seconds = options.seconds or 3600 * (options.hours or 2)
    return options


def main() -> int:
    """Run, check, and print."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        soak = Soak(options.folder or Path(temporary), options)
        signal.signal(signal.SIGINT, soak.stop)
        signal.signal(signal.SIGTERM, soak.stop)
        soak.run()
        reports = soak.finish()
    checks = checked(soak.found, reports)
    figures = soak.found
    figures["asked"] = {name: vars(options)[name] for name in ("seconds", "rate", "seed", "spool")}
    figures["steps_per_second"] = round(reports[0]["own"]["steps"] / figures["seconds"], 1)
    figures["children"] = reports[1:]
    figures["checks"] = [check._asdict() for check in checks]
    figures["holds"] = all(check.holds for check in checks)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"\n{figures['seconds']:.0f} s, {figures['steps_per_second']} steps/s")
    print(f"{len(figures['faults'])} faults, {figures['workers']} worker processes, {len(reports) - 1} forks")
    print(f"CPU, in cores: {figures['cpu_share']}")
    for check in checks:
        print(f"{'ok    ' if check.holds else 'FAILED'}  {check.name}: {check.found}")
    return 0 if figures["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())

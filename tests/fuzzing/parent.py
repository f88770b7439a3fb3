"""Gives each target to processes of its own, and gathers what they find."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fuzzing.targets import TARGETS
from fuzzing.worker import COUNTER, run, warm_up

__all__ = ["fuzzed", "main", "options"]

_TESTS = Path(__file__).resolve().parents[1]
WORKER = "fuzzing.worker"
"""The module that the processes run."""
_SILENT_SECONDS = 60.0
"""Seconds for which a target may be at one input, on a busy machine, before its process is killed."""
_NOT_BEGUN = (1 << 64) - 1
_NAME = "{name}.{number}.bin"


def _command(name: str, seed: int, *options: str) -> list[str]:
    return [sys.executable, "-m", WORKER, name, "--seed", str(seed), *options]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(_TESTS), os.environ.get("PYTHONPATH", ""))),
        "PYTHONFAULTHANDLER": "1",
    }


def fuzzed(name: str, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Fuzz one target; a process that dies is a fault, and another one goes on after that input."""
    found: dict[str, Any] = {"inputs": 0, "seconds": 0.0, "faults": {}, "grown": 0}
    first = options.first
    while first < options.first + options.inputs and found["seconds"] < seconds:
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_memory_folder()) as folder:
            part = _process(name, options, Path(folder), first, seconds - found["seconds"])
        found["inputs"] += part["inputs"]
        found["seconds"] += part["seconds"]
        found["grown"] = max(found["grown"], part["grown"])
        for kind, fault in part["faults"].items():
            known = found["faults"].setdefault(kind, {**fault, "times": 0})
            known["times"] += fault["times"]
        if not part["inputs"]:
            return found  # it can't even begin
        first += part["inputs"]
    return found


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _process(
    name: str, options: argparse.Namespace, folder: Path, first: int, seconds: float
) -> dict[str, Any]:
    counter = folder / "counter"
    counter.write_bytes(COUNTER.pack(_NOT_BEGUN))
    command = _command(name, options.seed, "--first", str(first), "--seconds", str(seconds))
    command += ["--inputs", str(options.first + options.inputs), "--counter", str(counter)]
    start = time.monotonic()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=out, stderr=err)
        is_silent = _waited(process, counter)
    if process.returncode == 0:
        result: dict[str, Any] = json.loads((folder / "stdout").read_bytes().splitlines()[-1])
        return result
    (number,) = COUNTER.unpack(counter.read_bytes())
    has_begun = number != _NOT_BEGUN
    what = (
        f"silent for {_SILENT_SECONDS:g} s" if is_silent else f"the process ended with {process.returncode}"
    )
    words = (folder / "stderr").read_bytes()[-4000:].decode("utf-8", "replace")
    fault = {"number": number if has_begun else None, "times": 1, "fault": f"{what}\n{words}"}
    inputs = number + 1 - first if has_begun else 0
    return {"inputs": inputs, "seconds": time.monotonic() - start, "faults": {what: fault}, "grown": 0}


def _waited(process: subprocess.Popen[bytes], counter: Path) -> bool:
    """Wait for the process; kill it, and return True, if it is at one input for too long."""
    last, since = b"", time.monotonic()
    while True:
        try:
            process.wait(1)
            return False
        except subprocess.TimeoutExpired:
            at = counter.read_bytes()
            if at != last:
                last, since = at, time.monotonic()
            elif time.monotonic() - since > 2 * _SILENT_SECONDS:
                process.kill()
                process.wait()
                return True


def _saved(name: str, fault: dict[str, Any], options: argparse.Namespace) -> Path:
    """Save the input of a fault."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / _NAME.format(name=name, number=fault["number"])
    with tempfile.TemporaryDirectory() as folder:
        command = _command(name, options.seed, "--print", str(fault["number"]))
        path.write_bytes(
            subprocess.run(command, cwd=folder, env=_environment(), check=True, stdout=-1).stdout
        )
    return path


def _replayed(path: Path) -> int:
    name, data = path.name.partition(".")[0], path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        warm_up(TARGETS[name])
        fault = run(TARGETS[name], data)
    print(fault or f"{name} takes it")
    return 1 if fault else 0


def options(arguments: Sequence[str] | None = None, *, description: str = "") -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python tests/fuzzing",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument(
        "--seconds", type=float, help="how long in all; default: 60, or no limit with --inputs"
    )
    parser.add_argument("--inputs", type=int, help="how many inputs of each target")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input (default: 0)")
    parser.add_argument("--seed", type=int, default=7, help="of the inputs (default: 7)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--out", type=Path, default=Path(".fuzz"), help="folder of failing inputs")
    parser.add_argument("--json", type=Path, help="write the counts and faults to this file")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="take one saved input")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    found = parser.parse_args(arguments)
    if unknown := set(found.targets) - set(TARGETS):
        parser.error(f"no such targets: {', '.join(sorted(unknown))}; --list prints them")
    if found.seconds is None:
        found.seconds = 60.0 if found.inputs is None else 1e9
    if found.inputs is None:
        found.inputs = 1 << 62
    return found


def main(description: str) -> int:
    """Fuzz, print, and save what fails."""
    given = options(description=description)
    if given.list:
        print("\n".join(TARGETS))
        return 0
    if given.replay:
        return _replayed(given.replay.resolve())
    names = given.targets or list(TARGETS)
    share = given.seconds * given.jobs / len(names)
    results, is_good = {}, True
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, found in zip(names, pool.map(lambda name: fuzzed(name, given, share), names), strict=True):
            results[name] = found
            rate = found["inputs"] / max(found["seconds"], 1e-9)
            print(
                f"{name:22} {found['inputs']:>11,} inputs {rate:>9,.0f} /s  +{found['grown'] >> 20} MiB",
                flush=True,
            )
            for kind, fault in found["faults"].items():
                is_good = False
                print(f"  {fault['times']} times: {kind}\n{fault['fault'][-1500:]}", flush=True)
                if fault["number"] is not None:
                    path = _saved(name, fault, given)
                    print(f"  python tests/fuzzing --replay {path}", flush=True)
    print(f"{sum(found['inputs'] for found in results.values()):,} inputs")
    if given.json:
        given.json.write_text(json.dumps({"seed": given.seed, "targets": results}, indent=1) + "\n")
    return 0 if is_good else 1

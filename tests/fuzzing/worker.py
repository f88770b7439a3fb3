"""The process that gives inputs to one target, and says what became of them."""

from __future__ import annotations

import argparse
import json
import logging
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fuzzing.targets import TARGETS, Target
from reading.mutations import change_bytes, change_json, mutated

from mttp.errors import MttpError

__all__ = ["COUNTER", "CPU_SECONDS", "MEMORY", "inputs", "run", "warm_up"]

COUNTER = struct.Struct("<Q")
"""The number of the input that is being taken, in a file that the parent reads."""
_WARM_UP = 20
"""Inputs before memory is limited, so that what is kept from then on is not counted."""
CPU_SECONDS = 1.0
"""What one input may take."""
MEMORY = 1 << 30
"""Bytes by which the process may grow."""


class TookTooLongError(Exception):
    """An input took more than `CPU_SECONDS`."""


def inputs(name: str, target: Target, seed: int) -> Callable[[int], bytes]:
    """Return the function that makes the input of a number, the same each time."""
    good = target.seeds()
    changes = change_json(good) if target.is_text else change_bytes(good)

    def made(number: int) -> bytes:
        rng = random.Random(f"{seed} {name} {number}")
        return mutated(rng, rng.choice(good), changes)

    return made


def run(target: Target, data: bytes) -> str | None:
    """Give an input to the target; the fault as text if it raises anything but an error of mttp's."""
    before = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        target.take(data)
    except MttpError:
        return None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        signal.setitimer(signal.ITIMER_PROF, 0)
        return "".join(traceback.format_exception(error))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return None


def warm_up(target: Target) -> None:
    """Take a few good inputs without limits: imports take seconds."""
    for good in target.seeds()[:3]:
        with suppress(MttpError):
            target.take(good)


def _too_long(*_: object) -> None:
    raise TookTooLongError(f"an input takes more than {CPU_SECONDS:g} s of CPU time")


def _kind(fault: str) -> str:
    """What faults of one cause have in common: the error, and the last place in mttp."""
    lines = fault.strip().splitlines()
    places = [line.strip().partition(", in ")[0] for line in lines if "/src/mttp/" in line and "File" in line]
    return f"{lines[-1].partition(':')[0]} at {places[-1] if places else 'no place in mttp'}"


def main() -> None:
    """Work through numbered inputs in the current directory until the time or the inputs are used up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int)
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--counter", type=Path)
    parser.add_argument("--print", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    target = TARGETS[options.name]
    made = inputs(options.name, target, options.seed)
    if options.print is not None:
        sys.stdout.buffer.write(made(options.print))
        return
    print(json.dumps(_worked(target, made, options)))


def _worked(target: Target, made: Callable[[int], bytes], options: argparse.Namespace) -> dict[str, Any]:
    """Take the inputs, and return the count and the faults, each kind with the number of its first input."""
    warm_up(target)
    faults: dict[str, dict[str, Any]] = {}
    number, until, before = options.first, time.monotonic() + options.seconds, _peak()
    with options.counter.open("r+b") as file, mmap.mmap(file.fileno(), COUNTER.size) as counter:
        while number < options.inputs and time.monotonic() < until:
            if number == options.first + _WARM_UP:
                before = _peak()
                _limit_memory()
            COUNTER.pack_into(counter, 0, number)
            fault = run(target, made(number))
            if fault is not None:
                entry = faults.setdefault(
                    _kind(fault), {"number": number, "times": 0, "fault": fault[-4000:]}
                )
                entry["times"] += 1
            number += 1
    grown = _peak() - before
    seconds = time.monotonic() - until + options.seconds
    return {"inputs": number - options.first, "seconds": seconds, "faults": faults, "grown": grown}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_memory() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()

"""
Plays many workers in time-lapse against real receivers, and compares what arrives with what `mttp size` says.

    python benchmarks/fleet.py                        1,000 workers that send to receivers of OTLP over HTTP
    python benchmarks/fleet.py --to zstd              1,000 workers that write files
    python benchmarks/fleet.py --workers 100 --rate 2

A worker is a session with its own queue and thread, and its own connection or file. A few processes run all
workers. Time passes faster by the factor `--speed`: steps come that much more often, and a queue waits that
much shorter.
"""

from __future__ import annotations

import argparse
import heapq
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from sizes import Player, options, settle

import mttp
from mttp.recording.session_factory import open_session
from mttp.study.sizing.estimate import per_second
from mttp.study.sizing.measured import BYTES
from mttp.study.sizing.workload import Workload
from mttp.testing import OtlpReceiver
from mttp.transports.otlp.profiles import named
from mttp.transports.pipeline import pipeline

SHARE = 250
"""Workers of a receiver; one takes 512 connections."""
ONCE = 4
"""Requests besides those of steps: the run starts, is described and ends, and the first episode starts."""
SUFFIXES = {"file": ".jsonl", "gzip": ".jsonl.gz", "zstd": ".jsonl.zst"}


class Worker:
    """One worker: the session that it records in, and the times of what it does."""

    def __init__(self, address: str, workload: Workload, episodes: int, seed: int) -> None:
        self._session = open_session(address, run="fleet", run_id=f"worker-{seed}", **options(workload))
        settle(self._session)
        self._workload, self._episodes, self._seed = workload, episodes, seed
        self._rng = np.random.default_rng(seed)

    def play(self) -> Iterator[float]:
        """Play the episodes; yield the seconds until the next event, and close the session after the last."""
        player = Player(self._workload, self._seed)
        period = 1 / self._workload.rate
        yield float(self._rng.uniform(0, period))
        for number in range(self._episodes):
            episode = player.start(self._session, number)
            for _ in range(int(self._workload.steps)):
                yield float(self._rng.uniform(0.5, 1.5)) * period
                player.step(episode)
            player.end(episode)

    def close(self) -> dict[str, Any]:
        """Close the session; return its counters."""
        self._session.close()
        return self._session.stats.as_dict()


def play(addresses: list[str], workload: Workload, episodes: int, speed: float, first: int) -> dict[str, Any]:
    """Play a worker for each address in this process; return the sum of their counters."""
    pipeline.INTERVAL /= speed
    workers = [Worker(address, workload, episodes, first + n) for n, address in enumerate(addresses)]
    events = [worker.play() for worker in workers]
    start, late = time.perf_counter(), 0.0
    due = [(next(event) / speed, number) for number, event in enumerate(events)]
    heapq.heapify(due)
    while due:
        at, number = heapq.heappop(due)
        wait = start + at - time.perf_counter()
        late = max(late, -wait)
        if wait > 0:
            time.sleep(wait)
        if (further := next(events[number], None)) is not None:
            heapq.heappush(due, (at + further / speed, number))
    took = time.perf_counter() - start
    found = [worker.close() for worker in workers]
    total: dict[str, Any] = {
        name: sum(one[name] for one in found) for name in ("recorded", "delivered", "pending")
    }
    lost = sum(sum(one["lost"].values()) for one in found)
    return total | {"lost": lost, "seconds": took, "late": late}


def arrived(receivers: list[OtlpReceiver]) -> dict[str, float]:
    """Count what the receivers were sent."""
    requests = [request for receiver in receivers for request in receiver.requests]
    return {
        "bytes": sum(request.wire_bytes for request in requests),
        "requests": len(requests),
        "spans": sum(request.spans for request in requests),
        "of the run": sum(is_of_run(record.name) for receiver in receivers for record in receiver.records()),
    }


def is_of_run(name: str) -> bool:
    """Whether a span with this name is one of the run."""
    return name.split(" ")[0] in ("run", "run.start")


def expected(workload: Workload, episodes: int, form: str) -> dict[str, float]:
    """Return what `mttp size` says, with what a worker sends once."""
    limits = named("collector").withholding if form.startswith("otlp") else None
    one = per_second(workload, limits)
    seconds = episodes * workload.episode_seconds
    whole = replace(one, processes=1 / seconds, segments=one.segments + ONCE / seconds)
    total = BYTES[form].dot(whole) * seconds * workload.workers
    return {
        "bytes": total,
        "requests": (one.segments * seconds + ONCE) * workload.workers,
        "spans": one.spans * seconds * workload.workers,
    }


def simulated(asked: argparse.Namespace, workload: Workload) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Play all workers in processes; return what arrived, and the counters of each process."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if asked.to in SUFFIXES:
            addresses = [f"file://{folder}/{n}{SUFFIXES[asked.to]}" for n in range(asked.workers)]
            receivers = []
        else:
            count = -(-asked.workers // SHARE)
            receivers = [stack.enter_context(OtlpReceiver()) for _ in range(count)]
            query = "?compression=gzip" if asked.to == "otlp_gzip" else ""
            addresses = [receivers[n % count].http_address + query for n in range(asked.workers)]
        about = asdict(workload)
        processes = []
        for place in range(asked.processes):
            own = addresses[place :: asked.processes]
            told = [own, about, asked.episodes, asked.speed, place * asked.workers]
            command = [sys.executable, __file__, "--play"]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
            )
            assert process.stdin is not None
            process.stdin.write(json.dumps(told))
            process.stdin.close()
            processes.append(process)
        counters = []
        for process in processes:
            assert process.stdout is not None
            counters.append(json.loads(process.stdout.read()))
            assert process.wait() == 0
        if receivers:
            return arrived(receivers), counters
        files = [path for path in folder.iterdir() if path.name.endswith(SUFFIXES[asked.to])]
        return {"bytes": float(sum(path.stat().st_size for path in files)), **_spans(files)}, counters


def _spans(files: list[Path]) -> dict[str, float]:
    """Count the spans of files."""
    names = [record.name for record in mttp.scan(files)]
    return {"spans": len(names), "of the run": sum(map(is_of_run, names))}


def main() -> int:
    """Play, print what arrived beside what was expected, and fail if spans are missing."""
    if sys.argv[1:] == ["--play"]:
        addresses, about, episodes, speed, first = json.load(sys.stdin)
        print(json.dumps(play(addresses, Workload(**about), episodes, speed, first)))
        return 0
    asked = _options()
    workload = Workload(
        workers=asked.workers,
        rate=asked.rate,
        tokens=asked.tokens,
        content=not asked.to.startswith("otlp"),
        token_ids=not asked.to.startswith("otlp"),
    )
    found, counters = simulated(asked, workload)
    wanted = expected(workload, asked.episodes, asked.to)
    total = {name: sum(one[name] for one in counters) for name in counters[0]}
    seconds = asked.episodes * workload.episode_seconds
    took, late = (max(one[name] for one in counters) for name in ("seconds", "late"))
    print(f"{asked.workers:,} workers to {asked.to}, episodes of each: {asked.episodes}")
    print(f"{seconds:.0f} s of playing in {took:.1f} s, at most {late:.2f} s late")
    found["spans"] -= found["of the run"]
    for name, value in wanted.items():
        if name in found:
            error = value / found[name] - 1
            print(f"{name:9} arrived {found[name]:14,.0f}, expected {value:14,.0f}, {error:+.1%}")
    spans = found["spans"] + found["of the run"]
    print(
        f"recorded {total['recorded']:,} = delivered {total['delivered']:,} + pending {total['pending']:,} "
        f"+ lost {total['lost']:,}; arrived {spans:,.0f}"
    )
    balanced = total["recorded"] == total["delivered"] + total["pending"] + total["lost"]
    return 0 if balanced and not total["lost"] and spans == total["delivered"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/fleet.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=1000, help="workers (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=2, help="episodes of each (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=0.1, help="steps per second (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a step (default: %(default)s)")
    parser.add_argument("--speed", type=float, default=2.0, help="how much faster (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument(
        "--to", choices=("otlp", "otlp_gzip", *SUFFIXES), default="otlp", help="(default: %(default)s)"
    )
    asked = parser.parse_args()
    if min(asked.workers, asked.episodes, asked.processes) < 1 or min(asked.rate, asked.speed) <= 0:
        parser.error("--workers, --episodes and --processes are at least 1, --rate and --speed more than 0")
    return asked


if __name__ == "__main__":
    sys.exit(main())

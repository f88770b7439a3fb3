"""
Measures what summaries and comparisons of many spans cost, in object storage and in ClickHouse.

`python benchmarks/scale.py` asks moto's S3 server, in a process of its own on this machine. It needs
`mttp[s3]` and `moto[server]`. With `--clickhouse`, it asks the tests' server, which is ClickHouse's engine in
this process. That needs `mttp[clickhouse]` and `chdb`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import mttp

RUNS = 10
TOKENS = 256


def main() -> None:
    """Write the dataset, read it in several ways, and print a row of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--clickhouse", action="store_true", help="measure a table of ClickHouse")
    arguments = parser.parse_args()
    episodes = arguments.episodes
    if arguments.clickhouse:
        with tempfile.TemporaryDirectory() as folder:
            _measure_clickhouse(Path(folder), episodes)
        return
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    with tempfile.TemporaryDirectory() as folder:
        server, endpoint = _server()
        try:
            _measure(Path(folder), endpoint, episodes)
        finally:
            server.terminate()
            server.wait()


def _measure(folder: Path, endpoint: str, episodes: int) -> None:
    import s3fs

    files = s3fs.S3FileSystem(endpoint_url=endpoint)
    files.mkdir("measured")
    lines = folder / "runs"
    trace_id = _record(lines, episodes)
    size = sum(path.stat().st_size for path in lines.iterdir())
    print(f"{episodes:,} episodes of {TOKENS} tokens in {RUNS} runs; lines: {size / 1e6:,.0f} MB", flush=True)

    from mttp.reading.engines.writing import dataset_writer

    place = f"s3://measured/runs?endpoint={endpoint}"
    _timed("convert --partition", lambda: dataset_writer(place).write(mttp.scan(lines, arrays=True)))
    print(f"  {files.du('measured/runs/spans') / 1e6:,.1f} MB", flush=True)
    for name, read in {
        "summary of the lines": lambda: mttp.summarize(lines),
        "summary": lambda: mttp.summarize(place),
        "summary of one run": lambda: mttp.summarize(f"{place}&run=run-3"),
        "comparison of two runs": lambda: mttp.compare(f"{place}&run=run-3", f"{place}&run=run-4"),
        "one episode in full": lambda: mttp.read(f"{place}&trace={trace_id}"),
        "one run in full": lambda: mttp.read(f"{place}&run=run-3"),
    }.items():
        _timed(name, read)


def _measure_clickhouse(folder: Path, episodes: int) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from clickhouse import ClickHouse

    server = ClickHouse()
    _record(folder / "runs", episodes)
    spans, count = mttp.scan(folder / "runs", arrays=True), 0
    while batch := [*islice(spans, 10_000)]:
        server.insert(batch)
        count += len(batch)
    ((size,),) = server.ask("SELECT sum(bytes_on_disk) FROM system.parts WHERE table = 'spans' AND active")
    print(f"{count:,} spans of {episodes:,} episodes in {RUNS} runs; {int(size) / 1e6:,.1f} MB", flush=True)
    with server.serve() as table:
        for name, read in {
            "summary": lambda: mttp.summarize(table),
            "summary of one run": lambda: mttp.summarize(f"{table}&run=run-3"),
            "comparison of two runs": lambda: mttp.compare(f"{table}&run=run-3", f"{table}&run=run-4"),
        }.items():
            server.bytes, begun, used = 0, time.perf_counter(), time.process_time()
            read()
            seconds, used = time.perf_counter() - begun, time.process_time() - used
            print(
                f"  {name:24} {seconds:7.1f} s  {used:7.1f} s of CPU  {server.bytes / 1e6:8.2f} MB",
                flush=True,
            )


def _timed(name: str, run: object) -> None:
    from s3fs.core import S3File

    received, requests, fetch = 0, 0, S3File._fetch_range

    def counted(self: S3File, start: int, end: int) -> bytes:
        nonlocal received, requests
        data: bytes = fetch(self, start, end)
        received, requests = received + len(data), requests + 1
        return data

    S3File._fetch_range = counted
    begun = time.perf_counter()
    try:
        run()  # type: ignore[operator]  # a function without arguments
    finally:
        S3File._fetch_range = fetch
    seconds = time.perf_counter() - begun
    print(f"  {name:24} {seconds:7.1f} s  {received / 1e6:8.2f} MB  {requests:5} requests", flush=True)


def _server() -> tuple[subprocess.Popen[bytes], str]:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return server, f"http://127.0.0.1:{port}"
        time.sleep(0.1)
    raise SystemExit("the server does not start")


def _record(folder: Path, episodes: int) -> str:
    """Record episodes of one step with token ids and log probabilities; return the trace id of one."""
    import numpy as np

    random = np.random.default_rng(0)
    for run in range(RUNS):
        with mttp.configure(transport=f"file://{folder}/run-{run}.jsonl", run_id=f"run-{run}"):
            for number in range(episodes // RUNS):
                reward = float(random.integers(0, 2))
                ids, logprobs = random.integers(0, 50_000, TOKENS), random.random(TOKENS, np.float32)
                with mttp.episode(env="math", task=f"task/{number % 500}", policy="p") as episode:
                    with episode.step() as step:
                        step.tokens(ids, logprobs=logprobs)
                        step.reward(reward)
                    components = {"correct": reward, "format": 1.0}
                    episode.reward(reward, components=components, weights={"correct": 1.0, "format": 0.0})
                    episode.end(outcome="success" if reward else "failure")
    return episode.trace_id


if __name__ == "__main__":
    main()

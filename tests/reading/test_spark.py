"""Datasets that a Spark cluster reads: a master and a worker in processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from reading.recorded_kinds import every_kind, every_way
from reading.test_engines import LINES, RULES, assert_equal, dataset_of, record_runs, run, unnamed
from reading.traces import episode, write

import mttp
from mttp.errors import ReadError

pyspark = pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of pyspark's own
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster with one worker."""
    folder = tmp_path_factory.mktemp("spark")
    with master_of(folder) as address:
        limits = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder)]
        with process(folder, "worker.Worker", *limits, address):
            yield address
            stop()


@contextmanager
def master_of(folder: Path) -> Iterator[str]:
    """The address of a master without workers."""
    port = free_port()
    with process(folder, "master.Master", "--port", str(port)) as master:
        for _ in range(600):
            assert master.poll() is None, "the master ended"
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"spark://127.0.0.1:{port}"


@contextmanager
def process(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark while the block lasts."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    command = [str(program), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
    with (folder / f"{name}.log").open("wb") as log:
        started = subprocess.Popen([*command, *arguments], stdout=log, stderr=log, start_new_session=True)
        try:
            yield started
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def stop() -> None:
    """End the session of this process, if there is one."""
    if (session := pyspark.sql.SparkSession.getActiveSession()) is not None:
        session.stop()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_cluster_reads_what_the_lines_hold(cluster: str, session: mttp.Session, tmp_path: Path):
    """
    Episodes of every kind, of several processes, with repeated spans and late facts, from two writes.
    """
    spans = every_way(session)
    session.close()
    spans += spans[::9]
    more = every_kind(tmp_path)
    dataset = Path(dataset_of(spans, more)).absolute()

    assert_equal(write("a.jsonl", [*spans, *more]), f"{cluster}?path={dataset}&timeout=300")


def test_studies_and_selections_are_equal(cluster: str, tmp_path: Path):
    """
    Comparisons, gates and diagnoses; and the workers did the work.
    """
    record_runs()
    dataset = Path(dataset_of(*(list(mttp.scan(path, arrays=True)) for path in LINES))).absolute()
    Path("both.jsonl").write_bytes(Path("one.jsonl").read_bytes() + Path("three.jsonl").read_bytes())
    lines = ("both.jsonl", "two.jsonl")
    chosen = [f"{cluster}?path={dataset}&timeout=300&run={run}" for run in ("one", "two")]

    assert unnamed(mttp.compare(*lines)) == unnamed(mttp.compare(*chosen))
    gated = [unnamed(mttp.gate(both[1], baseline=both[0], rules=RULES)) for both in (lines, chosen)]
    assert gated[0] == gated[1]
    assert unnamed(mttp.diagnose(lines[1])) == unnamed(mttp.diagnose(chosen[1]))
    for query, expected in {"task=t/1&slice=even": 4, "since=2020-01-01&env=env-0&split=val": 2}.items():
        source = f"{cluster}?path={dataset}&{query}"
        local = f"file://{dataset}?{query}"
        assert expected == len(mttp.read(source))
        assert mttp.read(local).episodes == mttp.read(source).episodes
    context = pyspark.SparkContext.getOrCreate()
    assert 2 == context._jsc.sc().getExecutorMemoryStatus().size(), "the driver and the worker"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", r"which dataset\? add \?path=s3a://BUCKET/PATH"),
        ("?path=/nowhere&run=x", "PATH_NOT_FOUND"),
        ("?path=/nowhere&who=x", "unknown option 'who'"),
    ],
)
def test_refusals(cluster: str, query: str, reason: str):
    """
    With the address.
    """
    with pytest.raises(ReadError, match=rf"^{cluster}.*{reason}"):
        mttp.summarize(cluster + query)


def test_a_cluster_without_workers(tmp_path: Path):
    """
    A query ends at the time-out; without one, Spark would wait for workers for ever.
    """
    stop()
    with master_of(tmp_path) as address:
        dataset = Path(dataset_of(episode(0))).absolute()
        with pytest.raises(
            ReadError, match=r"no answer within 3 seconds; does the cluster have free workers\?"
        ):
            mttp.summarize(f"{address}?path={dataset}&timeout=3")
        stop()


def test_a_master_that_is_not_there_is_refused_at_once():
    """
    Spark itself would try for a minute.
    """
    stop()
    done: Any = run("summary", f"spark://127.0.0.1:{free_port()}?path=/x")

    assert 2 == done.exit_code
    assert "is the master of the cluster running there?" in done.output

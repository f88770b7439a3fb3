"""Datasets in object storage: a server with the interface of S3, read by DuckDB."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from reading.recorded_kinds import every_kind, every_way
from reading.test_engines import (
    LINES,
    RULES,
    assert_equal,
    dataset_of,
    document,
    record_runs,
    run,
    unnamed,
    written_again,
)
from reading.traces import episode, write

import mttp
from mttp.errors import ReadError

pytest.importorskip("duckdb")
s3fs = pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")

pytestmark = pytest.mark.filterwarnings("ignore")  # of botocore's and moto's own
SECRET = "wJalrXUtnFEMI-example"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of an S3 server with the bucket `bucket`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of an empty place in the bucket of S3."""
    variables = {"AWS_ACCESS_KEY_ID": "example", "AWS_SECRET_ACCESS_KEY": SECRET}
    for name, value in (variables | {"AWS_DEFAULT_REGION": "us-east-1"}).items():
        monkeypatch.setenv(name, value)
    files = s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True)
    if not files.exists("bucket"):
        files.mkdir("bucket")
    return f"s3://bucket/{tmp_path.name}?endpoint={endpoint}"


def test_a_bucket_holds_what_the_lines_hold(bucket: str, session: mttp.Session, tmp_path: Path):
    """
    Written in three parts, then in one.
    """
    spans = every_way(session)
    session.close()
    spans += spans[::9]
    more = every_kind(tmp_path)
    dataset_of(spans, more, spans[:5], place=bucket)
    lines = write("a.jsonl", [*spans, *more, *spans[:5]])

    assert_equal(lines, bucket)
    assert document(lines) == document(written_again(bucket, bucket.replace("?", "/merged?")))


def test_studies_and_commands(bucket: str):
    """
    Comparisons, gates and diagnoses of selected runs, and the commands.
    """
    record_runs()
    for path in LINES:
        done = run("convert", path, bucket, "--partition")
        assert 0 == done.exit_code, done.output
    Path("both.jsonl").write_bytes(Path("one.jsonl").read_bytes() + Path("three.jsonl").read_bytes())
    lines = ("both.jsonl", "two.jsonl")
    chosen = [f"{bucket}&run={name}" for name in ("one", "two")]

    assert unnamed(mttp.compare(*lines)) == unnamed(mttp.compare(*chosen))
    gated = [unnamed(mttp.gate(both[1], baseline=both[0], rules=RULES)) for both in (lines, chosen)]
    assert gated[0] == gated[1]
    assert unnamed(mttp.diagnose(lines[1])) == unnamed(mttp.diagnose(chosen[1]))
    assert 0 == run("show", f"{bucket}&run=one&task=t/1").exit_code


def test_only_what_is_selected_is_transferred(bucket: str, monkeypatch: pytest.MonkeyPatch):
    """
    A summary fetches no tokens, and one run no spans of another but those that may name its episodes.
    """
    fetched: dict[str, int] = {}
    original = s3fs.core.S3File._fetch_range

    def noted(self: object, start: int, end: int) -> bytes:
        data: bytes = original(self, start, end)
        fetched[self.path] = fetched.get(self.path, 0) + len(data)  # type: ignore[attr-defined]
        return data

    monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", noted)
    record_runs()
    with mttp.configure(transport="file://four.jsonl", run_id="four"), mttp.episode() as episode:
        for _ in range(150):
            with episode.step() as step:
                step.tokens(np.random.default_rng(0).integers(0, 2**40, 2_000), prompt_ids=[1])
    lines = [*LINES, "four.jsonl"]
    dataset_of(*(list(mttp.scan(path, arrays=True)) for path in lines), place=bucket)
    mttp.summarize(f"{bucket}&run=four")
    assert sum(fetched.values()) < Path("four.jsonl").stat().st_size / 2
    fetched.clear()
    assert 12 == len(mttp.read(f"{bucket}&run=two"))
    assert {"run=two"} == {path.split("/")[3] for path in fetched if "-about-" not in path}


def test_what_can_not_be_reached(bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch):
    """
    Within the time-out, with the place, and without credentials.
    """
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = f"s3://bucket/runs?endpoint=http://127.0.0.1:{silent.getsockname()[1]}&timeout=0.2"
        with pytest.raises(ReadError, match=r"^s3://bucket/runs.*[Tt]imeout") as caught:
            mttp.summarize(place)
    messages = [str(caught.value)]
    for wrong in (f"s3://bucket/none?endpoint={endpoint}", f"s3://other/runs?endpoint={endpoint}"):
        with pytest.raises(ReadError, match=r"is not a dataset of mttp, or does not exist") as caught:
            mttp.read(wrong)
        messages.append(str(caught.value))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
    with pytest.raises(ReadError, match=r"NoCredentialsError|Partial") as caught:
        mttp.summarize(bucket)
    assert [] == [one for one in [*messages, str(caught.value)] if SECRET in one]


@pytest.mark.parametrize("command", ["convert", "summary"])
@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("s3://bucket/runs?endpoint=http://127.0.0.1:9&timeout=2", "EndpointConnectionError"),
        ("s3://bucket/runs?endpoint=nonsense", "Invalid endpoint: nonsense"),
        ("s3://bucket/runs?endpoint=ENDPOINT", "NoCredentialsError"),
    ],
)
def test_commands_name_what_can_not_be_reached(
    bucket: str, endpoint: str, command: str, place: str, reason: str, monkeypatch: pytest.MonkeyPatch
):
    """
    A closed port, an endpoint that is no address, and no credentials, with the exit code for it.
    """
    if reason == "NoCredentialsError":
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
        monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    lines = write("a.jsonl", episode(0))
    place = place.replace("ENDPOINT", endpoint)
    given = [str(lines), place, "--partition"] if command == "convert" else [place]
    done = run(command, *given)
    told = " ".join(done.output.split())

    assert 2 == done.exit_code, told
    assert reason in told
    assert "s3://bucket/runs" in told
    assert "Traceback" not in told
    assert SECRET not in told

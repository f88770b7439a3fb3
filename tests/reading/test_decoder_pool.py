"""Other processes decode large files, and the result does not differ."""

from __future__ import annotations

import gc
import gzip
import json
import math
import random
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from polling import eventually
from reading.traces import SCOPE, episode, foreign, of_version, run, write

import mttp
from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.otlp import processes
from mttp.reading import decoder_pool, scanning
from mttp.reading.scanning import Scan
from mttp.semconv import attributes as a
from mttp.tables.summary import Labels

BROKEN = b'{"resourceSpans": nonsense}\n'
BAD_SPAN = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"1"}]}]}]}\n'


def has_ended(worker: processes.Process) -> bool:
    """Return whether a process is gone; one whose id was never read ends with its socket."""
    return worker._orphan is None or worker._orphan.has_ended


@pytest.fixture
def hired(monkeypatch: pytest.MonkeyPatch) -> list[decoder_pool.DecoderPool]:
    """Two processes from the first byte on, and shares of some lines; who was hired."""
    found: list[decoder_pool.DecoderPool] = []

    def note(*args: object, **kwargs: object) -> decoder_pool.DecoderPool | None:
        made = original(*args, **kwargs)
        found.extend([made] if made is not None else [])
        return made

    original = decoder_pool.start
    monkeypatch.setattr(scanning, "_LARGE", 1)
    monkeypatch.setattr(decoder_pool, "_PART_BYTES", 5_000)
    monkeypatch.setattr(decoder_pool, "_cores", lambda: 2)
    monkeypatch.setattr(decoder_pool, "start", note)
    return found


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A file of many short lines."""
    path = tmp_path / "a.jsonl"
    for number in range(12):
        with mttp.configure(transport=f"file://{path}", run_id="r", run=f"{number}"):
            for _ in range(3):
                with mttp.episode(env=f"env-{number % 3}", slices=["a", "b"]) as played:
                    for step in range(4):
                        with played.step() as taken:
                            taken.tokens(ids=list(range(20)), logprobs=[-0.1 * step] * 20)
                            taken.observation([1, 2.5, "x", {"deep": [1, 2]}])
                            taken.reward(step / 3)
                    played.reward(1.0, components={"correct": number / 7})
    return path


def alone(source: object, *, arrays: bool) -> tuple[list[object], list[object]]:
    """Spans and problems as one process reads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_LARGE", math.inf)
        return together(source, arrays=arrays)


def together(source: object, *, arrays: bool) -> tuple[list[object], list[object]]:
    """Spans and problems as several processes read them."""
    scan = Scan(source, arrays=arrays)  # type: ignore[arg-type] - any source
    return list(scan), list(scan.problems)


@pytest.mark.parametrize("arrays", [True, False])
def test_several_processes_read_what_one_does(
    recorded: Path, hired: list[decoder_pool.DecoderPool], arrays: bool
):
    """
    Spans come in the same order, with the same values.
    """
    assert alone(recorded, arrays=arrays) == together(recorded, arrays=arrays)
    assert 1 == len(hired)


def test_problems_have_their_lines(recorded: Path, hired: list[decoder_pool.DecoderPool]):
    """
    Problems have the same file, line and order as with one process.
    """
    lines = recorded.read_bytes().splitlines(keepends=True)
    lines[3:3] = [BROKEN, b"\n", b"   \r\n"]
    lines[-4:-4] = [BAD_SPAN, b"\r\n", BROKEN]
    recorded.write_bytes(b"".join(lines) + lines[0][:500])

    spans, problems = together(recorded, arrays=True)

    assert alone(recorded, arrays=True) == (spans, problems)
    assert ["broken_line", "broken_span", "broken_line", "truncated_line"] == [one.kind for one in problems]  # type: ignore[attr-defined]
    assert hired


def test_a_directory_is_read_in_its_order(
    recorded: Path, tmp_path: Path, hired: list[decoder_pool.DecoderPool]
):
    """
    Plain files, compressed files and files that are not recordings are read in order.
    """
    with gzip.open(tmp_path / "b.jsonl.gz", "wb") as file:
        file.write(recorded.read_bytes())
    (tmp_path / "c.json").write_text(json.dumps({"not": "a recording"}))
    (tmp_path / "d.jsonl").write_bytes(b"")
    (tmp_path / "e.jsonl.gz").write_bytes((tmp_path / "b.jsonl.gz").read_bytes()[:-20])

    assert alone(tmp_path, arrays=True) == together(tmp_path, arrays=True)
    assert hired


def test_a_file_that_is_no_recording_is_given_up_early(
    recorded: Path, tmp_path: Path, hired: list[decoder_pool.DecoderPool]
):
    """
    After a thousand invalid lines, the next file is read.
    """
    (tmp_path / "0.json").write_text('{"a": 1}\n' * 5_000)

    spans, problems = together(tmp_path, arrays=False)

    assert alone(tmp_path, arrays=False) == (spans, problems)
    assert ["not_traces"] == [one.kind for one in problems]  # type: ignore[attr-defined]
    assert hired


def test_progress_arrives_at_the_size(recorded: Path, hired: list[decoder_pool.DecoderPool]):
    """
    The sum of the progress calls is the size of the files.
    """
    read: list[int] = []
    mttp.read(recorded, progress=read.append)

    assert recorded.stat().st_size == sum(read)
    assert hired


def test_processes_that_die_are_done_without(
    recorded: Path, hired: list[decoder_pool.DecoderPool], monkeypatch: pytest.MonkeyPatch
):
    """
    The reader decodes the parts of dead processes itself.
    """
    expected = alone(recorded, arrays=True)
    monkeypatch.setattr(processes, "_RUN", "raise SystemExit(1)")

    assert expected == together(recorded, arrays=True)
    assert hired


STOPPED = """
import os, signal, socket, struct
end, head = socket.socket(fileno=os.dup(0)), struct.Struct("<BQ")
end.sendall(head.pack(0, 0))
end.recv(head.size)
end.sendall((head.pack(0, 100) + b"x" * 100)[:{sent}])
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("sent", [0, 50])
def test_processes_that_are_stopped_are_done_without(
    recorded: Path, hired: list[decoder_pool.DecoderPool], monkeypatch: pytest.MonkeyPatch, sent: int
):
    """
    A process that does not answer in time is killed, and the reader decodes its part.
    """
    expected = alone(recorded, arrays=True)
    monkeypatch.setattr(processes, "_RUN", STOPPED.replace("{sent}", str(sent)))
    monkeypatch.setattr(decoder_pool, "_TIMEOUT_SECONDS", 0.5)

    assert expected == together(recorded, arrays=True)
    assert eventually(lambda: all(map(has_ended, hired[0].workers)))


def test_where_no_process_can_be_started_one_reads(
    recorded: Path, hired: list[decoder_pool.DecoderPool], monkeypatch: pytest.MonkeyPatch
):
    """
    Without processes, the reader decodes the whole recording itself.
    """

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(processes.orphans, "start", refuse)

    assert alone(recorded, arrays=True) == together(recorded, arrays=True)
    assert [] == hired


def test_who_stops_reading_stops_the_processes(recorded: Path, hired: list[decoder_pool.DecoderPool]):
    """
    An iteration that is abandoned early leaves no process behind.
    """
    scan = Scan(recorded, arrays=True)
    next(scan)
    del scan
    gc.collect()

    assert eventually(lambda: all(map(has_ended, hired[0].workers)))


def test_reading_strictly_stops_at_the_first_problem(recorded: Path, hired: list[decoder_pool.DecoderPool]):
    """
    `strict` raises at the first problem, also with several processes.
    """
    recorded.write_bytes(recorded.read_bytes() + BROKEN)

    with pytest.raises(ReadError, match="not JSON"):
        mttp.read(recorded, strict=True)

    assert eventually(lambda: all(map(has_ended, hired[0].workers)))


def test_little_is_read_alone(recorded: Path, monkeypatch: pytest.MonkeyPatch):
    """
    No process is started for a few megabytes.
    """
    monkeypatch.setattr(decoder_pool, "DecoderPool", None)

    assert 36 == len(mttp.read(recorded))


def summed_up(source: object) -> str:
    """All that a summary says."""
    found = mttp.summarize(source)  # type: ignore[arg-type] - any source
    left = ("columns", "runs", "sources")
    said = {item.name: getattr(found, item.name) for item in fields(found) if item.name not in left}
    said |= {name: (one.words, one.codes.tolist()) for name, one in said.items() if isinstance(one, Labels)}
    said |= {
        name: getattr(found, name).tolist() for name in ("start_times", "durations", "returns", "lengths")
    }
    return repr(said | {"runs": len(found.runs)})


def summed_up_alone(source: object) -> str:
    """The figures of a recording, computed by one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_LARGE", math.inf)
        return summed_up(source)


@pytest.mark.parametrize("seed", range(6))
def test_a_summary_of_several_processes_is_that_of_one(
    tmp_path: Path, hired: list[decoder_pool.DecoderPool], seed: int
):
    """
    Episodes that are incomplete, repeated, unfinished or split over parts count as with one process.
    """
    shuffled = random.Random(seed)
    spans = [*run(), foreign(1)]
    for number in range(60):
        components = {"correct": number / 60, "format": 0.1} if number % 2 else None
        made = episode(number, steps=1 + number % 5, marked=number % 3 == 0, components=components)
        spans += made[shuffled.choice([0, 0, 0, 1]) : shuffled.choice([None, None, None, -1])]
        if shuffled.random() < 0.2:
            spans += made[: shuffled.choice([1, 2, None])]
    for _ in range(seed * 10):
        one, other = shuffled.randrange(len(spans)), shuffled.randrange(len(spans))
        spans[one], spans[other] = spans[other], spans[one]
    spans += of_version(episode(99), "9.0.0") + spans[20:40]
    path = write(tmp_path / "a.jsonl", spans, per_line=3)

    assert summed_up_alone(path) == summed_up(path)
    assert hired


def test_a_summary_of_a_recording_is_that_of_one_process(
    recorded: Path, hired: list[decoder_pool.DecoderPool]
):
    """
    The recording has tokens, rewards and problems of the recorder.
    """
    recorded.write_bytes(recorded.read_bytes() + BROKEN + recorded.read_bytes()[:9_000])

    assert summed_up_alone(recorded) == summed_up(recorded)
    assert hired


def test_evaluations_of_others_are_counted_by_several_processes_too(
    tmp_path: Path, hired: list[decoder_pool.DecoderPool]
):
    """
    Spans of foreign evaluations may lack a run id.
    """
    stated = {a.EVAL_SUITE_NAME: "suite"}
    evals = [
        SpanRecord(
            trace_id=f"{number + 1:032x}",
            span_id=f"{number + 1:016x}",
            name="eval.run",
            attributes={**stated, a.EVAL_ID: str(number)},
            scope=SCOPE,
        )
        for number in range(100)
    ]
    path = write(tmp_path / "a.jsonl", [*episode(0), *evals], per_line=10)

    assert 100 == mttp.summarize(path).evals
    assert summed_up_alone(path) == summed_up(path)
    assert hired


BROKEN_OFF = """
import atexit, gc, sys
import mttp
from mttp.reading import decoder_pool, scanning
scanning._LARGE = 0
decoder_pool._PART_BYTES = 2000
decoder_pool._cores = lambda: 2
spans = mttp.scan("a.jsonl")
"""


@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [
        ("for span in spans: raise ValueError(span.name[:0] + 'mine')", 1, "ValueError: mine"),
        ("for span in spans: break", 0, ""),
        ("for span in mttp.scan('a.jsonl'): break", 0, ""),
        ("for span in spans: sys.exit(3)", 3, ""),
        ("next(spans); me = [spans]; me.append(me); del spans, me", 0, ""),
        ("next(spans); sys.kept = spans", 0, ""),
        ("atexit.register(lambda: print(len(list(mttp.scan('a.jsonl'))), len(list(spans))))", 0, ""),
    ],
)
def test_a_scan_that_is_broken_off_ends_quietly(recorded: Path, ending: str, code: int, words: str):
    """
    However the program ends, nothing but its own traceback is printed, and its exit code stays.
    """
    command = [sys.executable, "-c", BROKEN_OFF + ending]
    done = subprocess.run(command, cwd=recorded.parent, capture_output=True, text=True, timeout=120)

    assert code == done.returncode, done.stderr
    assert words in done.stderr
    assert done.stderr.count("Error") == words.count("Error")
    assert bool(words) == bool(done.stderr)

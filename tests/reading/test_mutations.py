"""Whatever becomes of a file, reading it gives values and problems, or an error of `mttp.errors`."""

from __future__ import annotations

import gzip
import random
import re
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard
from reading.mutations import Change, change_bytes, change_json, mutated
from reading.recorded import record_environment, record_everything, record_training

import mttp
from mttp.cli.files import Format, writer
from mttp.errors import ReadError
from mttp.tables import TABLES

pytest.importorskip("duckdb")
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

FILES = 20_000
SEED = 19
SECONDS = 10
"""What reading one file of some kilobytes may take, on a busy machine."""
MEMORY = 1 << 20
"""Kilobytes that the process may take at most, after all of them."""
DATA = Path(__file__).parent / "data"


@pytest.fixture
def lines() -> list[bytes]:
    """Recordings as lines of OTLP JSON."""
    for record in (record_everything, record_training, record_environment):
        record()
    names = ("everything.jsonl", "training.jsonl", "environment.jsonl", DATA / "official.jsonl")
    assert [] == [problem for name in names for problem in mttp.read(name).problems]
    return [Path(name).read_bytes() for name in names]


def converted(data: Sequence[bytes], target: str, format: Format) -> list[bytes]:
    """Recordings in another format."""
    found = []
    for content in data:
        Path("source.jsonl").write_bytes(content)
        writer(Path(target), format)(Path(target), mttp.scan("source.jsonl", arrays=True))
        found.append(Path(target).read_bytes())
    return found


class Member(NamedTuple):
    """A part of a compressed file that is whole by itself."""

    start: int
    end: int


def in_members(data: bytes, compress: Callable[[bytes], bytes]) -> tuple[bytes, list[Member]]:
    """Lines as several writes leave them: each by itself."""
    parts = [compress(line) for line in data.splitlines(keepends=True)]
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    return b"".join(parts), [Member(*both) for both in pairwise(ends)]


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 3),
    "zst": zstandard.ZstdCompressor(1, write_checksum=True).compress,
}


@contextmanager
def in_time() -> Iterator[None]:
    """Raise where it takes too long."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"reading takes more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def told(recording: mttp.Recording) -> str:
    """All that a recording says, NaN included."""
    late = (recording.groups, recording.updates, recording.annotations, recording.evals)
    return repr((recording.episodes, recording.runs, late))


def looked_at(path: str, *, closely: bool) -> tuple[str, mttp.Recording]:
    """What reading comes to, in a word, and the recording."""
    with in_time():
        try:
            if closely:
                mttp.summarize(path)
            recording = mttp.read(path)
        except ReadError:
            return "error", mttp.Recording([])
        if closely:
            tables = {name: getattr(recording.tables, name) for name in TABLES}
            assert len(tables["episodes"]) == len(recording)
            list(mttp.scan(path))
        return "problem" if recording.problems else "values", recording


class Outcomes:
    """What became of the files of one format."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self.silent: list[str] = []

    def look(self, number: int, content: bytes, expected: str | None) -> None:
        """Read one file; with `expected`, anything else must be said."""
        Path(self.path).write_bytes(content)
        try:
            outcome, recording = looked_at(self.path, closely=number % 10 == 0)
        except Exception as error:
            self._fail(number, content, error)
            return
        if outcome == "values" and expected is not None:
            outcome = "the same" if told(recording) == expected else "SILENT"
            if outcome == "SILENT":
                self.silent.append(f"{number}: {len(content)} bytes")
        self.counts[outcome] += 1

    def _fail(self, number: int, content: bytes, error: Exception) -> None:
        self.counts["FAILED"] += 1
        entry = error.__traceback__
        places = []
        while entry is not None:
            code = entry.tb_frame.f_code
            places.append(f"{Path(code.co_filename).name}:{entry.tb_lineno}")
            entry = entry.tb_next
        kind = f"{type(error).__name__} at {places[-1]}"
        if kind not in self.failures:
            Path(f"failure-{len(self.failures)}").write_bytes(content)
            self.failures[kind] = f"seed {SEED}, file {number}: {error!r:.200} {' '.join(places[1:6])}"

    def check(self) -> None:
        """Nothing but values, problems and errors of ours; nothing silent; within the memory."""
        print(f"\n{self.path}: {FILES:,} files, {dict(self.counts)}")
        for kind, failure in self.failures.items():
            print(f"  {kind}: {failure}")

        assert {} == self.failures
        assert [] == self.silent
        assert FILES == sum(self.counts.values())
        assert MEMORY > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def look_through(
    path: str, made: Callable[[random.Random], tuple[bytes, str | None]], *, files: int = FILES
) -> None:
    """Read so many files, each made by a random generator of its own."""
    outcomes = Outcomes(path)
    for number in range(files):
        content, expected = made(random.Random(f"{SEED} {path} {number}"))
        outcomes.look(number, content, expected)
    outcomes.check()


def test_mutated_lines_are_values_or_errors(lines: list[bytes]):
    """
    Plain lines have no checksum: a difference can go unnoticed, but nothing else fails.
    """
    changes = change_json(lines)

    look_through("mutated.jsonl", lambda rng: (mutated(rng, rng.choice(lines), changes), None))


def test_mutated_messages_are_values_or_errors(lines: list[bytes]):
    """
    Half of them state no checksum, so that what was changed reaches the decoder.
    """
    messages = converted(lines, "source.mttp.jsonl", Format.MESSAGES)
    messages += [re.sub(rb',"checksum":\d+', b"", content) for content in messages]
    changes = change_json(messages)

    look_through("mutated.mttp.jsonl", lambda rng: (mutated(rng, rng.choice(messages), changes), None))


@pytest.mark.parametrize("kind", COMPRESS)
def test_mutated_compressed_files_differ_only_with_a_problem(kind: str, lines: list[bytes]):
    """
    Of half of them the compressed bytes are changed, of half the lines before they were compressed.
    """
    compress, path = COMPRESS[kind], f"mutated.jsonl.{kind}"
    wholes = [in_members(content, compress) for content in lines]
    files = [content for content, _ in wholes]
    expected = []
    for content in files:
        Path(path).write_bytes(content)
        expected.append(told(looked_at(path, closely=True)[1]))
    of_bytes, of_json = change_bytes(files), change_json(lines)

    def made(rng: random.Random) -> tuple[bytes, str | None]:
        place = rng.randrange(len(files))
        if rng.random() < 0.5:
            return compress(mutated(rng, lines[place], of_json)), None
        content = mutated(rng, files[place], of_bytes)
        return content, None if is_of_whole_members(content, files, wholes) else expected[place]

    look_through(path, made)


def is_of_whole_members(
    content: bytes, files: Sequence[bytes], wholes: Sequence[tuple[bytes, list[Member]]]
) -> bool:
    """Whether a file is what a writer may have left: undamaged members of recordings, one after another."""
    known = {whole[start:end] for whole, members in wholes for start, end in members}
    while content:
        content = content.lstrip(b"\0")
        first = next((member for member in known if content.startswith(member)), None)
        if first is None:
            return not content
        content = content[len(first) :]
    return True


def test_mutated_parquet_files_are_the_same_or_errors(lines: list[bytes]):
    """
    A quarter of them have no checksum, so that what was changed reaches pyarrow: these have a problem.
    """
    files = converted(lines, "source.parquet", Format.PARQUET)
    expected = []
    for content in files:
        Path("mutated.parquet").write_bytes(content)
        expected.append(told(looked_at("mutated.parquet", closely=True)[1]))
    changes: list[Change] = change_bytes(files)

    def made(rng: random.Random) -> tuple[bytes, str | None]:
        place = rng.randrange(len(files))
        content = mutated(rng, files[place], changes)
        if rng.random() < 0.25:
            content = content.replace(b"mttp sha256 ", b"mttp_sha256 ", 1)
        return content, expected[place]

    look_through("mutated.parquet", made)


def test_every_flipped_byte_of_a_file_is_noticed(lines: list[bytes]):
    """
    One after another, in each format that has checksums.
    """
    (parquet,) = converted(lines[:1], "source.parquet", Format.PARQUET)
    files = {f"flipped.jsonl.{kind}": compress(lines[0]) for kind, compress in COMPRESS.items()}
    for path, content in {**files, "flipped.parquet": parquet}.items():
        Path(path).write_bytes(content)
        expected = told(looked_at(path, closely=False)[1])
        counts: Counter[str] = Counter()
        for place in range(len(content)):
            changed = content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
            Path(path).write_bytes(changed)
            outcome, found = looked_at(path, closely=False)
            counts["SILENT" if outcome == "values" and told(found) != expected else outcome] += 1
        print(path, dict(counts))

        assert 0 == counts["SILENT"]

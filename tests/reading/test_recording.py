"""What is read from recordings, whole, broken and strange."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading.traces import (
    START,
    episode,
    foreign,
    lines,
    of_version,
    run,
    span_id,
    trace_id,
    write,
    write_bytes,
)

import mttp
from mttp.errors import ReadError
from mttp.otlp import streams
from mttp.semconv import attributes as a

DATA = Path(__file__).parent / "data"


def kinds(recording: mttp.Recording) -> list[str]:
    """Kinds of the problems, in order."""
    return [problem.kind for problem in recording.problems]


def indices(recording: mttp.Recording) -> list[int | None]:
    """Which episodes were read, in order."""
    return [found.index for found in recording]


# Whole recordings.


def test_episodes_come_in_order_of_start():
    """
    Wherever their spans stand, episodes are in order of start and steps in order of index.
    """
    spans = [span for number in range(5) for span in episode(number, steps=3)]
    random.Random(1).shuffle(spans)
    found = mttp.read(write("a.jsonl", spans, per_line=4))

    assert (list(range(5)), []) == (indices(found), found.problems)
    assert {(0, 1, 2)} == {tuple(step.index for step in one.steps) for one in found}


def test_runs_come_in_order_of_start():
    """
    Every process's part in a run is one value.
    """
    found = mttp.read(write("a.jsonl", [*run(2), *run(1, ended=False), *episode(0)]))

    assert [(False, START + 10**9), (True, START + 2 * 10**9)] == [
        (one.complete, one.start_time) for one in found.runs
    ]


def test_other_peoples_spans_do_not_hurt():
    """
    Spans of other libraries are left out, even those within an episode's trace.
    """
    strangers = [foreign(1), foreign(2), foreign(3, trace=trace_id(0))]
    mixed = mttp.read(write("a.jsonl", [*strangers, *episode(0)]))
    alone = mttp.read(write("b.jsonl", episode(0)))

    assert (alone.episodes, []) == (mixed.episodes, mixed.problems)


def test_duplicates_are_counted_and_are_no_problem():
    """
    A send that is tried again delivers spans twice: each counts once.
    """
    path = write("a.jsonl", [*episode(0), *episode(0)[1:], foreign(1), foreign(1)])
    found = mttp.read(path, strict=True)

    assert (1, 3, []) == (len(found), found.duplicates, found.problems)
    assert 2 == len(found.episodes[0].steps)


def test_two_spans_of_one_id_are_a_problem():
    """
    Different spans of the same id mean that random numbers were not random.
    """
    spans = episode(0)
    found = mttp.read(write("a.jsonl", [*spans, replace(spans[0], name="step again")]))

    assert ["conflicting_spans"] == kinds(found)
    assert "two different spans" in str(found.problems[0])


def test_unknown_attributes_are_kept():
    """
    What this version does not know is in `extra`.
    """
    spans = episode(0)
    spans[-1] = replace(spans[-1], attributes={**spans[-1].attributes, "mttp.from.the.future": [1, 2]})

    assert {"mttp.from.the.future": [1, 2]} == mttp.read(write("a.jsonl", spans)).episodes[0].extra


def test_a_recording_behaves_as_its_episodes():
    """
    It has a length, is iterated over, and shows itself in a line.
    """
    found = mttp.read(write("a.jsonl", [*episode(0), *episode(1)]))

    assert (2, found.episodes) == (len(found), list(found))
    assert "<Recording of 2 episodes, 0 runs, 0 problems, from a.jsonl>" == repr(found)


def test_an_episode_is_found_by_the_beginning_of_its_trace_id():
    """
    As much of the id as tells it apart is enough; in either case.
    """
    found = mttp.read(write("a.jsonl", [*episode(0), *episode(16)]))

    assert [0, 16] == [found.episode(prefix).index for prefix in ("00000001", "00000011")]
    assert 0 == found.episode(trace_id(0).upper()).index


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("ffff", "no episode's trace id begins with 'ffff'"),
        ("0000", "2 episodes' trace ids begin with '0000'"),
    ],
)
def test_an_id_that_fits_none_or_several_is_an_error(prefix: str, message: str):
    """
    Nothing is guessed.
    """
    found = mttp.read(write("a.jsonl", [*episode(0), *episode(16)]))

    with pytest.raises(ReadError, match=message):
        found.episode(prefix)


# Files of others.


def test_the_official_exporter_s_file_is_read():
    """
    Episodes written by OpenTelemetry's own JSON file exporter are read as ours.
    """
    found = mttp.read(DATA / "official.jsonl")
    first = found.episodes[0]

    assert (2, []) == (len(found), found.problems)
    assert ("CartPole-v1", 2.0, True, [0.5, -0.25, 1e-9, 3.0]) == (
        first.env,
        first.return_,
        first.complete,
        first.steps[0].observation.tolist(),
    )


def test_a_collector_s_file_is_read():
    """
    A Collector's file has several resources per line, and may have lines that are no traces.
    """
    found = mttp.read(DATA / "collector.jsonl")

    assert [0.5, 1.0] == [one.return_ for one in found]
    assert [("not_traces", 2)] == [(problem.kind, problem.line) for problem in found.problems]
    assert "the line holds logs" in str(found.problems[0])


# What may be wrong.


def test_broken_lines_are_reported_and_the_rest_is_read():
    """
    Each broken line is a problem with its file and number.
    """
    good = lines([*episode(0), *episode(1)], per_line=3)
    path = write_bytes("a.jsonl", good[0] + b"{broken\n" + b'{"resourceMetrics":[]}\n' + good[1])
    found = mttp.read(path)

    assert ([0, 1], ["broken_line", "not_traces"]) == (indices(found), kinds(found))
    assert "a.jsonl:2: not JSON" in str(found.problems[0])


def test_a_malformed_span_costs_only_itself():
    """
    The rest of its line is read; the problem has the line and the reason.
    """
    spans = [*episode(0), replace(episode(1)[0], trace_id="0" * 32), *episode(2)]
    found = mttp.read(write("a.jsonl", spans))

    assert ([0, 2], [("broken_span", 1)]) == (indices(found), [(p.kind, p.line) for p in found.problems])
    assert "a.jsonl:1: span 4 of the line is not valid OTLP JSON: traceId is '000" in str(found.problems[0])


def test_problems_before_the_first_good_line_are_reported_too():
    """
    A file that begins badly is a recording nevertheless.
    """
    found = mttp.read(write_bytes("a.jsonl", b"# a comment\n" + lines(episode(0))[0]))

    assert ([0], [("broken_line", 1)]) == (indices(found), [(p.kind, p.line) for p in found.problems])


def test_a_line_that_is_too_long_costs_itself_alone(monkeypatch: pytest.MonkeyPatch):
    """
    What is on other lines is read, and a problem says which one was left out.
    """
    monkeypatch.setattr(streams, "READABLE_LINE_BYTES", 1 << 16)
    write("a.jsonl", [*episode(0), *episode(1)], per_line=4)
    first, second = Path("a.jsonl").read_bytes().splitlines(keepends=True)
    Path("a.jsonl").write_bytes(first + first[:-1] + b" " * (1 << 16) + b"\n" + second)
    found = mttp.read("a.jsonl")

    assert [0, 1] == indices(found)
    assert [("broken_line", 2)] == [(problem.kind, problem.line) for problem in found.problems]
    assert 2 == len(mttp.summarize("a.jsonl").lengths)


@pytest.mark.parametrize("strict", [False, True])
def test_a_last_line_without_newline_is_read(strict: bool):
    """
    Only the newline is missing: nothing is wrong.
    """
    path = write_bytes("a.jsonl", lines(episode(0))[0].rstrip(b"\n"))

    assert [0] == indices(mttp.read(path, strict=strict))


def test_a_line_that_was_cut_short_is_reported():
    """
    A process that was killed while writing leaves the beginning of a line.
    """
    good, cut = lines([*episode(0), *episode(1)], per_line=3)
    found = mttp.read(write_bytes("a.jsonl", good + cut[:-20]))

    assert ([0], ["truncated_line"]) == (indices(found), kinds(found))
    assert "a.jsonl:2: the last line is cut short; the lines before it were read" == str(found.problems[0])


def test_a_file_of_only_a_cut_line_is_a_recording():
    """
    It begins as traces do: there is nothing to read, and no reason to doubt the file.
    """
    found = mttp.read(write_bytes("a.jsonl", lines(episode(0))[0][:100]))

    assert ([], ["truncated_line"]) == (found.episodes, kinds(found))


def test_a_cut_stream_is_reported_once():
    """
    Of a gzip file that was cut off, every whole line is read.
    """
    data = gzip.compress(b"".join(lines([span for n in range(50) for span in episode(n)], per_line=3)))
    path = Path("a.jsonl.gz")
    path.write_bytes(data[:-300])
    found = mttp.read(path)

    assert ["cut_stream"] == [kind for kind in kinds(found) if kind != "unfinished_episode"]
    assert 0 < len(found) < 50
    assert list(range(len(found))) == indices(found)


def test_an_unfinished_episode_is_read_and_reported():
    """
    Without its root an episode is unfinished, with all steps that were found.
    """
    found = mttp.read(write("a.jsonl", episode(0, steps=3, marked=True)[:-2]))

    assert [("unfinished", 2, "CartPole-v1", None)] == [
        (one.status, one.step_count, one.env, one.return_) for one in found
    ]
    assert [("unfinished_episode", trace_id(0))] == [(p.kind, p.trace_id) for p in found.problems]
    assert f"episode {trace_id(0)} has no end: 2 steps were found" == str(found.problems[0])


def test_an_incomplete_episode_is_read_and_reported():
    """
    A root tells how many spans there should be.
    """
    found = mttp.read(write("a.jsonl", episode(0, steps=3)[1:]))

    assert [("completed", False, 2)] == [(one.status, one.complete, len(one.steps)) for one in found]
    assert ["incomplete_episode"] == kinds(found)


def test_a_trace_that_makes_no_sense_is_reported(monkeypatch: pytest.MonkeyPatch):
    """
    One trace that can't be decoded does not keep the others from being read.
    """

    def refuse(record: object) -> None:
        raise ValueError(record)

    monkeypatch.setattr("mttp.codec.groups.decode", refuse)
    nameless = replace(episode(0)[-1], name="g", parent_id="", attributes={a.RUN_ID: "r", a.GROUP_SIZE: 1})
    found = mttp.read(write("a.jsonl", [nameless, *episode(1)]))

    assert ([1], ["broken_trace"]) == (indices(found), kinds(found))
    assert f"trace {trace_id(0)} can't be decoded" in str(found.problems[0])


def test_a_token_block_that_makes_no_sense_costs_itself():
    """
    The episode is read without it, and the block says why.
    """
    spans = episode(0)
    broken = {a.TOKEN_LAYOUT: "[", a.TOKEN_COUNT: 1}
    spans[0] = replace(spans[0], attributes={**spans[0].attributes, **broken})
    (found,) = mttp.read(write("a.jsonl", spans)).episodes

    blocks = [step.tokens for step in found.steps if step.tokens is not None]
    assert [True] == [
        str(block.omitted_reason).startswith("unreadable") for block in blocks if block.ids is None
    ]


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("0.1.1", "newer_convention"),
        ("0.10.0-dev", "newer_convention"),
        ("1.0.0", "newer_convention"),
        ("0.0.9", "unknown_convention"),
        ("0.1.0-dev", "unknown_convention"),
        ("odd", "unknown_convention"),
        ("", "unknown_convention"),
    ],
)
def test_a_version_that_is_not_known_is_reported_once_per_file(version: str, kind: str):
    """
    What is known is read; that there may be more is a problem of the file.
    """
    for name in ("a", "b"):
        write(f"{name}.jsonl", of_version([*episode(0), *episode(1)], version), per_line=2)
    found = mttp.read(["a.jsonl", "b.jsonl"])

    assert [0, 1] == indices(found)
    assert [kind] * 2 == kinds(found)
    assert str(found.problems[0]).startswith(f"a.jsonl: spans follow version {version!r} of the convention")


def test_the_version_of_another_convention_is_no_problem():
    """
    Only schema URLs of this convention state a version of it.
    """
    scope = replace(episode(0)[0].scope, schema_url="https://opentelemetry.io/schemas/1.0.0")
    write("a.jsonl", [replace(span, scope=scope) for span in episode(0)])

    assert [] == kinds(mttp.read("a.jsonl"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.jsonl: the file is empty"),
        (b"\n\n", r"a\.jsonl: the file is empty"),
        (
            b"step,reward\n0,1.5\n",
            r"a\.jsonl: this is not a recording \(line 1: not JSON.*expected OTLP JSON lines",
        ),
        (
            b'{"prompt":"x"}\n{"prompt":"y"}\n',
            r"not a recording \(line 1: the line is an object of 'prompt', not traces\)",
        ),
        (b'[\n  {"a": 1}\n]\n', r"a\.jsonl: this is not a recording"),
        (b'{"resourceLogs":[]}\n', r"not a recording \(line 1: the line holds logs"),
        (bytes(range(256)) * 40, r"a\.jsonl: this is not a recording"),
        (b"\x1f\x8b\x08junk", r"a.jsonl:1: the gzip stream"),
        (b"PAR1junk", r"a\.jsonl: this Parquet file is damaged or cut short"),
    ],
    ids=["empty", "blank", "csv", "other json lines", "a json document", "logs", "binary", "gzip", "parquet"],
)
def test_a_file_that_is_no_recording_is_an_error(content: bytes, message: str):
    """
    The error names the file and says what it is instead.
    """
    with pytest.raises(ReadError, match=message):
        mttp.read(write_bytes("a.jsonl", content))


def test_what_is_found_beside_a_recording_is_only_a_problem():
    """
    In a directory, empty files and files of other kinds are reported and skipped.
    """
    write("runs/a.jsonl", episode(0))
    write_bytes("runs/b.jsonl", b"")
    write_bytes("runs/config.json", b'{"lr":0.1}')
    found = mttp.read("runs")

    assert ([0], ["empty_file", "not_traces"]) == (indices(found), kinds(found))
    with pytest.raises(ReadError, match=r"config\.json: this is not a recording"):
        mttp.read(["runs/a.jsonl", "runs/config.json"])


def test_a_directory_without_any_recording_is_an_error():
    """
    If no file is a recording, that is an error.
    """
    write_bytes("runs/b.jsonl", b"")
    write_bytes("runs/config.json", b'{"lr":0.1}')

    with pytest.raises(
        ReadError, match=r"b\.jsonl: the file is empty; .*config\.json: this is not a recording"
    ):
        mttp.read("runs")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lines(episode(0))[0] + b"{broken\n", r"a\.jsonl:2: not JSON"),
        (b"{broken\n" + lines(episode(0))[0], r"a\.jsonl:1: not JSON"),
        (lines(episode(0))[0] + b"{", r"a\.jsonl:2: the last line is cut short"),
        (b"".join(lines(episode(0)[:-1])), "has no end"),
        (b"".join(lines(episode(0)[1:])), "lacks spans"),
    ],
)
def test_strict_raises_at_the_first_problem(data: bytes, message: str):
    """
    With `strict` a problem is an error, with its file and line.
    """
    with pytest.raises(ReadError, match=message):
        mttp.read(write_bytes("a.jsonl", data), strict=True)


def test_a_file_that_is_being_written_is_fine():
    """
    What is on the disk so far is read while the writer goes on.
    """
    with mttp.configure(transport="file://live.jsonl") as session:
        with mttp.episode(env="pole"):
            pass
        session.flush()

        assert ["pole"] == [one.env for one in mttp.read("live.jsonl")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(0, 5000))
def test_of_a_file_cut_anywhere_everything_before_is_read(cut: int):
    """
    Episodes that were whole before the cut are whole after it.
    """
    written = [lines(episode(number))[0] for number in range(4)]
    ends = [sum(map(len, written[: n + 1])) for n in range(4)]
    data = b"".join(written)[:cut]
    if not data:
        return
    found = mttp.read(write_bytes("a.jsonl", data)) if len(data) > 20 else None
    if found is not None:
        whole = sum(end - 1 <= len(data) for end in ends)
        assert list(range(whole)) == indices(found)


def test_span_ids_say_which_span():
    """
    Steps keep the ids of their spans.
    """
    found = mttp.read(write("a.jsonl", episode(0)))

    assert [span_id(0, 1), span_id(0, 2)] == [step.span_id for step in found.episodes[0].steps]


def test_a_compressed_part_cut_at_its_start_does_not_hide_the_next(tmp_path: Path):
    """
    A crash before the first block was whole is a problem of that part; the parts after it are read.
    """
    for name in ("first", "second"):
        with mttp.configure(transport="file://a.jsonl.zst", run=name), mttp.episode(env=name):
            pass
        if name == "first":
            (tmp_path / "a.jsonl.zst").write_bytes((tmp_path / "a.jsonl.zst").read_bytes()[:30])
    found = mttp.read("a.jsonl.zst")

    assert (["second"], ["cut_stream"]) == ([episode.env for episode in found], kinds(found))


def test_a_file_of_broken_lines_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After so many of them in a row, with a problem that says so; what stands before them was read.
    """
    monkeypatch.setattr("mttp.reading.lines._MAX_BROKEN_LINES", 2_000)
    path = tmp_path / "a.jsonl"
    with mttp.configure(f"file://{path}"), mttp.episode(env="toy"):
        pass
    path.write_bytes(path.read_bytes() + b"{\n" * 6_000)

    found = mttp.read(path)

    assert 1 == len(found)
    assert ["2,000 lines in a row are broken; the rest of the file was not read"] == [
        problem.message for problem in found.problems if problem.kind == "cut_stream"
    ]
    assert [problem.kind for problem in found.problems] == [
        problem.kind for problem in mttp.summarize(path).problems
    ]

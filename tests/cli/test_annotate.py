"""`mttp annotate`: labels in a file, from rows to what is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from reading.traces import episode, run, trace_id, write
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app

FIRST, SECOND = trace_id(0), trace_id(1)


def annotate(*arguments: str, code: int = 0) -> Any:
    """The command's result, which exits so."""
    result = CliRunner().invoke(app, ["annotate", *arguments], prog_name="mttp")

    assert code == result.exit_code, result.stderr
    return result


def labels(text: str, name: str = "labels.csv") -> str:
    """A file of labels."""
    Path(name).write_text(text, encoding="utf-8")
    return name


@pytest.fixture
def recording() -> str:
    """A directory with a file of a run and three episodes."""
    spans = [*run(), *(span for number in range(3) for span in episode(number))]
    return str(write("runs/a.jsonl", spans).parent)


def files() -> list[str]:
    """What is in the directory, hidden files too."""
    return sorted(re.sub(r"\d{14}", "TIME", path.name) for path in Path("runs").iterdir())


def test_a_column_per_key(recording: str):
    """
    Empty cells state nothing; a fact of one's own is a number where it is written as one.
    """
    path = labels(
        "trace_id,score,outcome,advantage,label,comment,Topic,level,known,grader,by,explanation\n"
        f"{FIRST[:8]},0.75,failure,-1e-1,odd,long ago,algebra,3,true,judge,me,because\n"
        f"{SECOND},,,,,,,007,,,,\n"
    )
    annotate(recording, "--from", path, "--by", "somebody")

    first, second, _ = found = mttp.read(recording).episodes
    assert (0.75, "because", "failure", -0.1) == (
        first.scores["judge"].value,
        first.scores["judge"].explanation,
        first.outcome,
        first.advantage,
    )
    assert {"topic": "algebra", "level": 3, "known": True} == first.metadata
    assert ["odd", "long ago"] == [one.value for one in first.annotations if one.kind in ("label", "comment")]
    assert {"me"} == {one.by for one in first.annotations}
    assert ({"level": 7}, ["somebody"]) == (second.metadata, [one.by for one in second.annotations])
    assert [1.0, 1.0, 1.0] == [one.return_ for one in found]


def test_key_and_value(recording: str):
    """
    One statement per row; later rows win.
    """
    path = labels(f"trace_id,key,value\n{FIRST},outcome,unknown\n{FIRST},outcome,failure\n{FIRST},score,1\n")
    annotate(recording, "--from", path, "--by", "me")

    found = mttp.read(recording).episodes[0]
    assert ("failure", 1.0, 3) == (found.outcome, found.scores["me"].value, len(found.annotations))


def test_json_lines(recording: str):
    """
    Values have the types that JSON gives them; null states nothing.
    """
    rows = [
        {"trace_id": FIRST, "score": 1, "tags": ["a", "b"], "outcome": None},
        {"trace_id": SECOND, "key": "note", "value": "7", "by": "me"},
    ]
    path = labels("\n\n".join(map(json.dumps, rows)), "labels.jsonl")
    annotate(recording, "--from", path)

    first, second, _ = mttp.read(recording).episodes
    assert ({"tags": ["a", "b"]}, 1.0) == (first.metadata, first.scores[""].value)
    assert {"note": 7} == second.metadata


def test_steps(recording: str):
    """
    By index or by span id.
    """
    span_id = mttp.read(recording).episodes[0].steps[1].span_id
    path = labels(f"trace_id,step,score,grader\n{FIRST},0,0.25,a\n{FIRST},{span_id},0.5,a\n")
    annotate(recording, "--from", path)

    steps = mttp.read(recording).episodes[0].steps
    assert [0.25, 0.5] == [step.scores["a"].value for step in steps]
    assert [(0, steps[0].span_id), (1, steps[1].span_id)] == [
        (one.step, one.step_span_id) for step in steps for one in step.annotations
    ]


def test_one_episode(recording: str):
    """
    What is stated stands in the arguments.
    """
    arguments = ("--set", "score=0.5", "--set", "comment=a=b", "--by", "me", "--explanation", "why")
    result = annotate(recording, FIRST[:8], *arguments)

    found = mttp.read(recording).episodes[0]
    assert (0.5, "why", ["a=b"]) == (
        found.scores["me"].value,
        found.scores["me"].explanation,
        [one.value for one in found.annotations if one.kind == "comment"],
    )
    assert result.stdout.startswith("wrote 2 annotations of 1 episode to runs/annotations-")

    annotate(recording, FIRST, "--set", "score=1", "--step", "1")
    assert 1.0 == mttp.read(recording).episodes[0].steps[1].scores[""].value


def test_annotations_belong_to_the_run_of_their_episode(recording: str):
    """
    No run is added, nothing is wrong afterwards, and they are linked to what they are about.
    """
    annotate(recording, "--from", labels(f"trace_id,score\n{FIRST},1\n"))

    found = mttp.read(recording)
    assert ([], 1, {"run-1"}) == (found.problems, len(found.runs), {one.run_id for one in found.annotations})
    (span,) = [record for record in mttp.scan(recording, arrays=True) if record.name == "annotate"]
    assert [(FIRST, found.episodes[0].span_id)] == [(link.trace_id, link.span_id) for link in span.links]
    assert ("mttp", "run-1") == (span.scope.name, span.scope.resource["mttp.run.id"])


@pytest.mark.parametrize("name", ["b.jsonl", "b.jsonl.gz", "b.jsonl.zst", "b.parquet"])
def test_beside_a_file_they_are_read_with_it(name: str, recording: str):
    """
    As a part of it, in its own format; the file itself stays as it is.
    """
    if name.endswith(".parquet"):
        parquet = pytest.importorskip("mttp.reading.parquet")
        pytest.importorskip("pyarrow")
        parquet.write(name, mttp.scan("runs/a.jsonl", arrays=True))
    else:
        write(name, [*episode(0), *episode(1)])
    before = Path(name).read_bytes()
    path = labels(f"trace_id,score\n{FIRST},1\n")
    annotate(name, "--from", path)
    annotate(name, "--from", path)

    found = mttp.read(name)
    assert (2, before, []) == (len(found.annotations), Path(name).read_bytes(), found.problems)
    assert 2 == len(mttp.read(".").annotations)
    stem, _, suffix = name.partition(".")
    assert 2 == len([path for path in Path().iterdir() if re.fullmatch(rf"{stem}\.\d+\.{suffix}", path.name)])


def test_a_live_recorder_goes_on_beside_them(recording: str):
    """
    It never writes into a file of annotations.
    """
    with mttp.configure("file://live.jsonl?max_bytes=2000") as session:
        with mttp.episode() as played:
            pass
        session.flush()
        annotate("live.jsonl", "--from", labels(f"trace_id,score\n{played.trace_id},1\n"))
        for _ in range(5):
            with mttp.episode():
                pass
            session.flush()

    found = mttp.read("live.jsonl")
    assert (6, 1, []) == (len(found.episodes), len(found.annotations), found.problems)


BAD = f"trace_id,score\n{FIRST},1\n{SECOND},lots\n"


def test_nothing_is_written_where_anything_is_wrong(recording: str):
    """
    Each wrong row is named, with its line.
    """
    result = annotate(recording, "--from", labels(BAD), code=2)

    assert (["a.jsonl"], "") == (files(), result.stdout)
    assert "labels.csv:3: score is 'lots', expected a number\n" in result.stderr
    assert "1 of 2 rows can't be written, so nothing was" in result.stderr


def test_wrong_rows_can_be_left_out(recording: str):
    """
    They are named all the same.
    """
    result = annotate(recording, "--from", labels(BAD), "--skip-bad")

    assert (1, True) == (len(mttp.read(recording).annotations), "labels.csv:3" in result.stderr)


def test_a_dry_run_writes_nothing(recording: str):
    """
    It says what would be.
    """
    result = annotate(recording, "--from", labels(f"trace_id,score\n{FIRST},1\n"), "--dry-run")

    assert (["a.jsonl"], "would write 1 annotation of 1 episode\n") == (files(), result.stdout)
    annotate(recording, "--from", labels(BAD), "--dry-run", code=2)


def test_json(recording: str):
    """
    One document: how many, where, and what was left out.
    """
    result = annotate(recording, "--from", labels(BAD), "--skip-bad", "--json")

    found = json.loads(result.stdout)
    assert re.fullmatch(r"runs/annotations-\d{14}\.jsonl", found.pop("file"))
    skipped = [{"place": "labels.csv:3", "message": "score is 'lots', expected a number"}]
    assert {"annotations": 1, "episodes": 1, "skipped": skipped} == found
    assert (
        None is json.loads(annotate(recording, FIRST, "--set", "a=1", "--dry-run", "--json").stdout)["file"]
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{},nan,,", "score is 'nan', expected a number"),
        ("{},1e999,,", "score is '1e999', expected a number"),
        ("{},true,,", "score is 'true', expected a number"),
        ("{},,maybe,", "outcome is 'maybe', expected one of success, failure, unknown"),
        ("{},1,,7", f"episode {FIRST} has no step 7; it has 2 steps"),
        ("{},1,,-1", "step is '-1', expected an index from 0 or a span id of 16 hexadecimal digits"),
        ("{},1,,ffffffffffffffff", f"episode {FIRST} has no step ffffffffffffffff; it has 2 steps"),
        ("ffff,1,,", "no episode's trace id begins with 'ffff'; there are 3 episodes"),
        ("0000,1,,", "several episodes' trace ids begin with '0000'; give more digits"),
        ("xyz,1,,", "trace_id is 'xyz', expected up to 32 hexadecimal digits"),
        (",1,,", "it has no trace_id"),
        ("{},1,,0,5", "it has 5 cells, but there are 4 columns"),
    ],
)
def test_rows_that_make_no_sense(recording: str, row: str, message: str):
    """
    Each has its line and value.
    """
    path = labels("trace_id,score,outcome,step\n" + row.format(FIRST) + "\n")

    result = annotate(recording, "--from", path, code=2)
    assert [f"labels.csv:2: {message}", ["a.jsonl"]] == [result.stderr.splitlines()[0], files()]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{broken", "it is not JSON"),
        ("[1]", "it is not a JSON object; write one object per line"),
        (json.dumps({"trace_id": FIRST, "score": "high"}), "score is 'high', expected a number"),
        (json.dumps({"trace_id": FIRST, "score": True}), "score is True, expected a number"),
        (json.dumps({"trace_id": FIRST, "score": 1, "step": 0.5}), "step is 0.5, expected an index"),
        (json.dumps({"score": 1}), "it has no trace_id"),
        (json.dumps({"trace_id": FIRST, "key": "score", "value": None}), "it has a key without a value"),
        (
            json.dumps({"trace_id": FIRST, "key": "preference", "value": 1}),
            "'preference' is not a valid key",
        ),
    ],
)
def test_json_rows_that_make_no_sense(recording: str, row: str, message: str):
    """
    A row of JSON lines is refused for the reasons for which a row of a CSV file is.
    """
    result = annotate(recording, "--from", labels("\n" + row + "\n", "labels.jsonl"), code=2)

    assert result.stderr.startswith(f"labels.jsonl:2: {message}")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("score", "there is no column trace_id"),
        ("trace_id,score,score", "the columns 'score', 'score' are all 'score'; rename or drop some"),
        ("trace_id,my topic,My_Topic", "the columns 'my topic', 'My_Topic' are all 'my_topic'"),
        ("trace_id,,score", "a column has no name; name it, or leave it out"),
        ("trace_id,key", "give key and value, or a column per key, not key"),
        ("trace_id,key,value,score", "give key and value, or a column per key, not key, value, score"),
    ],
)
def test_columns_that_make_no_sense(recording: str, header: str, message: str):
    """
    The error names the line of the header and says what is wrong with it.
    """
    result = annotate(recording, "--from", labels(header + "\n"), "--skip-bad", code=2)

    assert f"labels.csv:1: {message}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("runs/",), "give a file of labels (--from FILE), or one episode and its values"),
        (("runs/", FIRST), "give a file of labels (--from FILE)"),
        (("runs/", FIRST, "--set", "score"), "--set 'score' is not KEY=VALUE"),
        (("runs/", FIRST, "--set", "a=1", "--from", "labels.csv"), "--from can't be combined with ID"),
        (("nowhere", FIRST, "--set", "a=1"), "nowhere is not a file or directory"),
        (("runs/*.jsonl", FIRST, "--set", "a=1"), "runs/*.jsonl is not a file or directory"),
        (("runs/", "--from", "nowhere.csv"), "nowhere.csv: No such file or directory"),
        (("runs/", "--from", "/dev/zero"), "/dev/zero: it is a device, not a regular file"),
        (("runs/", "--from", "latin.csv"), "latin.csv is not UTF-8 text"),
        (("runs/", "--from", "empty.csv"), "there is no column trace_id"),
        (("runs/", "--from", "silent.csv"), "there is nothing to write: no row has a value"),
        (("labels.csv", FIRST, "--set", "a=1"), "its name must end in .parquet"),
        (("part.1.jsonl", FIRST, "--set", "a=1"), "part.1.jsonl is a part of part.jsonl; name part.jsonl"),
    ],
)
def test_wrong_usage(recording: str, arguments: tuple[str, ...], message: str):
    """
    One sentence says what to do; nothing is written.
    """
    labels("trace_id,score\n")
    labels("", "empty.csv")
    labels(f"trace_id,score\n{FIRST},\n", "silent.csv")
    Path("latin.csv").write_bytes(b"trace_id,score\n\xff,1\n")
    for name in ("part.jsonl", "part.1.jsonl"):
        write(name, episode(0))

    result = annotate(*arguments, code=2)
    assert (True, ["a.jsonl"]) == (message in result.stderr, files())


def test_an_index_that_several_steps_have_is_refused():
    """
    As those of several agents do; a span id says which is meant.
    """
    with mttp.configure(transport="file://runs/a.jsonl"), mttp.episode() as played:
        white = played.agent("white").step()
        played.agent("black").step()
    trace_id = played.trace_id

    result = annotate("runs/", trace_id, "--step", "0", "--set", "score=1", code=2)
    annotate("runs/", trace_id, "--step", white.span_id, "--set", "score=1")

    message = f"--set: episode {trace_id} has 2 steps 0; give the span id of one"
    assert message == result.stderr.splitlines()[0]
    steps = mttp.read("runs/").episodes[0].steps
    assert [("white", 1), ("black", 0)] == [(step.agent, len(step.annotations)) for step in steps]


def test_many_wrong_rows_are_counted(recording: str):
    """
    The first twenty are named.
    """
    result = annotate(recording, "--from", labels("trace_id,score\n" + f"{FIRST},x\n" * 30), code=2)

    lines = result.stderr.splitlines()
    assert (22, "… and 10 more") == (len(lines), lines[20])


def test_show_tells_what_was_stated(recording: str):
    """
    By whom, why and when; counts stand below the table.
    """
    annotate(recording, FIRST, "--set", "score=0.5", "--by", "me", "--explanation", "lucky")
    tree = CliRunner().invoke(app, ["show", recording, "--episode", FIRST[:8]]).stdout
    table = CliRunner().invoke(app, ["show", recording]).stdout

    assert re.search(r"score  0\.5 by me, lucky  \d{4}-", tree)
    assert "1 annotation" in table

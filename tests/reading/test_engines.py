"""Partitioned datasets: what is read of them equals what is read of the lines."""

from __future__ import annotations

import json
import random
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pytest
from reading.recorded_kinds import every_kind, every_way
from reading.traces import SECOND, episode, foreign, part, trace_id, write
from tables.test_figures import of_spans, of_values
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import Scope, SpanRecord
from mttp.pages import summary as report
from mttp.reading.engines import DatasetAddress, Selection, writing
from mttp.reading.engines import dataset as engine_dataset
from mttp.reading.engines.duckdb import _DuckDBEngine
from mttp.reading.engines.selecting import traces_of, translated
from mttp.reading.engines.writing import dataset_writer
from mttp.semconv import attributes as a

pytest.importorskip("duckdb")
pytest.importorskip("fsspec")

DATA = Path(__file__).parents[1] / "data"


def dataset_of(*writes: list[SpanRecord], place: str = "dataset") -> str:
    """A dataset to which spans were added one write after the other."""
    for spans in writes:
        dataset_writer(place).write(spans)
    return place


def written_again(place: str, target: str) -> str:
    """Another dataset with the spans of one, by the command that messages name."""
    done = run("convert", place, target, "--partition")
    assert 0 == done.exit_code, done.output
    return target


def parts(dataset: str) -> int:
    """The number of files of a dataset in a folder."""
    return len([*Path(dataset).rglob("*.parquet")])


def document(source: Any) -> dict[str, Any]:
    """The summary of a source, without the source's name, and with numbers to 9 digits."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.9g}")
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items()}
        return [rounded(item) for item in value] if isinstance(value, list) else value

    summary = mttp.summarize(source)
    facts = {key: item for key, item in report.document(summary).items() if key != "problems"}
    return rounded(facts) | {
        "problems": sorted(problem.kind for problem in summary.problems),
        "returns": repr(summary.returns.tolist()),
        "sources": [],
        "stores": [],
    }


def assert_equal(lines: Any, dataset: str) -> None:
    """Everything that is read of the dataset is what is read of the lines."""
    assert of_values(lines) == of_spans(dataset)
    assert document(lines) == document(dataset)
    expected, found = mttp.read(lines), mttp.read(dataset)
    for name in ("episodes", "runs", "groups", "updates", "annotations", "evals", "duplicates"):
        assert getattr(expected, name) == getattr(found, name), name
    kinds = [sorted((one.kind, one.message) for one in each.problems) for each in (expected, found)]
    assert kinds[0] == kinds[1]


@pytest.fixture
def of_everything(session: mttp.Session) -> list[SpanRecord]:
    """Episodes that were recorded in every way."""
    return every_way(session)


@pytest.mark.parametrize("order", ["written", "shuffled"])
@pytest.mark.parametrize("writes", [1, 3])
def test_a_dataset_reads_as_its_lines(of_everything: list[SpanRecord], order: str, writes: int):
    """
    With repeated spans, late facts and episodes of several processes, however the spans came.
    """
    spans = [*of_everything, *of_everything[::9]]
    if order == "shuffled":
        random.Random(writes).shuffle(spans)
    size = -(-len(spans) // writes)
    dataset = dataset_of(*(spans[at : at + size] for at in range(0, len(spans), size)))

    assert_equal(write("a.jsonl", spans), dataset)
    merged = written_again(dataset, "merged")
    assert (writes > 1) == (parts(merged) < parts(dataset))
    assert_equal("a.jsonl", merged)


def test_a_span_of_every_kind(tmp_path: Path):
    """
    Groups, updates, evaluations, packed steps and documents, over parts of a few spans.
    """
    spans = every_kind(tmp_path)

    assert_equal(write("a.jsonl", spans), dataset_of(spans))


def test_small_parts(of_everything: list[SpanRecord], monkeypatch: pytest.MonkeyPatch):
    """
    An episode in several files, and buffers that are full.
    """
    monkeypatch.setattr(writing, "_PART_ROWS", 7)
    monkeypatch.setattr(writing, "_BUFFERED_BYTES", 2_000)
    monkeypatch.setattr(writing, "_GROUP_ROWS", 3)

    assert_equal(write("a.jsonl", of_everything), dataset_of(of_everything))


def test_problems_are_those_of_the_spans():
    """
    Values of a wrong type, unfinished episodes, and spans of other libraries.
    """
    spans = [*episode(0, **{a.EPISODE_RETURN: "much"}), *episode(1)[:-1], foreign(2), *part(3, rewards=[1.0])]
    dataset = dataset_of(spans)

    assert_equal(write("a.jsonl", spans), dataset)
    kinds = sorted(one.kind for one in mttp.summarize(dataset).problems)
    assert ["unfinished_episode", "unfinished_episode", "wrong_type"] == kinds


def test_beside_other_sources():
    """
    An episode that begins in a file and is whole in the dataset counts once.
    """
    begun = write("d.jsonl", episode(1)[:1])
    other = write("e.jsonl", part(0, rewards=[1.0]))
    dataset = dataset_of([*episode(0), *episode(1)])
    lines = write("a.jsonl", [*episode(0), *episode(1)])
    for others in ([begun], [other], [begun, other]):
        assert of_values([*others, lines]) == of_spans([*others, dataset])
        assert document([*others, lines])["duplicates"] == document([*others, dataset])["duplicates"]


def test_names_of_runs_that_paths_can_not_hold():
    """
    Slashes, percent signs and numbers in names, names too long for a folder, and no run at all.
    """
    runs = ["a/b", "50%", "007", "x=y z", "ü", "..", "é" * 300, "/" * 99, "__HIVE_DEFAULT_PARTITION__", ""]
    spans = [
        replace(span, attributes=span.attributes | {a.RUN_ID: run}, scope=Scope(name="mttp"))
        for number, run in enumerate(runs)
        for span in episode(number)
    ]
    dataset = dataset_of(spans)

    assert sorted(runs) == sorted({one["run"] for one in of_spans(dataset)})
    for number, run in enumerate(runs[:-1]):
        (found,) = mttp.read(f"file://{Path(dataset).absolute()}?run={quoted(run)}")
        assert (run, spans[3 * number].trace_id) == (found.run_id, found.trace_id)
    assert document(dataset)["runs"] == document(written_again(dataset, "again"))["runs"]


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def test_spans_without_run_and_time():
    """
    As damaged programs write them; another dataset has them, too.
    """
    spans = [
        replace(span, start_time=0, end_time=0, scope=Scope(name="x")) for span in [foreign(1), foreign(2)]
    ]
    dataset = dataset_of(spans[:1], spans[1:])

    assert ["GET", "GET"] == [span.name for span in mttp.scan(dataset)]
    assert 2 == len(list(mttp.scan(written_again(dataset, "again"))))


# Selections.


def record_runs() -> None:
    """Two runs of tasks with slices, and an annotation that another run made."""
    for run in ("one", "two"):
        with mttp.configure(transport=f"file://{run}.jsonl", run=run, run_id=run):
            episodes = []
            for number in range(12):
                facts = {"env": f"env-{number % 2}", "task": f"t/{number % 3}"}
                slices = ["even"] if number % 2 == 0 else ["odd", "all"]
                split = "val" if number > 8 else "train"
                with mttp.episode(**facts, split=split, slices=slices) as opened, opened.step() as step:
                    step.tokens([number, 2], prompt_ids=[1])
                    step.reward(number / 2)
                episodes.append(opened)
            mttp.group("g", episodes[:4], rewards=[0.0, 1.0, 2.0, 3.0])
            mttp.update(0, episodes=episodes[:4], loss=0.5)
            mttp.score(episodes[0], 0.5, grader="late")
    target = mttp.read("one.jsonl").episodes[3]
    with mttp.configure(transport="file://three.jsonl", run="three", run_id="three"):
        mttp.annotate(target, "outcome", "success")


LINES = ["one.jsonl", "two.jsonl", "three.jsonl"]


@pytest.fixture
def address() -> str:
    """The address of a dataset of these runs, as options follow it."""
    record_runs()
    dataset = dataset_of(*(list(mttp.scan(path, arrays=True)) for path in LINES))
    return f"file://{Path(dataset).absolute()}"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("run=one", lambda one: one.run_id == "one"),
        ("run=one&run=two", lambda one: True),
        ("task=t/1&task=t/2", lambda one: one.task in ("t/1", "t/2")),
        (
            "run=two&env=env-1&split=val",
            lambda one: (one.run_id, one.env, one.split) == ("two", "env-1", "val"),
        ),
        ("slice=all&slice=nothing", lambda one: "all" in one.slices),
    ],
)
def test_a_selection_is_that_of_filter(address: str, query: str, wanted: Any):
    """
    With the later facts of other runs about its episodes, and without the others.
    """
    expected, found = mttp.read(LINES).filter(wanted), mttp.read(f"{address}?{query}")

    assert 0 < len(expected)
    for name in ("episodes", "groups", "updates", "annotations"):
        assert getattr(expected, name) == getattr(found, name), name
    assert {run.id for run in expected.runs} <= {run.id for run in found.runs}
    summary = mttp.summarize(f"{address}?{query}")
    assert (len(expected), len(expected.groups)) == (len(summary), summary.groups)
    assert (len(expected.updates), len(expected.annotations)) == (summary.updates, summary.annotations)
    assert expected.summary().outcomes.counts() == summary.outcomes.counts()


def test_a_time_is_selected(address: str):
    """
    From a time on, and before one.
    """
    starts = [one.start_time or 0 for one in mttp.read(LINES)]
    middle = sorted(starts)[12] // 1000 * 1000
    time = f"{np.datetime64(middle // 1000, 'us')}"
    counts = [len(mttp.summarize(f"{address}?{query}")) for query in (f"since={time}", f"until={time}Z")]

    assert [sum(start >= middle for start in starts), sum(start < middle for start in starts)] == counts


@pytest.mark.parametrize(
    "given",
    ["2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00Z", "2026-01-31 10:00", "2026-01-31T10:00:00.000000"],
)
def test_times_of_addresses(given: str):
    """
    With an offset or in UTC.
    """
    selection = DatasetAddress.parse(f"s3://bucket/runs?since={given}").selection

    assert 1_769_853_600 * 10**9 == selection.since


@pytest.mark.parametrize(
    ("address", "module", "extra"),
    [("dataset", "fsspec", "dataset"), ("s3://b/runs", "s3fs", "s3")],
)
def test_a_missing_library_is_named(address: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch):
    """
    With the extra that installs it.
    """
    dataset_of(episode(0))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"'mttp\[{extra}\]'"):
        mttp.summarize(address)


def test_one_episode_is_read_by_its_trace(address: str):
    """
    With its steps and tokens.
    """
    wanted = mttp.read("two.jsonl").episodes[5]
    (found,) = mttp.read(f"{address}?trace={wanted.trace_id}")

    assert wanted == found
    assert [5, 2] == found.steps[0].tokens.ids.tolist()  # type: ignore[union-attr]  # it has tokens


@pytest.mark.parametrize("option", ["task=x' OR 1=1 --", "env=\\' OR 1=1 --", 'run=" OR 1=1 --'])
def test_options_are_values_and_no_sql(address: str, option: str):
    """
    Nothing matches.
    """
    with pytest.raises(ReadError, match="nothing was found"):
        mttp.read(f"{address}?{option}")


@pytest.mark.parametrize(
    ("dialect", "parts"),
    [
        ("clickhouse", ['arrayJoin("mttp.group.episodes")', 'has("mttp.task.slices"', "'it''s \\\\'"]),
        ("spark", ["EXPLODE(`mttp.group.episodes`)", "ARRAY_CONTAINS(`mttp.task.slices`", "'it\\'s \\\\'"]),
    ],
)
def test_a_selection_in_the_sql_of_other_engines(dialect: str, parts: list[str]):
    """
    Lists, names and quoted values are written as the engine reads them.
    """
    pytest.importorskip("sqlglot")
    query = translated(traces_of(Selection(task=("it's \\",), slice=("even",))), dialect)

    assert [] == [part for part in parts if part not in query]


def test_many_episodes_are_joined(address: str, monkeypatch: pytest.MonkeyPatch):
    """
    And not listed one by one in a statement.
    """
    expected = mttp.read(f"{address}?run=one&env=env-1")
    monkeypatch.setattr(engine_dataset, "_FEW", 2)

    assert expected.episodes == mttp.read(f"{address}?run=one&env=env-1").episodes


def test_unfinished_episodes_are_selected_by_what_is_known():
    """
    From the start marker or the first span.
    """
    spans = [*episode(0, marked=True)[:2], *episode(1)]
    dataset = f"file://{Path(dataset_of(spans)).absolute()}"

    counts = [len(mttp.read(dataset + query)) for query in ("", "?env=CartPole-v1", f"?trace={trace_id(0)}")]
    assert [2, 2, 1] == counts
    with pytest.raises(ReadError, match=r"env=nothing: nothing was found; .*options"):
        mttp.read(f"{dataset}?env=nothing")


def test_what_other_processes_recorded_is_selected_without_its_episode():
    """
    The episode's own process may have crashed, or its file may not be written yet.
    """
    spans = [*part(0, rewards=[1.0]), *episode(1)]
    dataset = f"file://{Path(dataset_of(spans)).absolute()}"

    for query in ("run=run-1", f"trace={trace_id(0)}", "until=2025-06-15T15:06:41"):
        assert trace_id(0) in [one.trace_id for one in mttp.read(f"{dataset}?{query}")], query
        assert trace_id(0) in [one["trace_id"] for one in of_spans(f"{dataset}?{query}")], query


@pytest.mark.parametrize("is_ended", [True, False])
def test_an_episode_is_selected_by_its_own_start_and_not_by_that_of_a_part(is_ended: bool):
    """
    A part, or a step, may have been written before the episode had ended.
    """
    own = episode(0, marked=True) if is_ended else episode(0, marked=True)[:2]
    spans = [*part(0, rewards=[1.0]), own[1]]
    later = [replace(one, start_time=one.start_time + 60 * SECOND) for one in spans]
    dataset = f"file://{Path(dataset_of(later, own, episode(90))).absolute()}"

    assert [trace_id(90)] == [one.trace_id for one in mttp.read(f"{dataset}?since=2025-06-15T15:07:00")]
    assert 2 == len(mttp.read(f"{dataset}?since=2025-06-15T15:06:40"))


def test_a_selection_has_no_problems_of_what_it_leaves_out():
    """
    Other members of groups, and the other episode of a preference, which both episodes have.
    """
    with mttp.configure(transport="file://a.jsonl", run_id="one"):
        played = []
        for task in ("x", "y"):
            with mttp.episode(env="toy", task=task) as opened:
                opened.reward(1.0)
            played.append(opened)
        mttp.group("g", played, rewards=[0.0, 1.0])
        mttp.prefer(*played)
    recording = mttp.read("a.jsonl")
    dataset = f"file://{Path(dataset_of(list(mttp.scan('a.jsonl', arrays=True)))).absolute()}"

    for task in ("x", "y"):
        expected, found = recording.filter(task=task), mttp.read(f"{dataset}?task={task}", strict=True)
        assert [] == found.problems
        assert [1, 1] == [len(found.groups), len(found.annotations)]
        assert expected.annotations == found.annotations
        assert expected.episodes[0].annotations == found.episodes[0].annotations


@pytest.mark.parametrize("place", ["run=other/data", "a[1]*"])
def test_a_killed_conversion_is_shown_and_repaired(place: str, monkeypatch: pytest.MonkeyPatch):
    """
    What it wrote is read, without a file that is not whole; in folders named like partitions and globs.
    """
    with monkeypatch.context() as killed:
        killed.setattr(writing.DatasetWriter, "_end", lambda _: None)
        dataset_of(episode(0), place=place)
    folder = next(Path(place, "spans").glob("run=run-1/*"))
    (folder / "_x.parquet.partial").write_bytes(b"PAR1")

    for reading in (mttp.read, mttp.summarize):
        (problem,) = reading(place).problems
        assert "unfinished_conversion" == problem.kind
        assert f"`mttp convert {quote(place)} NEW --partition`" in problem.message
    assert 1 == run("check", place).exit_code
    again = written_again(place, f"again/{place}")
    assert_equal(write("a.jsonl", episode(0)), again)
    assert 1 == len(mttp.read(f"file://{Path(again).absolute()}?run=run-1"))


def test_a_dataset_of_an_earlier_version_is_read_and_added_to(tmp_path: Path):
    """
    It has tables of digests beside its spans, which are ignored.
    """
    with tarfile.open(DATA / "dataset_with_digests.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    dataset = f"file://{tmp_path / 'dataset'}"
    lines = DATA / "released" / "0.1.0" / "recording.jsonl"

    assert_equal(lines, dataset)
    run_id = mttp.read(lines).runs[0].id
    for query in (f"run={run_id}", "env=toy", "task=train/18"):
        expected = mttp.read(lines).filter(**dict([query.split("=")]))
        found = mttp.read(f"{dataset}?{query}")
        assert 0 < len(expected)
        assert (expected.episodes, expected.groups) == (found.episodes, found.groups)
        assert expected.annotations == found.annotations
    dataset_of(episode(0), place=dataset)
    assert_equal([lines, write("a.jsonl", episode(0))], dataset)


@pytest.mark.parametrize(
    ("content", "reason"), [('{"version": 2}', "version 2, .*update mttp"), ("x", "is damaged: b'x'")]
)
def test_a_dataset_of_another_version_is_refused(content: str, reason: str):
    """
    By reading and writing.
    """
    dataset = dataset_of(episode(0))
    Path(dataset, "_mttp.json").write_text(content)
    for use in (mttp.summarize, mttp.read, dataset_writer):
        with pytest.raises(ReadError, match=f"^dataset: .*{reason}"):
            use(dataset)


# Studies and commands.


RULES = {"aggregate": [{"metric": "return", "min": 0.1}, {"metric": "return", "gain": 0.0}]}


def sides(address: str | None) -> tuple[Any, Any]:
    """Both runs, by lines or from the dataset."""
    if address is None:
        Path("both.jsonl").write_bytes(Path("one.jsonl").read_bytes() + Path("three.jsonl").read_bytes())
        return "both.jsonl", "two.jsonl"
    return f"{address}?run=one", f"{address}?run=two"


def unnamed(found: Any) -> dict[str, Any]:
    """A result as data without the names of its sources."""
    plain = json.loads(json.dumps(found.to_dict()))
    return {
        name: value
        for name, value in plain.items()
        if name not in ("base", "candidate", "baseline", "source")
    }


def test_studies_are_equal(address: str):
    """
    Comparisons, gates and diagnoses of a selection are those of the lines.
    """
    lines, chosen = sides(None), sides(address)
    compared = [unnamed(mttp.compare(*both, by="split")) for both in (lines, chosen)]
    gated = [unnamed(mttp.gate(both[1], baseline=both[0], rules=RULES)) for both in (lines, chosen)]
    diagnosed = [unnamed(mttp.diagnose(source)) for source in (lines[1], chosen[1])]

    assert compared[0] == compared[1]
    assert gated[0] == gated[1]
    assert diagnosed[0] == diagnosed[1]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments], prog_name="mttp")


def test_commands():
    """
    `convert --partition` adds, and the others read what is selected.
    """
    record_runs()
    for path in LINES:
        done = run("convert", path, "runs", "--partition")
        assert 0 == done.exit_code, done.output
    assert re.fullmatch(r"added \d+ spans? of 0 episodes to runs \(\d files?\)\n", done.output)
    shown = [json.loads(run("summary", *sources, "--json").stdout) for sources in (LINES, ["runs"])]
    assert ["runs"] == shown[1]["sources"]
    assert shown[0] | {"sources": []} == shown[1] | {"sources": []}
    back = run("convert", "runs", "back.jsonl")
    assert 0 == back.exit_code
    assert [one.id for one in mttp.read(LINES)] == [one.id for one in mttp.read("back.jsonl")]
    assert 1 == run("compare", "two.jsonl", f"file://{Path('runs').absolute()}?run=one", "--strict").exit_code


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["convert", "a.jsonl", "s3://bucket/runs"], "is the place of a dataset: give --partition"),
        (["convert", "a.jsonl", "other", "--partition"], "other is not empty and not a dataset of mttp"),
        (["convert", "a.jsonl", "out", "--partition", "--overwrite"], "--partition can't be combined with"),
        (["convert", "a.jsonl", "file:///out?run=x", "--partition"], "leave out the options that select"),
        (["convert", "a.jsonl", "spark://host:7077?path=/x", "--partition"], "files can't be written there"),
        (["summary", "s3://key:secret@bucket/runs"], "s3://…: credentials are not allowed in the address"),
        (["summary", "s3://b/r?endpoint=http://key:secret@host"], "option endpoint: credentials are not"),
        (["summary", "spark://h:7077?path=s3a://key:secret@b/r"], "option path: credentials are not"),
        (
            ["summary", "s3://bucket/runs?who=1"],
            "s3://bucket/runs: unknown option 'who'; known are run, env,",
        ),
        (["summary", "s3://bucket/runs?since=noon"], "option since='noon': expected a date or time"),
        (["summary", "s3://b/runs?until=2026-01-01&until=2026-02-01"], "option until is given 2 times"),
        (["summary", "s3://bucket/runs?timeout=0"], "option timeout='0': expected a number above zero"),
        (["summary", "s3://"], "nothing follows s3://; write s3://BUCKET/PATH"),
    ],
)
def test_refusals(arguments: list[str], reason: str):
    """
    Each names the place and what to do; secrets are not repeated.
    """
    write("a.jsonl", episode(0))
    Path("other").mkdir()
    Path("other", "file.txt").write_text("")
    done = run(*arguments)

    assert 2 == done.exit_code
    assert reason in " ".join(done.output.replace("│", "").split())
    assert "secret" not in done.output.replace("secret keys", "")


def test_a_directory_is_read_without_its_datasets():
    """
    Their parts are no recordings, and often hold the same spans.
    """
    write("a.jsonl", episode(0))
    dataset_of(episode(0))
    recording = mttp.read(".")

    assert (1, 0, []) == (len(recording), recording.duplicates, recording.problems)


@pytest.mark.parametrize("reading", [mttp.read, mttp.summarize])
@pytest.mark.parametrize("size", [0, 3, 2000, -50])
def test_damaged_files(reading: Callable[[str], object], size: int):
    """
    The error names the dataset.
    """
    dataset = dataset_of(episode(0))
    (path,) = Path(dataset, "spans", "run=run-1").rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(ReadError, match=rf"^dataset: .*{path.name}"):
        reading(dataset)


def test_a_dataset_without_files_has_nothing():
    """
    As after a first conversion that was killed before it wrote one.
    """
    path, *_ = Path(dataset_of(episode(0))).rglob("*.parquet")
    path.unlink()
    with pytest.raises(ReadError, match=r"^dataset: nothing was found"):
        mttp.summarize("dataset")


def test_a_write_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch):
    """
    What was written before the failure is removed.
    """
    monkeypatch.setattr(writing, "_PART_ROWS", 2)

    def failing() -> Iterator[SpanRecord]:
        yield from episode(0)
        raise OSError("gone")

    dataset = dataset_of(episode(1))
    before = sorted(Path(dataset).rglob("*.parquet"))
    with pytest.raises(OSError, match="gone"):
        dataset_writer(dataset).write(failing())

    assert before == sorted(Path(dataset).rglob("*.parquet"))
    with pytest.raises(OSError, match="gone"):
        dataset_writer("other").write(failing())
    assert 1 == len(mttp.read(dataset_of(episode(2), place="other")))


def test_a_dataset_s_columns_can_be_queried():
    """
    By anything that reads Parquet.
    """
    import duckdb

    dataset_of([*episode(0, components={"c": 0.5}), *episode(1, components={"c": 1.0})])
    found = duckdb.sql(
        """
        SELECT "mttp.env.id", count("mttp.episode.return") FROM 'dataset/spans/*/*/*.parquet'
        WHERE run = 'run-1' AND name LIKE 'episode %' GROUP BY ALL
        """
    ).fetchall()

    assert [("CartPole-v1", 2)] == found


def test_a_summary_makes_no_objects_of_most_spans(address: str, monkeypatch: pytest.MonkeyPatch):
    """
    Their columns become rows of the table of spans at once.
    """
    sizes: list[int] = []
    original = engine_dataset.PartitionedDataset.records_of

    def noted(dataset: Any, batch: Any, *, arrays: bool) -> Iterator[SpanRecord]:
        sizes.append(len(batch))
        return original(dataset, batch, arrays=arrays)

    monkeypatch.setattr(engine_dataset.PartitionedDataset, "records_of", noted)

    assert 24 == len(mttp.summarize(address))
    assert 2 * sum(sizes) < len([*mttp.scan(LINES)])


def test_files_of_one_run_are_read_without_those_of_others(address: str, monkeypatch: pytest.MonkeyPatch):
    """
    Except for the files with spans that may name its episodes.
    """
    paths: set[str] = set()
    original = _DuckDBEngine._paths

    def noted(*args: Any) -> list[str]:
        found = original(*args)
        paths.update(found)
        return found

    monkeypatch.setattr(_DuckDBEngine, "_paths", noted)
    expected = mttp.read(LINES).filter(run="two")

    assert expected.episodes == mttp.read(f"{address}?run=two").episodes
    assert {"run=two"} == {path.split("/")[-3] for path in paths if "-about-" not in path}
    assert {"run=one", "run=two", "run=three"} == {path.split("/")[-3] for path in paths}

"""Recordings of other versions of the convention."""

from dataclasses import replace

import pytest
from reading.traces import SCOPE, episode, run, write
from semconv.invented import EARLIER, FIRST, SECOND, forget, install
from specimen import EVERYTHING
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.codec.translating import Translator
from mttp.model.spans import KEPT_LISTS, SpanEvent
from mttp.reading import parquet
from mttp.reading.scanning import Scan
from mttp.semconv import SCHEMA_URL, VERSION
from mttp.semconv import attributes as a
from mttp.testing import assert_same


@pytest.fixture
def earlier(monkeypatch):
    """Two versions before the current one, whose lists are kept where arrays are not read."""
    install(monkeypatch, EARLIER)
    for module in ("mttp.otlp.json_decode", "mttp.reading.parquet", "mttp.model.spans"):
        monkeypatch.setattr(f"{module}.KEPT_LISTS", KEPT_LISTS | {"mttp.problems"})
    yield
    forget()


def spans():
    """The spans of an episode that uses everything, with a fault, and of a run."""
    with mttp.configure("file://now.jsonl", run="r", content=True) as session:
        session.record(replace(EVERYTHING, faults=("reward_invalid: nan",)))
    found = list(Scan("now.jsonl", arrays=True, as_written=True))
    event = SpanEvent("exception", 1, {a.EXCEPTION_MESSAGE: "no"})
    return [replace(span, events=(event,)) if span.name == "step" else span for span in found]


def of_earlier(version, records):
    """The spans as that version wrote them."""
    back = Translator(version)
    return [back(record) for record in records]


def test_old_names_are_in_the_file(earlier):
    """
    What the other tests read has the names of its version and nothing of the current one.
    """
    found = of_earlier(FIRST, spans())
    text = write("old.jsonl", found).read_text()

    assert all(name in text for name in ("mttp.verdict", "mttp.job.id", "mttp.problems", "mttp.user.teacher"))
    assert not any(f'"{name}"' in text for name in (a.EPISODE_OUTCOME, a.RUN_ID, a.FAULTS, SCHEMA_URL))
    assert {f"https://mttp.dev/schemas/{FIRST}"} == {span.scope.schema_url for span in found}


@pytest.mark.parametrize("version", [FIRST, SECOND])
@pytest.mark.parametrize("name", ["old.jsonl", "old.parquet"])
def test_an_older_recording_is_read_under_current_names(earlier, version, name):
    """
    Of a file of an earlier version the same episode is read, and nothing is wrong with it.
    """
    now = spans()
    expected = mttp.read(write("now.jsonl", now))
    if name.endswith(".parquet"):
        parquet.write(name, of_earlier(version, now))
    else:
        write(name, of_earlier(version, now))
    found = mttp.read(name)

    assert [] == found.problems
    assert_same(expected.episodes, found.episodes)
    assert expected.runs[0].id == found.runs[0].id


@pytest.mark.parametrize("name", ["old.jsonl", "old.parquet"])
def test_a_summary_of_an_older_recording_is_the_same(earlier, name):
    """
    Where arrays are not read, the lists that a summary needs are found under their earlier names.
    """
    now = spans()
    expected = mttp.summarize(write("now.jsonl", now))
    if name.endswith(".parquet"):
        parquet.write(name, of_earlier(FIRST, now))
    else:
        write(name, of_earlier(FIRST, now))
    found = mttp.summarize(name)

    assert expected.faults == found.faults
    assert sum(found.faults.values()) > 1
    assert (list(expected.outcomes), expected.lengths) == (list(found.outcomes), found.lengths)
    assert [] == found.problems


def test_a_check_of_an_older_recording_uses_current_names(earlier):
    """
    Spans of an earlier version are as good as they were; the finding says which version they follow.
    """
    now = [*run(), *episode(0)]
    expected = {one.id for one in mttp.check(write("now.jsonl", now)).all}
    found = mttp.check(write("old.jsonl", of_earlier(SECOND, now)))

    assert {"schema_url_mismatch"} == {one.id for one in found.all} - expected


def test_convert_writes_an_earlier_version(earlier, monkeypatch):
    """
    `--to-version` applies renames backwards; what the version lacks is kept, and the command says so.
    """
    install(monkeypatch, EARLIER, {VERSION: [a.STEP_REWARD, "mttp.never.used"]})
    now = [*run(), *episode(0)]
    steps = sum(a.STEP_REWARD in span.attributes for span in now)
    write("now.jsonl", now)
    result = CliRunner().invoke(app, ["convert", "now.jsonl", "old.jsonl", "--to-version", FIRST])
    old = list(Scan("old.jsonl", arrays=True, as_written=True))
    back = CliRunner().invoke(app, ["convert", "old.jsonl", "back.jsonl", "--to-version", VERSION])

    assert (0, 0) == (result.exit_code, back.exit_code)
    assert steps > 0
    assert f"version {FIRST} has no {a.STEP_REWARD}: {steps} spans kept it\n" in result.stdout
    assert "mttp.never.used" not in result.stdout
    assert of_earlier(FIRST, now) == old
    assert now == list(Scan("back.jsonl", arrays=True, as_written=True))


def test_convert_to_a_version_that_never_was(tmp_path):
    """
    The error names the versions that are known, and no file is left behind.
    """
    write("now.jsonl", episode(0))
    result = CliRunner().invoke(app, ["convert", "now.jsonl", "old.jsonl", "--to-version", "0.0.7"])

    assert result.exit_code == 2
    assert f"version '0.0.7' of the convention is not known; give one of {VERSION}" in result.stderr
    assert ["now.jsonl"] == [path.name for path in tmp_path.iterdir()]


def test_a_version_is_for_recordings_only():
    """
    Data sets have no names of the convention to choose.
    """
    write("now.jsonl", episode(0))
    result = CliRunner().invoke(
        app, ["convert", "now.jsonl", "old.jsonl", "--to-version", VERSION, "--as", "sft"]
    )

    assert result.exit_code == 2
    assert "--to-version can't be combined" in result.stderr


def test_a_newer_recording_is_read_as_far_as_it_is_known():
    """
    Known attributes are read, others are kept in `extra`, and the problem names both versions.
    """
    scope = replace(SCOPE, schema_url=SCHEMA_URL.replace(VERSION, "0.9.0"))
    newer = [
        replace(span, scope=scope, attributes={**span.attributes, "mttp.later.fact": [1, 2], "mttp.new": "x"})
        for span in episode(0, return_=0.5)
    ]
    found = mttp.read(write("new.jsonl", newer))

    assert ["newer_convention"] == [problem.kind for problem in found.problems]
    assert "version '0.9.0' of the convention, mttp here knows" in found.problems[0].message
    assert (0.5, "x") == (found.episodes[0].return_, found.episodes[0].extra["mttp.new"])


def test_columns_of_a_newer_parquet_file_are_attributes(monkeypatch):
    """
    A later version has columns that are not known here: scalars, lists and maps are read, no others.
    """
    import pyarrow
    from pyarrow import parquet as files

    parquet.write("now.parquet", episode(0))
    table = files.read_table("now.parquet")
    rows = len(table)
    later = {
        "mttp.later.fact": pyarrow.array(["x"] * rows),
        "mttp.later.items": pyarrow.array([[1, 2]] * rows),
        "mttp.later.values": pyarrow.array(
            [[("a", 1.5)]] * rows, pyarrow.map_(pyarrow.string(), pyarrow.float64())
        ),
        "mttp.later.odd": pyarrow.array([{"a": 1}] * rows),
        "no_attribute": pyarrow.array([1] * rows),
    }
    for name, values in later.items():
        table = table.append_column(name, values)
    files.write_table(table, "new.parquet")
    found = list(Scan("new.parquet", arrays=True))

    expected = {"mttp.later.fact": "x", "mttp.later.items": [1, 2], "mttp.later.values.a": 1.5}
    assert [{**span.attributes, **expected} for span in episode(0)] == [
        dict(span.attributes) for span in found
    ]

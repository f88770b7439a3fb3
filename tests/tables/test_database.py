"""Queries over the tables of a recording: what they may do, and what they read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp.errors import MissingExtra, ReadError
from mttp.tables import TABLES, Database, statement


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A file with two episodes of two steps, and an update."""
    path = tmp_path / "run.jsonl"
    with mttp.configure(f"file://{path}"):
        for task in ("one", "two"):
            with mttp.episode(env="env", task=task) as episode:
                for reward in (1.0, 0.5):
                    with episode.step() as step:
                        step.action("left")
                        step.reward(reward)
        mttp.update(loss=0.25, grad_norm=2.0)
    return path


def rows(source: Any, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query as tuples."""
    with Database(source) as database:
        return [tuple(row.values()) for row in database.sql(query).rows()]


def test_a_query_reads_the_spans_and_their_attributes(recording: Path) -> None:
    query = """select "mttp.task.id", "mttp.env.id" from spans where type = 'episode' order by 1"""

    assert rows(recording, query) == [("one", "env"), ("two", "env")]


def test_a_table_is_computed_from_the_spans(recording: Path) -> None:
    assert rows(recording, "select loss, grad_norm from updates") == [(0.25, 2.0)]


def test_a_later_query_may_ask_for_other_attributes(recording: Path) -> None:
    with Database(recording) as database:
        steps = database.sql("select count(*) as steps from spans where type = 'step'").rows()
        rewards = database.sql("""select sum("mttp.step.reward") as total from spans""").rows()

    assert (steps, rewards) == ([{"steps": 4}], [{"total": 3.0}])


def test_an_unknown_attribute_spoils_no_later_query(recording: Path) -> None:
    with Database(recording) as database:
        with pytest.raises(ReadError, match="no attribute"):
            database.sql('select "mttp.no.attribute" from spans')
        losses = database.sql("select loss from updates").rows()

    assert losses == [{"loss": 0.25}]


def test_repeated_spans_are_one_row(recording: Path) -> None:
    recording.write_bytes(recording.read_bytes() * 2)

    assert rows(recording, "select count(*) from spans where type = 'episode'") == [(2,)]


def test_a_result_is_an_arrow_table_and_a_data_frame(recording: Path) -> None:
    with Database(recording) as database:
        table = database.sql("select type, count(*) as spans from spans group by type order by type")

    assert table.arrow().column_names == table.columns == ["type", "spans"]
    assert list(table.df()["spans"]) == [2, 1, 4, 1]
    assert len(table) == 4
    assert table.rows(1) == [{"type": "episode", "spans": 2}]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("drop table spans", "DROP; write one select"),
        ("select 1; select 2", "SELECT, SELECT; write one select"),
        ("", "nothing; write one select"),
        ("create table t as select 1", "CREATE"),
        ("copy spans to 'x.csv'", "COPY"),
        ("attach 'x.db'", "ATTACH"),
        ("set enable_external_access = true", "SET"),
        ("install httpfs", "LOAD"),
        ("select * from read_csv('/etc/passwd')", "disabled"),
        ("select * from '/etc/passwd'", "does not exist"),
        ("select * from glob('/*')", "disabled"),
        ("select getenv('HOME')", "getenv"),
        ("select * from duckdb_secrets() where recording", "recording"),
        ("select nope from spans", "nope"),
        ("select '", "'"),
        ('select "mttp.no.attribute" from spans', "mttp.no.attribute is no attribute of the convention"),
    ],
)
def test_a_query_that_is_wrong_or_would_write_is_refused(recording: Path, query: str, message: str) -> None:
    before = sorted(recording.parent.iterdir())
    with Database(recording) as database, pytest.raises(ReadError) as caught:
        database.sql(query)

    assert message in str(caught.value)
    assert sorted(recording.parent.iterdir()) == before


def test_python_variables_are_no_tables(recording: Path) -> None:
    import pandas

    frame = pandas.DataFrame({"a": [1]})
    assert len(frame) == 1
    with Database(recording) as database, pytest.raises(ReadError, match="frame"):
        database.sql("select * from frame")


def test_a_source_that_is_no_recording_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"no\.jsonl"):
        Database(tmp_path / "no.jsonl")


def test_a_source_that_could_not_be_read_is_read_again(recording: Path) -> None:
    text = recording.read_bytes()
    with Database(recording) as database:
        database.sql("select count(*) from spans")
        recording.unlink()
        for _ in range(2):  # the second time, too, though the columns are known
            with pytest.raises(ReadError):
                database.sql("""select "mttp.env.id" from spans""")
        recording.write_bytes(text)

        assert len(database.sql("""select "mttp.env.id" from spans where type = 'episode'""")) == 2


def test_a_data_frame_without_its_package_says_what_to_install(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with Database(recording) as database:
        table = database.sql("select 1 as a")

    with pytest.raises(MissingExtra, match="pip install polars"):
        table.pl()
    with pytest.raises(MissingExtra, match="pip install pandas"):
        table.df()


def test_problems_of_the_source_are_listed(recording: Path) -> None:
    recording.write_bytes(recording.read_bytes() + b"broken\n")
    with Database(recording) as database:
        database.sql("select count(*) from spans")

    assert [problem.kind for problem in database.problems] == ["broken_line"]


def test_each_table_has_a_statement_that_says_what_a_row_is() -> None:
    for table in TABLES:
        assert statement(table).startswith("-- "), table


def test_a_session_and_parquet_have_the_same_tables(recording: Path, tmp_path: Path) -> None:
    from mttp.reading import parquet, scan

    copy = tmp_path / "run.parquet"
    parquet.write(copy, scan(recording, arrays=True))
    query = """select trace_id, span_id, "mttp.env.id", "mttp.step.reward" from spans order by all"""

    assert rows(copy, query) == rows(recording, query)
    with mttp.configure("memory://") as session, mttp.episode(env="e"):
        pass
    assert rows(session, """select "mttp.env.id" from spans where type = 'episode'""") == [("e",)]

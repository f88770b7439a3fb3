"""`mttp sql`: queries, and how their results are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.tables import TABLES


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A recording of 60 episodes."""
    file = tmp_path / "run.jsonl"
    with mttp.configure(f"file://{file}"):
        for number in range(60):
            with mttp.episode(env="env", task=f"t{number % 2}") as episode:
                episode.reward(float(number), components={"part": 1.5})
    return str(file)


def sql(*arguments: str) -> Any:
    """Run the command."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["sql", *arguments])


def test_a_result_is_a_table(path: str) -> None:
    done = sql(path, "select task, count(*) as n, avg(reward) as mean from episodes group by 1 order by 1")

    assert [line.split() for line in done.stdout.splitlines()] == [
        ["task", "n", "mean"],
        ["t0", "30", "29"],
        ["t1", "30", "30"],
    ]


def test_a_long_result_says_how_many_rows_there_are(path: str) -> None:
    done = sql(path, "episodes")

    assert "50 of 60 rows; --limit 0 prints all" in done.stdout
    assert len(sql(path, "select task from episodes", "--limit", "0").stdout.splitlines()) == 61


def test_a_result_with_too_many_columns_for_the_terminal_is_a_record_a_row(path: str) -> None:
    lines = sql(path, "select * from episodes order by reward limit 2").stdout.splitlines()

    assert [line for line in lines if line.startswith("row")] == ["row 1", "row 2"]
    assert ["task", "t1"] in [line.split() for line in lines]
    assert not any(line.split()[:1] == ["prompt"] for line in lines)
    assert lines[-1].endswith("columns; those without a value are left out of a row")
    assert sql(path, "select * from episodes where false").stdout.startswith(
        "no rows; the columns are trace_id"
    )


def test_columns_of_one_name_are_told_apart(path: str) -> None:
    document = json.loads(sql(path, "select 1 as x, 2 as x, 3 as x_1", "--json").stdout)

    assert document["rows"] == [{"x": 1, "x_1": 2, "x_1_1": 3}]


def test_documents_have_all_rows(path: str) -> None:
    document = json.loads(sql(path, "select reward, components from episodes order by 1", "--json").stdout)

    assert document["columns"] == ["reward", "components"]
    assert len(document["rows"]) == 60
    assert document["rows"][1] == {"reward": 1.0, "components": {"part": 1.5}}
    assert document["problems"] == []
    assert sql(path, "select task from episodes", "--csv").stdout.splitlines()[:2] == ["task", "t0"]


def test_each_table_prints(path: str) -> None:
    for table in (*TABLES, "spans"):
        done = sql(path, table, "--json")

        assert done.exit_code == 0, (table, done.output)
        assert json.loads(done.stdout)["columns"]


def test_the_source_of_a_table_is_sql_that_runs(path: str) -> None:
    source = sql("--source", "updates").stdout

    assert "SELECT" in source
    assert sql("--", path, source).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["episodes"], "is the only argument"),
        (["--source", "nope"], "there is no table 'nope'"),
        (["no.jsonl", "episodes"], "no.jsonl"),
        (["PATH", "drop table spans"], "write one select"),
        (["PATH", "select nope from episodes"], "nope"),
        (["PATH", "select 1 from nope"], "there is no table nope; the tables are episodes"),
    ],
)
def test_wrong_usage_exits_with_2(path: str, arguments: list[str], message: str) -> None:
    done = sql(*(path if argument == "PATH" else argument for argument in arguments))

    assert done.exit_code == 2
    assert message in done.output + str(done.exception)


def test_strict_fails_on_problems(path: str) -> None:
    Path(path).write_bytes(Path(path).read_bytes() + b"broken\n")

    assert sql(path, "select 1 as a from episodes").exit_code == 0
    assert sql(path, "select 1 as a from episodes", "--strict").exit_code == 1

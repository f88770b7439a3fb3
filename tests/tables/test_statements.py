"""The statements of the tables: that of episodes with the columns that are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from reading.recorded import record_everything, record_training

from mttp.tables import Database, database
from mttp.tables.statements import TABLES, asked_columns, narrowed, statement

ALL = asked_columns("episodes", ["FROM episodes"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings of every kind of span."""
    folder = tmp_path_factory.mktemp("recordings")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        record_everything()
        record_training()
    return folder


def test_a_column_that_is_asked_for_alone_is_that_of_the_whole_table(folder: Path) -> None:
    with Database(folder) as tables:
        tables.prepare("FROM episodes", content=True)
        whole = tables.rows("FROM episodes")
        for name in sorted(ALL):
            alone = tables.rows(f'SELECT "{name}" FROM ({narrowed("episodes", frozenset({name}))})')
            assert repr(alone) == repr([{name: row[name]} for row in whole])

    assert whole[0].keys() == ALL


def test_joins_and_subqueries_of_other_columns_are_left_out() -> None:
    columns = asked_columns("episodes", ['SELECT env, count(*) AS "number" FROM episodes GROUP BY env'])
    text = narrowed("episodes", columns)

    assert columns == {"env", "trace_id"}
    assert "LEFT JOIN texts" in statement("episodes")
    assert not any(name in text for name in ("texts", "component_scores", "metrics AS", "LEFT JOIN called"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM episodes",
        "SELECT episodes.* FROM episodes",
        "SELECT 1 AS one, * FROM episodes",
        "FROM episodes WHERE counts",
        "SELECT count(*) FROM (FROM episodes)",
    ],
)
def test_a_query_of_all_columns_has_all(query: str) -> None:
    assert asked_columns("episodes", [query]) == ALL


def test_a_later_query_has_the_columns_that_it_names_and_reads_the_source_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {row["trace_id"]: row for row in Database(folder).sql("SELECT * FROM episodes").rows()}
    scans: list[object] = []
    scan = database.Scan
    with Database(folder) as tables:
        monkeypatch.setattr(
            database, "Scan", lambda *args, **kwargs: scans.append(args) or scan(*args, **kwargs)
        )
        tables.prepare("SELECT env FROM episodes")
        lengths = tables.rows("SELECT trace_id, length, components FROM episodes")
        environments = tables.rows("SELECT env FROM episodes")

    assert len(scans) == 1
    assert lengths == [
        {name: row[name] for name in ("trace_id", "length")} | {"components": dict(row["components"])}
        for row in whole.values()
    ]
    assert environments == [{"env": row["env"]} for row in whole.values()]


def test_many_spans_have_the_tables_of_few(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    They are committed bit by bit, and columns without a value are added by a view.
    """

    def tables() -> list[str]:
        with Database(folder) as opened:
            return [repr(opened.sql(f"SELECT * FROM {name}").rows()) for name in ("spans", *TABLES)]

    few = tables()
    monkeypatch.setattr(database, "_FEW_SPANS", 0)
    monkeypatch.setattr(database, "_SPANS_OF_TRANSACTION", 1)

    assert tables() == few


def test_figures_load_no_pandas(folder: Path) -> None:
    """
    It would take longer than the figures of most recordings.
    """
    program = "import sys, mttp; mttp.compare(*sys.argv[1:]); print('pandas' in sys.modules)"
    path = folder / "training.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", program, path, path], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "False"

"""`mttp sql`: a query over the tables of a recording."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from types import NoneType
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.output import Json, Strict, console, finish, print_json, print_page, progress, say
from mttp.pages.blocks import Block, column, fact, facts, note, section, table

if TYPE_CHECKING:
    from mttp.tables import Table

__all__ = ["sql"]

_LIMIT = 50
_LONGEST_CELL = 200


def sql(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH... QUERY",
            help="Recordings: files (their rotated parts are included), globs or directories. "
            "Then one select, or the name of a table.",
        ),
    ],
    *,
    source: Annotated[
        bool,
        typer.Option("--source", help="Print the SQL that computes the table, with notes on its columns."),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=0, help="Number of rows to print; 0 prints all.", show_default="50"
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """
    Query the tables of a recording by SQL.

    The tables are episodes, steps, calls, scorings, components, groups, updates, evaluations, agents and
    annotations, and the spans that they are computed from. DuckDB runs the query, which can neither write nor
    reach files.
    With --json and --csv, --limit defaults to all.

    \b
    Examples:
      mttp sql runs/ episodes
      mttp sql runs/ 'select task, avg(reward) from episodes group by 1'
      mttp sql runs/ "select prompt from episodes where completion like '%sorry%'"
      mttp sql runs/ 'select loss, kl from updates' --csv
      mttp sql --source episodes

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.tables import TABLES, Database, statement

    *paths, query = arguments
    if source:
        if query not in (*TABLES, "spans"):
            raise typer.BadParameter(f"there is no table {query!r}; the tables are {', '.join(TABLES)}")
        say(statement(query))
        return
    if not paths:
        raise typer.BadParameter(f"{query!r:.80} is the only argument; give recordings, then a query")
    if query in (*TABLES, "spans"):
        query = f"select * from {query}"
    with progress(paths) as advance, Database(paths, progress=advance) as database:
        result = database.sql(query)
    if json:
        print_json({"columns": result.columns, "rows": result.rows(limit), "problems": database.problems})
    elif as_csv:
        _print_csv(result, limit)
    else:
        print_page(
            _page(result, _LIMIT if limit is None else limit or None, console().width), everything=True
        )
    finish(database.problems, strict=strict)


def _print_csv(table: Table, limit: int | None) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, table.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows(limit or None))
    say(text.getvalue().removesuffix("\n"))


def _page(result: Table, limit: int | None, width: int) -> Iterator[Block | None]:
    """Yield the rows, as a table if its columns fit beside each other, and how many there are."""
    rows, names = result.rows(limit), result.columns
    if sum(len(name) + 2 for name in names) > width:
        for number, row in enumerate(rows, 1):
            items = [fact(name, _cell(value)) for name, value in row.items() if value is not None]
            yield section(f"row-{number}", f"row {number:,}", [facts(items)])
        yield note(f"{len(names)} columns; those without a value are left out of a row") if rows else None
    else:
        columns = [column(name, name, _kind(row[name] for row in rows)) for name in names]
        yield table("", columns, ([_cell(value) for value in row.values()] for row in rows))
    if not rows:
        yield note(f"no rows; the columns are {', '.join(names)}")
    if len(rows) < len(result):
        yield note(f"{len(rows):,} of {len(result):,} rows; --limit 0 prints all")


def _kind(values: Iterable[object]) -> str:
    return "number" if all(isinstance(value, (int, float, NoneType)) for value in values) else "text"


def _cell(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(item) or ''}" for key, item in value.items())
    text = str(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"

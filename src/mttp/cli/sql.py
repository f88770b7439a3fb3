"""`mttp sql`: a query over the tables of a recording."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mttp.cli.output import Json, Strict, console, finish, print_json, progress, say

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
        table = database.sql(query)
    if json:
        print_json({"columns": table.columns, "rows": table.rows(limit), "problems": database.problems})
    elif as_csv:
        _print_csv(table, limit)
    else:
        _print(table, _LIMIT if limit is None else limit or None)
    finish(database.problems, strict=strict)


def _print_csv(table: Table, limit: int | None) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, table.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows(limit or None))
    say(text.getvalue().removesuffix("\n"))


def _print(table: Table, limit: int | None) -> None:
    out = console()
    rows = table.rows(limit)
    is_wide = sum(len(name) + 2 for name in table.columns) > out.width
    (_print_records if is_wide else _print_listing)(table.columns, rows)
    if len(rows) < len(table):
        out.print(f"{len(rows):,} of {len(table):,} rows; --limit 0 prints all")


def _print_listing(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Column, Table

    is_number = {name: all(isinstance(row[name], (int, float, NoneType)) for row in rows) for name in columns}
    justified = [Column(name, justify="right" if is_number[name] else "left") for name in columns]
    listing = Table(*justified, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        listing.add_row(*map(_cell, row.values()))
    console().print(listing)


def _print_records(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Print each row as lines of column and value, since the columns don't fit beside each other."""
    from rich.table import Table

    out = console()
    for number, row in enumerate(rows, 1):
        out.print(f"row {number:,}", style="bold")
        record = Table.grid(padding=(0, 2))
        for name, value in row.items():
            if value is not None:
                record.add_row(f"  {name}", _cell(value))
        out.print(record)
    if rows:
        out.print(f"{len(columns)} columns; those without a value are left out of a row")
    else:
        out.print(f"no rows; the columns are {', '.join(columns)}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(item)}" for key, item in value.items())
    text = "" if value is None else str(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"

"""
The columns of the tables as the documentation lists them, from the notes in their SQL.

    python tests/tables/reference.py    writes them into docs/tables.md
"""

from __future__ import annotations

import re
from pathlib import Path

from mttp.tables import TABLES, statement

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
_NOTE = re.compile(r"\s*-- ?(.*)")
_ALIAS = re.compile(r'(?:AS\s+)?(?:\w+\.)?"?(\w+)"?,?\s*$')


def columns(table: str) -> dict[str, str]:
    """Return what each column of a table is, by name, from the lines of comment before it."""
    last = re.split(r"^SELECT\b", statement(table), flags=re.MULTILINE)[-1]
    body = re.split(r"^FROM\b", last, flags=re.MULTILINE)[0]
    notes: dict[str, str] = {}
    note: list[str] = []
    expression = ""
    for line in [*body.splitlines(), "    -- "]:
        if (comment := _NOTE.fullmatch(line)) is None:
            expression += f"{line}\n"
            continue
        if expression.strip():
            alias = _ALIAS.search(expression.strip())
            assert alias is not None, f"{table}: {expression}"
            notes[alias[1]] = " ".join(note)
            note, expression = [], ""
        note.append(comment[1])
    return notes


def described(table: str, types: dict[str, str]) -> str:
    """Return a table's section of the page."""
    rows = [f"| `{name}` | `{types[name]}` | {note} |" for name, note in columns(table).items()]
    lead = statement(table).partition("\n")[0].removeprefix("-- ")
    return "\n".join([f"## `{table}`", "", lead, "", "| column | type | |", "| --- | --- | --- |", *rows])


def page(types: dict[str, dict[str, str]]) -> str:
    """Return the page with the present columns; `types` are those of the columns by table."""
    start = PAGE.read_text().partition("\n## `")[0].rstrip("\n")
    return "\n\n".join([start, *(described(table, types[table]) for table in TABLES)]) + "\n"


def types() -> dict[str, dict[str, str]]:
    """Return the types of the columns of each table."""
    import mttp
    from mttp.tables import Database

    with mttp.configure("memory://") as session, mttp.episode(env="env"):
        pass
    with Database(session) as database:
        return {table: dict(database.columns(table)) for table in TABLES}


if __name__ == "__main__":
    PAGE.write_text(page(types()))

"""
The columns of the tables as the documentation lists them, from the notes in their SQL.

    python tests/tables/reference.py    writes them into docs/tables.md
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from mttp.tables import TABLES, statement

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
SHARED = "## Columns of several tables"
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


def described(table: str, types: dict[str, str], shared: set[str]) -> str:
    """Return a table's section of the page, in which columns of several tables are only named."""
    lines = {name: line(name, types[name], note) for name, note in columns(table).items()}
    own = [text for text in lines.values() if text not in shared]
    names = ", ".join(f"`{name}`" for name, text in lines.items() if text in shared)
    lead = statement(table).partition("\n")[0].removeprefix("-- ")
    return "\n".join([f"## `{table}`", "", lead, "", *own, *([f"- As above: {names}"] if names else [])])


def line(name: str, type_: str, note: str) -> str:
    """Return a column's line of the page."""
    return f"- `{name}`{typed(type_)}: {short(note)}"


def typed(name: str) -> str:
    """Return the type of a column, unless it is text."""
    return "" if name == "VARCHAR" else f" {name}"


def short(note: str) -> str:
    """Return a note without what the page says once of all times and ids."""
    return re.sub(r", (in nanoseconds since the Unix epoch|(32|16) hex digits)", "", note)


def page(types: dict[str, dict[str, str]]) -> str:
    """Return the page with the present columns; `types` are those of the columns by table."""
    start = PAGE.read_text().partition(f"\n{SHARED}")[0].rstrip("\n")
    lines = Counter(
        (name, line(name, types[table][name], note))
        for table in TABLES
        for name, note in columns(table).items()
    )
    often = [(name, text) for (name, text), count in lines.items() if count > 2]
    names = Counter(name for name, _ in often)
    shared = [text for name, text in often if names[name] == 1]
    sections = (described(table, types[table], {*shared}) for table in TABLES)
    return "\n\n".join([start, SHARED, "\n".join(shared), *sections]) + "\n"


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

"""The tables of a recording as SQL over its spans: episodes, steps, calls, scorings and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.tables.database import Database, Table
    from mttp.tables.statements import TABLES, statement
    from mttp.tables.summary import Summary, summarize

__all__ = ["TABLES", "Database", "Summary", "Table", "statement", "summarize"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "TABLES": "statements",
        "Database": "database",
        "Table": "database",
        "statement": "statements",
        "Summary": "summary",
        "summarize": "summary",
    },
)

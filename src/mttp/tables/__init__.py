"""The tables of a recording as SQL over its spans: episodes, steps, calls, scorings and so on."""

from mttp.tables.database import TABLES, Database, Table, statement

__all__ = ["TABLES", "Database", "Table", "statement"]

"""The page on tables lists the columns that there are, with their types and notes."""

from __future__ import annotations

from tables import reference

from mttp.tables import TABLES


def test_the_page_has_each_column_with_its_type_and_note() -> None:
    assert reference.PAGE.read_text() == reference.page(reference.types()), "run tests/tables/reference.py"


def test_each_column_has_a_note() -> None:
    types = reference.types()
    for table in TABLES:
        notes = reference.columns(table)

        assert list(notes) == list(types[table])
        assert all(note.endswith(".") and note != "." for note in notes.values()), table

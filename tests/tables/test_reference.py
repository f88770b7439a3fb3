"""The page on tables lists the columns that there are, with their types and notes."""

from __future__ import annotations

import re

import pytest
from tables import reference

import mttp
from mttp.tables import TABLES, Database


def test_the_page_has_each_column_with_its_type_and_note() -> None:
    assert reference.PAGE.read_text() == reference.page(reference.types()), "run tests/tables/reference.py"


def test_each_column_has_a_note() -> None:
    types = reference.types()
    for table in TABLES:
        notes = reference.columns(table)

        assert list(notes) == list(types[table])
        assert all(note.endswith(".") and note != "." for note in notes.values()), table


QUERIES = re.findall(r"`(select [^`]+)`", reference.PAGE.read_text())


@pytest.fixture
def learned(session: mttp.Session) -> mttp.Session:
    """A session with a group, a single episode, an update for each, and a preference."""
    episodes = [mttp.episode(env="env") for _ in range(3)]
    for episode in episodes:
        episode.end()
    mttp.group("g", episodes[:2], rewards=[0.0, 1.0]).end()
    mttp.update(loss=0.5, groups=["g"])
    mttp.update(loss=0.5, episodes=[episodes[2]])
    mttp.prefer(episodes[0], episodes[1:], by="me")
    return session


@pytest.mark.parametrize(("query", "rows"), [*zip(QUERIES, [2, 3], strict=True)])
def test_queries_of_the_page_have_rows(learned: mttp.Session, query: str, rows: int) -> None:
    with Database(learned) as database:
        assert rows == len(database.sql(query))

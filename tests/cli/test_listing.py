"""Tables in terminals of any width."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from mttp.pages.listing import Listing

ROWS = [
    {
        "id": Text("a1"),
        "name": Text("first"),
        "much": Text("1"),
        "note": Text("a long note"),
        "odd": Text("-"),
    },
    {"id": Text("b2"), "name": Text("second"), "much": Text("22"), "note": Text("-"), "odd": Text("-")},
]


def lines(width: int, **options: object) -> list[str]:
    """What is printed of the rows in so many columns."""
    out = io.StringIO()
    listing = Listing(rows=ROWS, important=("id", "name"), right=("much",), **options)  # type: ignore[arg-type]
    Console(file=out, width=width).print(listing)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_wide_terminal_shows_every_column_that_says_anything():
    """
    In the order of the rows.
    """
    assert [
        "id  name    much  note",
        "a1  first      1  a long note",
        "b2  second    22  -",
    ] == lines(80)


def test_the_rest_goes_below():
    """
    Less important columns that do not fit are printed below with their names; empty cells are left out.
    """
    assert [
        "id  name    much",
        "a1  first      1",
        "  note a long note",
        "b2  second    22",
    ] == lines(20)


def test_nothing_vanishes():
    """
    However narrow it is.
    """
    text = " ".join(lines(12))

    for words in ("a1", "first", "second", "22", "long note"):
        assert words in text


def test_spare_columns_are_left_out():
    """
    They are no reason for another line.
    """
    assert ["id  name    much", "a1  first      1", "b2  second    22"] == lines(20, spare=("note",))


def test_notes_follow():
    """
    Each on its line.
    """
    assert ["one", "two"] == lines(80, notes=("one", "two"))[-2:]

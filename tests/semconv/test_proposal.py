"""The page that compares the convention with others names what exists."""

import re
from pathlib import Path

import pytest
from semconv.registry import REGISTRY

PAGE = (Path(__file__).parents[2] / "docs" / "proposal.md").read_text(encoding="utf-8")
OURS = {each.key for each in REGISTRY.attributes} | {each.name for each in REGISTRY.signals}
REUSED = {each.key for each in REGISTRY.upstream}
NAME = re.compile(r"`([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+)`")


def cells(column):
    """The names in the column with that heading, in all tables."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]
        if column in rows[0]:
            place = rows[0].index(column)
            found += [name for row in rows[2:] for name in NAME.findall(row[place])]
    return found


def test_names_here_are_in_the_registry():
    """
    Each name in a column *here* is an attribute, a span or a metric of ours, or a reused attribute.
    """
    found = cells("here")

    assert len(found) > 100
    assert [] == [name for name in found if name not in OURS | REUSED]


def test_every_name_of_ours_on_the_page_exists():
    """
    Also outside the tables no name of ours is made up or out of date.
    """
    assert [] == [name for name in NAME.findall(PAGE) if name.startswith("mttp.") and name not in OURS]


@pytest.mark.parametrize(
    "namespace", sorted({".".join(key.split(".")[:2]) for key in OURS if not key.startswith("mttp.exporter")})
)
def test_every_namespace_is_compared(namespace):
    """
    A new namespace needs a row: next to the name of others that means the same, or among those without any.
    """
    assert any(name == namespace or name.startswith(f"{namespace}.") for name in cells("here"))


def test_every_span_is_compared():
    """
    Each kind of span is in a table.
    """
    assert set() == {span.name for span in REGISTRY.of("spans")} - set(cells("here"))


def test_no_row_repeats_a_name_of_others():
    """
    A name of another convention has one answer.
    """
    columns = ("`rl.*`", "`agentlightning.*`", "GenAI")
    names = [name for column in columns for name in cells(column)]

    assert len(names) > 50
    assert [] == sorted({name for name in names if names.count(name) > 1})

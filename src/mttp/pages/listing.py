"""A table for narrow terminals: columns that do not fit go on lines below each row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text

from mttp.pages.words import NOTHING

__all__ = ["Listing"]

_GAP = 2
_LEAST = 30
"""The width from which a cell is wrapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows of cells by column; a column without values is omitted."""

    rows: Sequence[Mapping[str, Text]]
    """The cells by column; the first row has every column, in the order of the table."""
    important: Sequence[str]
    """Columns in order of importance; columns that are not listed here come last."""
    right: Collection[str] = ()
    """Columns that are aligned on the right."""
    spare: Collection[str] = ()
    """Columns that are omitted if they do not fit."""
    nothing: Mapping[str, str] = field(default_factory=dict)
    """Texts that count as a missing value, by column, besides `-`."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Titles by column; the others are the names, with spaces for underscores."""
    notes: Sequence[str] = ()
    """Lines below the table."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self.rows[0] if self.rows else ()
        names = [name for name in columns if any(self._has_value(row, name) for row in self.rows)]
        widths = self._fitting(names, options.max_width)
        titles = {name: Text(self._title(name), style="bold") for name in widths}
        yield from self._lines(titles, widths, console)
        for row in self.rows:
            yield from self._lines(row, widths, console)
            below = [name for name in names if name not in widths and name not in self.spare]
            rest = [(self._title(name), row[name]) for name in below if self._has_value(row, name)]
            if rest:
                yield Padding(_details(rest), (0, 0, 0, _GAP), expand=False)
        yield from map(Text, self.notes)

    def _has_value(self, row: Mapping[str, Text], name: str) -> bool:
        """Return whether a row has a value in a column."""
        return name in row and row[name].plain not in (self.nothing.get(name, NOTHING), NOTHING)

    def _fitting(self, names: Sequence[str], width: int) -> dict[str, int]:
        """
        Return the widths of the columns that fit, chosen by importance, in the order of the table.

        The first one that does not fit is wrapped if there is room for a few words.
        """
        chosen: dict[str, int] = {}
        room = width + _GAP
        for name in sorted(names, key=self._rank):
            needed = self._width(name) + _GAP
            if needed > room >= _LEAST + _GAP:
                needed = room
            if needed <= room:
                chosen[name] = needed - _GAP
                room -= needed
        return {name: chosen[name] for name in names if name in chosen}

    def _rank(self, name: str) -> int:
        return self.important.index(name) if name in self.important else len(self.important)

    def _width(self, name: str) -> int:
        return max(
            Text(self._title(name)).cell_len, *(row[name].cell_len for row in self.rows if name in row)
        )

    def _title(self, name: str) -> str:
        return self.titles.get(name, name.replace("_", " "))

    def _lines(
        self, cells: Mapping[str, Text], widths: Mapping[str, int], console: Console
    ) -> Iterator[Text]:
        """Yield the lines of a row, of which a wrapped cell may have several."""
        wrapped = [
            (name, width, cells.get(name, Text(NOTHING)).wrap(console, width))
            for name, width in widths.items()
        ]
        for place in range(max((len(lines) for _, _, lines in wrapped), default=0)):
            yield Text(" " * _GAP).join(
                self._padded(name, lines[place] if place < len(lines) else Text(), width)
                for name, width, lines in wrapped
            )

    def _padded(self, name: str, cell: Text, width: int) -> Text:
        cell.rstrip()
        padding = " " * (width - cell.cell_len)
        return Text.assemble(padding, cell) if name in self.right else Text.assemble(cell, padding)


def _details(cells: Sequence[tuple[str, Text]]) -> Text:
    """What has no column of its own: a name and its value each."""
    return Text("  ").join(Text.assemble((name, "dim"), " ", cell) for name, cell in cells)

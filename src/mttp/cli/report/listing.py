"""A table whose most important columns stay in a narrow terminal; the rest goes on lines below each row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text

from mttp.cli.report.words import NOTHING

__all__ = ["Listing"]

_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows of cells by column; a column that says nothing in any row is left out."""

    rows: Sequence[Mapping[str, Text]]
    """The cells, in the order in which columns are shown; the first row has every column."""
    important: Sequence[str]
    """Columns from the most important one on; columns that are not named here come last."""
    right: Collection[str] = ()
    """Columns that are aligned on the right."""
    spare: Collection[str] = ()
    """Columns that are left out where there is no room for them."""
    nothing: Mapping[str, str] = field(default_factory=dict)
    """What a column has where it says nothing; `-` unless stated."""
    notes: Sequence[str] = ()
    """Lines below the table."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self.rows[0] if self.rows else ()
        names = [name for name in columns if any(self._says(row, name) for row in self.rows)]
        shown = self._fitting(names, options.max_width)
        widths = {name: self._width(name) for name in shown}
        yield self._line({name: Text(_title(name), style="bold") for name in shown}, widths)
        for row in self.rows:
            yield self._line(row, widths)
            below = [name for name in names if name not in shown and name not in self.spare]
            rest = [(name, row[name]) for name in below if self._says(row, name)]
            if rest:
                yield Padding(_details(rest), (0, 0, 0, _GAP), expand=False)
        yield from map(Text, self.notes)

    def _says(self, row: Mapping[str, Text], name: str) -> bool:
        """Whether a row says anything in a column."""
        return name in row and row[name].plain not in (self.nothing.get(name, NOTHING), NOTHING)

    def _fitting(self, names: Sequence[str], width: int) -> list[str]:
        """The columns that there is room for, in order of importance; in the order of the table."""
        chosen: set[str] = set()
        room = width + _GAP
        for name in sorted(names, key=self._rank):
            if (needed := self._width(name) + _GAP) <= room:
                chosen.add(name)
                room -= needed
        return [name for name in names if name in chosen]

    def _rank(self, name: str) -> int:
        return self.important.index(name) if name in self.important else len(self.important)

    def _width(self, name: str) -> int:
        return max(len(_title(name)), *(row[name].cell_len for row in self.rows if name in row))

    def _line(self, cells: Mapping[str, Text], widths: Mapping[str, int]) -> Text:
        return Text(" " * _GAP).join(
            self._padded(name, cells.get(name, Text(NOTHING)), width) for name, width in widths.items()
        )

    def _padded(self, name: str, cell: Text, width: int) -> Text:
        padding = " " * (width - cell.cell_len)
        return Text.assemble(padding, cell) if name in self.right else Text.assemble(cell, padding)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _details(cells: Sequence[tuple[str, Text]]) -> Text:
    """What has no column of its own: a name and its value each."""
    return Text("  ").join(Text.assemble((_title(name), "dim"), " ", cell) for name, cell in cells)

"""A table whose most important columns stay in a narrow terminal; the rest goes on lines below each row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mttp.report.words import NOTHING

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
        names = [
            name for name in (self.rows[0] if self.rows else ()) if any(map(self._says(name), self.rows))
        ]
        shown = self._fitting(names, options.max_width)
        widths = {name: self._width(name) for name in shown}
        yield self._line({name: Text(_title(name), style="bold") for name in shown}, widths)
        for row in self.rows:
            yield self._line(row, widths)
            below = [name for name in names if name not in shown and name not in self.spare]
            rest = [(name, row[name]) for name in below if self._says(name)(row)]
            if rest:
                yield Padding(_details(rest), (0, 0, 0, _GAP), expand=False)
        yield from map(Text, self.notes)

    def _says(self, name: str) -> _Says:
        return _Says(name, self.nothing.get(name, NOTHING))

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

    def _line(self, cells: Mapping[str, Text], widths: Mapping[str, int]) -> Table:
        line = Table.grid(padding=(0, _GAP, 0, 0))
        for name, width in widths.items():
            justify: JustifyMethod = "right" if name in self.right else "left"
            line.add_column(justify=justify, width=width, no_wrap=True)
        line.add_row(*(cells.get(name, Text(NOTHING)) for name in widths))
        return line


@dataclass(frozen=True, slots=True)
class _Says:
    """Whether a row says anything in a column."""

    name: str
    nothing: str

    def __call__(self, row: Mapping[str, Text]) -> bool:
        return self.name in row and row[self.name].plain not in (self.nothing, NOTHING)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _details(cells: Sequence[tuple[str, Text]]) -> Text:
    """What has no column of its own: a name and its value each."""
    return Text("  ").join(Text.assemble((_title(name), "dim"), " ", cell) for name, cell in cells)

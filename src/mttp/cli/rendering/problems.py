"""Problems of a recording as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from mttp.pages.words import cell, count, printed
from mttp.reading.problems import Problem

__all__ = ["markdown_warnings", "problem_lines", "warnings"]


def warnings(sentences: Iterable[str]) -> Iterator[Text]:
    """Yield what a reader must know before the figures, for a terminal."""
    yield from (printed(f"warning: {sentence}", style="bold red") for sentence in sentences)


def markdown_warnings(sentences: Iterable[str]) -> Iterator[str]:
    """Yield the same as paragraphs of Markdown."""
    for sentence in sentences:
        yield from ("", f"**warning: {cell(sentence)}**")


def problem_lines(problems: Sequence[Problem], *, limit: int = 5) -> Text:
    """Return the number of problems, then the first `limit` of them."""
    lines = [Text(count(len(problems), "problem") + ":", style="yellow")]
    lines += [printed(f"  {problem}") for problem in problems[:limit]]
    if len(problems) > limit:
        lines.append(Text(f"  … and {len(problems) - limit:,} more; --json lists them"))
    return Text("\n").join(lines)

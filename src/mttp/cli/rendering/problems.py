"""Problems of a recording as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mttp.cli.rendering.words import count, printed
from mttp.reading.problems import Problem

__all__ = ["problem_lines"]


def problem_lines(problems: Sequence[Problem], *, limit: int = 5) -> Text:
    """Return the number of problems, then the first `limit` of them."""
    lines = [Text(count(len(problems), "problem") + ":", style="yellow")]
    lines += [printed(f"  {problem}") for problem in problems[:limit]]
    if len(problems) > limit:
        lines.append(Text(f"  … and {len(problems) - limit:,} more; --json lists them"))
    return Text("\n").join(lines)

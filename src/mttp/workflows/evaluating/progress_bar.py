"""The progress bar of an evaluation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bar"]


@contextmanager
def bar(name: str, total: int, *, wanted: bool) -> Iterator[Callable[[], None]]:
    """Show a bar on standard error, if it is a terminal and rich is installed; yield its advance function."""
    if not wanted or not sys.stderr.isatty():
        yield _nothing
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield _nothing
        return
    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(name, total=total)
        yield lambda: shown.advance(task)


def _nothing() -> None:
    """Advance no bar."""

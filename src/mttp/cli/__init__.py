"""The `mttp` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 fine, 1 problems or findings, 2 wrong usage or unreadable input."""
    try:
        from mttp.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich", "click"):
            raise
        print("mttp: the command line needs typer and rich: pip install 'mttp[cli]'", file=sys.stderr)
        raise SystemExit(2) from error
    app(None if argv is None else list(argv), prog_name="mttp")

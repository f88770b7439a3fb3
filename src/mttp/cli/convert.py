"""`mttp convert`: a recording in another format, with nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mttp.cli.files import writer
from mttp.cli.output import Strict, finish, progress
from mttp.errors import ConfigureError
from mttp.reading.scanning import Scan
from mttp.report.words import count

__all__ = ["convert"]


def convert(
    sources: Annotated[
        list[str], typer.Argument(metavar="IN...", help="Recordings: files, globs or directories.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="A .parquet, .jsonl, .jsonl.gz or .jsonl.zst file.")
    ],
    *,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    strict: Strict = False,
) -> None:
    """
    Write a recording in another format.

    Every span is written as it is, to one Parquet file or one of OTLP JSON lines.
    In Parquet a span is a row, and an attribute of the convention a typed column of its name.

    \b
    Examples:
      mttp convert runs/cartpole.jsonl cartpole.parquet
      mttp convert cartpole.parquet cartpole.jsonl.zst
      mttp convert 'runs/*.jsonl' all.jsonl.gz --overwrite
    """
    write = writer(target)
    if target.exists() and not overwrite:
        raise ConfigureError(f"{target} exists; --overwrite replaces it")
    partial = target.with_name(f".{target.name}.partial")
    try:
        with progress(sources) as advance:
            scan = Scan(sources, arrays=True, progress=advance)
            written = write(partial, scan)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    print(f"wrote {count(written, 'span')} to {target} ({target.stat().st_size:,} bytes)")
    finish(scan.problems, strict=strict)

"""`mttp convert`: a recording in another format, with nothing lost in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mttp.cli.files import Format, replace, writer
from mttp.cli.output import Strict, finish, progress, say
from mttp.cli.report.words import count, visible
from mttp.errors import ConfigureError
from mttp.otlp.recording_files import File, is_parquet
from mttp.reading import copies
from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.sources import find

__all__ = ["convert"]


def convert(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="IN... OUT",
            help="Recordings: files, globs or directories; then a .parquet, .jsonl, .jsonl.gz or .jsonl.zst, "
            "or for messages a .mttp.jsonl and so on.",
        ),
    ],
    *,
    to: Annotated[
        Format | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="The format of OUT, where its name does not say: otlp, messages or parquet.",
        ),
    ] = None,
    beside: Annotated[
        bool, typer.Option("--beside", help="Instead of OUT, a Parquet copy beside each file.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    strict: Strict = False,
) -> None:
    """
    Write a recording in another format.

    Every span is written as it is, to one Parquet file, one of OTLP JSON lines, or one of messages.
    In Parquet a span is a row, and an attribute of the convention a typed column of its name.
    With --beside every file gets a copy of its own, a.jsonl.parquet beside a.jsonl, which is read in its
    place for as long as the file stays as it is.

    \b
    Examples:
      mttp convert runs/cartpole.jsonl cartpole.parquet
      mttp convert cartpole.parquet cartpole.jsonl.zst
      mttp convert 'runs/*.jsonl' all.jsonl.gz --overwrite
      mttp convert runs/cartpole.jsonl cartpole.mttp.jsonl
      mttp convert --beside runs/

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read.
    """
    if beside:
        _copy(paths)
    elif len(paths) < 2:
        raise typer.BadParameter("give OUT too, or --beside")
    else:
        _convert(paths[:-1], Path(paths[-1]), to, overwrite=overwrite, strict=strict)


def _copy(sources: list[str]) -> None:
    """A copy of every file that has none, or one that is too old."""
    for file in find(sources):
        if isinstance(file, File) and not is_parquet(file.path) and copies.find(file.path) is None:
            made = copies.make(file.path)
            say(f"wrote {made} ({made.stat().st_size:,} bytes)")


def _convert(sources: list[str], target: Path, to: Format | None, *, overwrite: bool, strict: bool) -> None:
    refused: list[str] = []
    write = writer(target, to, refuse=lambda span, error: refused.append(f"span {span.name!r}: {error}"))
    if target.exists() and not overwrite:
        raise ConfigureError(f"{target} exists; --overwrite replaces it")
    partial = target.with_name(f".{target.name}.partial")
    try:
        with progress(sources) as advance:
            scan = Scan(sources, arrays=True, as_written=True, progress=advance)
            written = write(partial, scan)
        replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    say(f"wrote {count(written - len(refused), 'span')} to {target} ({target.stat().st_size:,} bytes)")
    for reason in refused:
        scan.add_problem("unwritable_span", f"{reason}; it was left out")
    _name_left_out(scan.problems)
    finish(scan.problems, strict=strict)


def _name_left_out(problems: list[Problem]) -> None:
    """Say what the format has no place for."""
    for problem in problems:
        if problem.kind in ("other_message", "unwritable_span"):
            say(visible(f"mttp: {problem}"), error=True)
